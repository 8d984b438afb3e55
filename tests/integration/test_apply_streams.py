"""Streams on real targets: tables that a load has copied, DDL in its range, and a side stream beside main."""

from collections.abc import Callable, Mapping

import pytest

from millrace.consumer.target.loads import WAITS, LoadStream
from millrace.deploy.servers import DatabaseServer
from millrace.errors import Retryable
from millrace.schemas.documents import ApplyTask, Consistency
from millrace.schemas.gtid import Flavour
from millrace.schemas.table.structure import TableSchema
from tests.kit.apply.live import Source
from tests.kit.apply.loads import (
    follows,
    ranged,
    side_follows,
    states,
    waiting,
)
from tests.kit.apply.local import (
    LocalApplier,
    LocalRecords,
    apply_task,
    backwards,
    ignore,
    started,
)
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import RecordStream


@pytest.fixture
def target_server(request: pytest.FixtureRequest) -> DatabaseServer:
    """MariaDB, or MySQL for tests that ask for it: the rules do not depend on the flavour of the target."""
    flavour = getattr(request, "param", "mariadb")
    server: DatabaseServer = request.getfixturevalue(f"{flavour}_server")
    return server


def _copy(server: DatabaseServer, name: str, which: str, rows: Mapping[int, int]) -> None:
    server.execute(f"DELETE FROM {name}.{which}")
    for key, value in rows.items():
        server.execute(f"INSERT INTO {name}.{which} VALUES (%s, %s)", (key, value))


def _rows(server: DatabaseServer, name: str, which: str) -> dict[int, int]:
    found = server.execute(f"SELECT id, n FROM {name}.{which} ORDER BY id, n")
    assert len({key for key, _ in found}) == len(found)
    return {int(str(key)): int(str(value)) for key, value in found}


def _applied(
    server: DatabaseServer,
    task: ApplyTask,
    stream: RecordStream,
    *,
    is_large: bool = True,
    window_rows: int = 40,
    until: int = -1,
) -> LocalApplier:
    """One run up to the end, or up to an offset."""
    applier = started(server, task)
    applier.until = until
    try:
        records = LocalRecords(
            stream.values, is_large=is_large, window_rows=window_rows, lane_order=backwards
        )
        applier.process(records, ignore)
    finally:
        applier.close()
    return applier


@pytest.mark.parametrize(
    ("is_large", "consistency", "window_rows"),
    [
        (True, Consistency.CAUSAL, 40),
        (False, Consistency.CAUSAL, 40),
        (True, Consistency.TRANSACTIONAL, 5),
    ],
    ids=["lanes", "one lane", "larger than a window"],
)
def test_copied_tables_end_in_the_rows_of_the_source(
    name: str,
    target_server: DatabaseServer,
    *,
    is_large: bool,
    consistency: Consistency,
    window_rows: int,
) -> None:
    """Rows of ``t`` are from any moments of the load, those of ``bag`` from one; rows of ``later`` are skipped."""
    source = Source(name, RecordStream(Flavour.MARIADB))
    source.create(target_server, "t", "bag", "later")
    source.transactions(80, changes=20)
    begin, snapshot, end = 15, 22, 50
    moments = [source.states[source.chance.randint(begin, end)]["t"] for _ in range(31)]
    mixed = {key: moments[key][key] for key in range(31) if key in moments[key]}
    _copy(target_server, name, "t", mixed)
    _copy(target_server, name, "bag", source.states[snapshot]["bag"])
    follows(target_server, name, {(name, "t"): None, (name, "bag"): source.gtid_set(snapshot)})
    follows(target_server, name, {(name, "later"): None}, batch=1)
    ranged(target_server, name, source.gtid_set(begin), source.gtid_set(end), Flavour.MARIADB)
    task = apply_task(name, start=source.gtid_set(begin), consistency=consistency)
    _applied(target_server, task, source.stream, is_large=is_large, window_rows=window_rows)
    for which in ("t", "bag"):
        assert _rows(target_server, name, which) == source.rows[which]
    assert _rows(target_server, name, "later") == {}
    source.transactions(1)
    _applied(target_server, task, source.stream)  # the next turn finds that the range is over
    assert (
        target_server.execute("SELECT * FROM millrace.load_stream WHERE task = %s", (name,)) == []
    )
    assert set(states(target_server, name)) == {"later"}


