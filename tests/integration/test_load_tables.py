"""First loads of generated tables from a replica to a target, without a topic."""

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from millrace.checks.requirement import Level
from millrace.consumer.checks.cascades import check_cascades
from millrace.consumer.checks.load import RowsUse, check_load
from millrace.consumer.compare import Ends, compare_sets
from millrace.consumer.load import load
from millrace.consumer.load.copy_order import CopyOrder
from millrace.consumer.load.plan import missing_rights
from millrace.consumer.load.source import member_of
from millrace.consumer.load.tables import Admission
from millrace.consumer.target.loads import COPIED, COPIES, WAITS
from millrace.deploy.servers import DatabaseServer, DatabaseSet, sql
from millrace.drivers.mysql.catalog import TableKey
from millrace.drivers.mysql.connection import Side, connect
from millrace.drivers.mysql.grants import Role, needed_grants
from millrace.drivers.mysql.snapshot_position import begin_exact
from millrace.errors import Fatal, Fenced, Retryable
from millrace.schemas.documents import Directives, LoadRules, TableFilter
from millrace.schemas.gtid import Flavour
from millrace.schemas.stages import Loaded
from millrace.schemas.view.view import ALL_TABLES
from tests.fixtures.load import load_rig, source_of_one
from tests.fixtures.servers import Pool
from tests.fixtures.spark import OneSet
from tests.kit.apply.load_tables import create_filled, definitions
from tests.kit.apply.loading import LOADER, LoadRig, LocalCopier, busy, load_task
from tests.kit.apply.local import endpoint_of

pytestmark = pytest.mark.usefixtures("target_password")

NAME = "loaded"


@pytest.fixture
def rig(single_server: DatabaseServer, pool: Pool) -> Iterator[LoadRig]:
    """A source of one server with the tables, and a target of its flavour without them."""
    source = source_of_one(pool, single_server.flavour)
    with load_rig(pool, source, NAME) as rig:
        create_filled(source, NAME)
        yield rig


@pytest.fixture
def small(single_server: DatabaseServer, pool: Pool) -> Iterator[LoadRig]:
    """With two tables: one is copied in chunks, the other whole."""
    source = source_of_one(pool, single_server.flavour)
    with load_rig(pool, source, NAME) as rig:
        create_filled(source, NAME, leaves=definitions(NAME).keys() - {"keyless", "uniques"})
        yield rig


@pytest.fixture
def replicated(source_set: DatabaseSet, pool: Pool) -> Iterator[LoadRig]:
    """A source with replicas and all tables."""
    with load_rig(pool, source_set, NAME) as rig:
        create_filled(source_set, NAME)
        yield rig


def assert_equal(rig: LoadRig) -> None:
    """Every table of the source is on the target with the same rows."""
    found = compare_sets(
        Ends(rig.endpoint_of_source(), endpoint_of(rig.target)),
        lambda database, _: database == NAME,
    )
    assert found.differences == []
    assert found.tables >= len(definitions(NAME))


def test_every_kind_of_table_is_copied_whole(replicated: LoadRig) -> None:
    """Composite, text and generated keys, none, cascades, partitions, sequences; many chunks at once."""
    copier = LocalCopier()
    stream = replicated.load(copier, rules=LoadRules(chunk_rows=60))
    assert stream is not None
    assert stream.end
    assert_equal(replicated)
    assert {table.state for table in replicated.tables().values()} == {COPIED}
    assert len([order for order in copier.orders if order.chunk]) > 40
    assert replicated.loaded[-1].done == replicated.loaded[-1].count
    exact = {key[1] for key, table in replicated.tables().items() if table.reach.exact}
    assert "keyless" in exact
    assert "composite" not in exact


@pytest.mark.parametrize("is_chunk", [True, False])
def test_copies_of_an_earlier_run_are_fenced(small: LoadRig, *, is_chunk: bool) -> None:
    """A frozen process that copies a chunk or a whole table after its successor's start writes no row."""
    fenced: dict[TableKey, int] = {}  # by table, the rows that were copied before

    def take_over(order: CopyOrder) -> None:
        if not fenced and (order.chunk is not None) == is_chunk:
            small.owner(epoch=2)
            tables = small.tables()
            fenced.update((table.key, tables[table.key].done.rows) for table in order.tables)

    with pytest.raises(Fenced):
        small.load(LocalCopier(take_over), rules=LoadRules(chunk_rows=60, parallel=1))
    for (_, table), rows in fenced.items():
        assert small.target.execute(f"SELECT COUNT(*) FROM `{NAME}`.`{table}`") == [(rows,)]