def test_ddl_in_the_range_makes_its_tables_wait(name: str, target_server: DatabaseServer) -> None:
    """It is not executed, and later rows of the table are skipped; statements about other things are executed."""
    source = Source(name, RecordStream(Flavour.MARIADB))
    source.create(target_server, "t", "kept", "dropped")
    source.transactions(20)
    source.ddl("ALTER TABLE t ADD COLUMN more INT")
    source.ddl("CREATE TABLE fresh (id INT PRIMARY KEY)")
    source.ddl(f"CREATE DATABASE {name}_2")
    source.ddl(f"CREATE DATABASE {name}")
    source.ddl("DROP TABLE dropped")
    del source.rows["dropped"]
    source.transactions(20)
    end = source.gtid_set(len(source.states) - 1)
    source.ddl("ALTER TABLE kept ADD INDEX (n)")
    source.transactions(5)
    follows(target_server, name, {(name, which): None for which in ("t", "kept", "dropped")})
    ranged(target_server, name, "", end, Flavour.MARIADB)
    _applied(target_server, apply_task(name), source.stream)
    target_server.execute(f"DROP DATABASE {name}_2")
    assert waiting(target_server, name) == {"t", "fresh", "dropped", "kept"}


def test_statement_of_the_copied_structure_is_passed(
    name: str, target_server: DatabaseServer
) -> None:
    """The load saw the column: neither is it added again, nor does the table wait."""
    source = Source(name, RecordStream(Flavour.MARIADB))
    source.create(target_server, "t")
    source.transactions(5)
    source.ddl("ALTER TABLE t ADD INDEX (n)")
    covered = source.gtid_set(len(source.states) - 1)
    _copy(target_server, name, "t", source.rows["t"])
    source.transactions(10)
    follows(target_server, name, {(name, "t"): None}, begin=covered)
    ranged(target_server, name, "", source.gtid_set(len(source.states) - 1), Flavour.MARIADB)
    _applied(target_server, apply_task(name), source.stream)
    assert waiting(target_server, name) == set()
    assert _rows(target_server, name, "t") == source.rows["t"]


@pytest.mark.guarantee("loaded")
def test_side_stream_catches_up_beside_main(name: str, target_server: DatabaseServer) -> None:
    """Main continues without the table. The side stream never passes main, and executes the table's later DDL."""
    source = Source(name, RecordStream())
    source.create(target_server, "t", "kept")
    source.transactions(20)
    task = apply_task(name)
    before = _applied(target_server, task, source.stream)
    begun_at, first = len(source.states) - 1, len(source.stream.values)
    source.transactions(20)
    end = len(source.states) - 1
    moments = [source.states[source.chance.randint(begun_at, end)]["t"] for _ in range(31)]
    _copy(target_server, name, "t", {k: moments[k][k] for k in range(31) if k in moments[k]})
    load = LoadStream(source.gtid_set(begun_at), source.gtid_set(end), Flavour.MYSQL)
    side = side_follows(target_server, before, [(name, "t")], load)
    source.transactions(5)
    source.ddl("ALTER TABLE t ADD INDEX of_n (n)")
    source.transactions(5)
    passed = _applied(target_server, task, source.stream)
    assert passed.figures.counts.ddl == 0
    assert _rows(target_server, name, "kept") == source.rows["kept"]
    middle = first + 31
    aside = apply_task(side)
    assert _applied(target_server, aside, source.stream, until=middle).mark.next_offset == middle
    source.transactions(5)  # main has not come so far
    caught_up = _applied(target_server, aside, source.stream, until=passed.mark.next_offset)
    assert (caught_up.mark.seq, caught_up.mark.next_offset) == (
        passed.mark.seq,
        passed.mark.next_offset,
    )
    assert caught_up.mark.past_start
    assert caught_up.figures.counts.ddl == 1
    assert _rows(target_server, name, "t") == source.states[-6]["t"]
    assert _rows(target_server, name, "kept") == source.states[-6]["kept"]


def test_statement_about_tables_of_both_streams_makes_both_wait(
    name: str, target_server: DatabaseServer
) -> None:
    """A rename across streams could be executed by neither."""
    source = Source(name, RecordStream())
    source.create(target_server, "t", "kept")
    source.transactions(5)
    follows(target_server, name, {(name, "t"): None}, batch=1)
    source.ddl("RENAME TABLE t TO fresh, kept TO t")
    applier = _applied(target_server, apply_task(name), source.stream)
    assert applier.figures.counts.ddl == 0
    assert applier.mark.seq == source.stream.seq
    assert waiting(target_server, name) == {"t", "kept", "fresh"}
    assert states(target_server, name)["t"].state == WAITS


def test_load_that_began_before_the_mark_is_refused(
    name: str, target_server: DatabaseServer
) -> None:
    """The replica did not have a change that main had applied before the tables were taken over."""
    source = Source(name, RecordStream(Flavour.MARIADB))
    source.create(target_server, "t")
    source.transactions(5)
    applier = _applied(target_server, apply_task(name), source.stream)
    load = LoadStream(source.gtid_set(4), source.gtid_set(5), Flavour.MARIADB)
    with pytest.raises(Retryable, match="MR-5110"):
        side_follows(target_server, applier, [(name, "t")], load)
    load = LoadStream(source.gtid_set(5), source.gtid_set(5), Flavour.MARIADB)
    side_follows(target_server, applier, [(name, "t")], load)


@pytest.mark.parametrize("is_statement", [False, True])
def test_tables_related_by_foreign_keys_wait_together(
    name: str, target_server: DatabaseServer, *, is_statement: bool
) -> None:
    """Otherwise main would write children whose parents wait: here the second row's is not on the target."""
    stream, parent, child = _family(target_server, name, "")
    if is_statement:
        stream.ddl("ALTER TABLE p COMMENT 'x'", database=name)
        follows(target_server, name, {(name, "p"): None, (name, "c"): None})
        ranged(target_server, name, "", stream.gtid_set, Flavour.MARIADB)
    else:
        follows(target_server, name, {(name, "p"): None}, batch=1)
    stream.insert(parent, {"id": 1})
    stream.insert(child, {"id": 1, "p": 1})
    stream.commit()
    applier = _applied(target_server, apply_task(name), stream)
    assert applier.mark.seq == stream.seq
    assert waiting(target_server, name) == ({"p", "c"} if is_statement else {"c"})


@pytest.mark.parametrize("is_parent_exact", [False, True])
def test_rows_of_a_snapshot_fit_rows_of_a_later_state(
    name: str, target_server: DatabaseServer, *, is_parent_exact: bool
) -> None:
    """One of the two was read in one snapshot, the other in chunks, after the parent row was deleted or came back."""
    stream, parent, child = _family(target_server, name, "")
    stream.insert(parent, {"id": 1})
    stream.commit()
    exact = stream.gtid_set
    if is_parent_exact:
        _in_transactions(
            stream,
            lambda: stream.delete(parent, {"id": 1}),
            lambda: stream.insert(parent, {"id": 1}),
            lambda: stream.insert(child, {"id": 1, "p": 1}),
        )
        target_server.execute(f"INSERT INTO {name}.p VALUES (1)")
        target_server.execute(f"INSERT INTO {name}.c VALUES (1, 1)")
    else:
        _in_transactions(
            stream,
            lambda: stream.insert(child, {"id": 1, "p": 1}),
            lambda: stream.delete(child, {"id": 1, "p": 1}),
            lambda: stream.delete(parent, {"id": 1}),
        )
    exact_ones = {"p"} if is_parent_exact else {"c"}
    copied = {(name, which): exact if which in exact_ones else None for which in ("p", "c")}
    follows(target_server, name, copied)
    ranged(target_server, name, exact, stream.gtid_set, Flavour.MARIADB)
    _applied(target_server, apply_task(name, start=exact), stream, window_rows=1)
    wanted = [[(1,)], [(1, 1)]] if is_parent_exact else [[], []]
    assert [
        list(target_server.execute(f"SELECT * FROM {name}.{one}")) for one in ("p", "c")
    ] == wanted


@pytest.mark.parametrize("change", ["delete", "update"])
def test_unlogged_cascade_of_a_snapshot_changes_its_child_rows(
    name: str, target_server: DatabaseServer, change: str
) -> None:
    """Both tables are from one snapshot, and the source did not log the rows of the child."""
    stream, parent, child = _family(target_server, name, "ON DELETE CASCADE ON UPDATE CASCADE")
    stream.insert(parent, {"id": 1})
    stream.insert(child, {"id": 1, "p": 1})
    stream.commit()
    exact = stream.gtid_set
    if change == "delete":
        stream.delete(parent, {"id": 1})
    else:
        stream.update(parent, {"id": 1}, {"id": 2})
    stream.commit()
    target_server.execute(f"INSERT INTO {name}.p VALUES (1)")
    target_server.execute(f"INSERT INTO {name}.c VALUES (1, 1)")
    follows(target_server, name, {(name, "p"): exact, (name, "c"): exact})
    ranged(target_server, name, exact, stream.gtid_set, Flavour.MARIADB)
    _applied(target_server, apply_task(name, start=exact), stream)
    wanted = [] if change == "delete" else [(1, 2)]
    assert list(target_server.execute(f"SELECT * FROM {name}.c")) == wanted


def _family(
    server: DatabaseServer, name: str, actions: str
) -> tuple[RecordStream, TableSchema, TableSchema]:
    """A parent and its child, empty on the target, with a stream of theirs."""
    server.execute("CREATE TABLE p (id INT PRIMARY KEY)", db=name)
    server.execute(
        f"CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id) {actions})",
        db=name,
    )
    parent, child = table(name, "p", integer("id")), table(name, "c", integer("id"), integer("p"))
    return RecordStream(Flavour.MARIADB), parent, child


def _in_transactions(stream: RecordStream, *changes: Callable[[], object]) -> None:
    for change in changes:
        change()
        stream.commit()