def test_table_with_rows_is_refused_and_left_alone(small: LoadRig) -> None:
    """Nothing is created and nothing is copied."""
    small.target.execute(f"CREATE DATABASE {NAME}")
    small.target.execute(f"CREATE TABLE {NAME}.uniques ({definitions(NAME)['uniques']})")
    small.target.execute(f"INSERT INTO {NAME}.uniques VALUES (1, 1)")
    with pytest.raises(Fatal, match=r"loaded\.uniques has rows") as caught:
        small.load()
    assert caught.value.code == "MR-5091"
    assert small.target.execute(f"SHOW TABLES IN {NAME}") == [("uniques",)]
    assert small.tables() == {}


def test_table_that_the_target_refuses_is_named(small: LoadRig) -> None:
    """Here it takes no table without a primary key. The next run creates the rest."""
    is_mysql = small.source.flavour is Flavour.MYSQL
    setting = "sql_require_primary_key" if is_mysql else "innodb_force_primary_key"
    small.target.execute(f"SET GLOBAL {setting} = 1")
    copier = LocalCopier()
    try:
        with pytest.raises(Fatal, match=r"loaded\.keyless: ") as caught:
            small.load(copier)
    finally:
        small.target.execute(f"SET GLOBAL {setting} = 0")
    assert caught.value.code == "MR-5094"
    assert {table.state for table in small.tables().values()} == {COPIES}
    assert copier.orders == []
    assert small.load() is not None


def test_each_load_privilege_is_needed(small: LoadRig) -> None:
    """Without one the load is refused before it creates a table, because a server hides what may not be read."""
    (needed,) = needed_grants(Role.LOAD, small.source.flavour, (NAME,))
    to = f"'{LOADER.user}'@'%'"
    for privilege in needed.privileges:
        unlogged(small, f"REVOKE {privilege} ON {NAME}.* FROM {to}")
        with pytest.raises(Fatal) as caught:
            small.load()
        assert caught.value.code == "MR-5007"
        assert f"GRANT {privilege} ON `{NAME}`.* TO" in caught.value.fix
        unlogged(small, f"GRANT {privilege} ON {NAME}.* TO {to}")
    assert small.target.execute(f"SHOW DATABASES LIKE '{NAME}'") == []


def test_rights_are_known_if_no_filter_names_a_database(small: LoadRig) -> None:
    """As by default: each database with a table that is loaded needs them. MySQL locks tables without a key."""
    everything = Admission(TableFilter(), ALL_TABLES)
    locks = small.source.flavour is Flavour.MYSQL
    if locks:
        unlogged(small, f"REVOKE LOCK TABLES ON {NAME}.* FROM '{LOADER.user}'@'%'")
    with closing(connect(replace(small.endpoint_of_source(), side=Side.SOURCE))) as session:
        missing = missing_rights(session, everything)
        assert [grant.privileges for grant in missing.grants if grant.scope == NAME] == (
            [("LOCK TABLES",)] if locks else []
        )
        if locks:
            with pytest.raises(Fatal, match="MR-5007 source ") as refused:
                begin_exact(session, [(NAME, "keyless")])
            assert refused.value.fix.startswith("GRANT SELECT, LOCK TABLES ON ")
            unlogged(small, refused.value.fix.partition(";")[0])
            begin_exact(session, [(NAME, "keyless")])
        missing = missing_rights(session, everything)
        assert NAME not in {grant.scope for grant in missing.grants}


def unlogged(rig: LoadRig, statement: str) -> None:
    """Execute it on each member of the source."""
    for member in rig.source.members:
        sql.execute_unlogged(member.socket, [statement])


def test_stopped_load_continues_with_the_chunks_that_are_left(rig: LoadRig) -> None:
    """A stop ends it after the copies under way; none is made again."""
    stop = threading.Event()
    first = LocalCopier()
    first.before = lambda _: stop.set() if len(first.orders) == 12 else None
    rules = LoadRules(chunk_rows=40)
    assert rig.load(first, rules=rules, stop=stop) is None
    assert _advice(rig) == {"start: load": f"under way: {len(rig.tables())} tables"}
    second = LocalCopier()
    assert rig.load(second, rules=rules) is not None
    chunks = [
        (order.tables[0].key, order.chunk.number)
        for order in (*first.orders, *second.orders)
        if order.chunk
    ]
    assert len(chunks) == len(set(chunks)) > 60
    assert_equal(rig)
    assert _advice(rig).keys() == {"start: load"}
    sql.execute(rig.target.socket, f"ALTER TABLE {rig.name}.child DROP FOREIGN KEY child_ibfk_1")
    is_hidden = rig.target.flavour is Flavour.MARIADB  # this MySQL logs cascades
    assert ("the target does not have it" in "".join(_advice(rig).values())) is is_hidden


def _advice(rig: LoadRig) -> dict[str, str]:
    """The finding of `millrace check` about the load itself, and those about it and cascades that are not ok."""
    task = load_task(rig.name)
    origin = rig.origin(task)
    target = OneSet(rig.target).set_document("target")
    use = RowsUse(task, origin.capture, origin.document, target, Directives())
    return {
        each.what: each.found
        for each in (*check_load(use), *check_cascades(use))
        if each.what == "start: load" or each.level is not Level.OK
    }


def test_load_leaves_a_member_that_is_drained(
    replicated: LoadRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends with a code that is retried; the next one continues with another member."""
    monkeypatch.setattr(load, "MEASURE_S", 0.0)
    first = LocalCopier()

    def drain(order: CopyOrder) -> None:
        member = member_of(order.sites.source)
        replicated.directives = Directives(drained=frozenset({member}))

    first.before = drain
    with pytest.raises(Retryable, match="an operator drained it") as caught:
        replicated.load(first, rules=LoadRules(chunk_rows=40, parallel=1))
    assert caught.value.code == "MR-5090"
    second = LocalCopier()
    assert replicated.load(second) is not None
    assert (
        not {member_of(order.sites.source) for order in second.orders}
        & replicated.directives.drained
    )
    assert_equal(replicated)


# by table, what changes it just before it is copied
CHANGES = {
    "composite": "ALTER TABLE {0}.composite DROP COLUMN v",
    "keyless": "ALTER TABLE {0}.keyless DROP COLUMN b",
    "uniques": "DROP TABLE {0}.uniques",
    "texts": "RENAME TABLE {0}.texts TO {0}.other",
    "child": "ALTER TABLE {0}.child DROP COLUMN p, DROP FOREIGN KEY child_ibfk_1",
}


def test_changed_tables_wait_while_the_others_are_copied(rig: LoadRig) -> None:
    """A copy that fails because of a DDL statement ends no other one, and the stage names the reason."""
    pending = dict(CHANGES)

    def change(order: CopyOrder) -> None:
        for _, table in [each.key for each in order.tables]:
            if statement := pending.pop(table, ""):
                rig.source.execute(statement.format(NAME))

    assert rig.load(LocalCopier(change), rules=LoadRules(chunk_rows=60, parallel=2)) is not None
    assert pending == {}
    states = {key[1]: each.state for key, each in rig.tables().items()}
    waiting = {*CHANGES, "parent", "heir"}  # a family waits together
    assert {name for name, state in states.items() if state == WAITS} == waiting
    assert {states[name] for name in states.keys() - waiting} == {COPIED}
    whys = {each.name: each.waits for each in rig.loaded[-1].tables if each.waits}
    assert [name for name in CHANGES if "during its load" not in whys[f"{NAME}.{name}"]] == []
    stayed = len(states) - len(waiting)
    assert (rig.loaded[-1].done, rig.loaded[-1].count) == (stayed, stayed)


def test_load_pauses_while_the_target_is_busy(small: LoadRig) -> None:
    """No chunk begins; the stage says why. It continues when the limit is met again."""
    rules = LoadRules(max_threads_running=1)
    stop = threading.Event()
    copier = LocalCopier()
    paused: list[str] = []

    def note(loaded: Loaded) -> None:
        paused.append(loaded.paused)
        if loaded.paused:
            assert copier.orders == []
            stop.set()

    small.report = note
    with busy(small.target):
        assert small.load(copier, rules=rules, stop=stop) is None
    assert "max_threads_running is 1" in " ".join(paused)
    assert small.load(copier) is not None


@pytest.mark.both_flavours  # no turn: there is one
@pytest.mark.parametrize("single_server", [Flavour.MARIADB], indirect=True)
def test_tables_that_a_cascade_links_are_read_together(rig: LoadRig) -> None:
    """MariaDB does not log the rows of a cascade: parent and children have one GTID set."""
    assert rig.load() is not None
    exact = {key[1]: table.reach.exact for key, table in rig.tables().items()}
    assert exact["parent"] == exact["child"] == exact["heir"] != ""
