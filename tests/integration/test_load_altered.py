"""Statements of the source between two steps of a load: no table is copied into a structure that it no longer has."""

from collections.abc import Iterator

import pytest

from millrace.consumer.load import plan, prepare, prepare_again
from millrace.consumer.load.copy_order import CopyOrder
from millrace.consumer.load.tables import SourceTable
from millrace.consumer.target.loads import COPIED, WAITS, set_waiting
from millrace.drivers.mysql.connection import connect
from millrace.errors import Fatal, Retryable
from millrace.schemas.documents import LoadRules
from millrace.schemas.stages import Loaded
from tests.fixtures.load import load_rig, source_of_one
from tests.fixtures.servers import FLAVOURS, Pool, in_turn
from tests.kit.apply.load_tables import create_filled
from tests.kit.apply.loading import LoadRig, LocalCopier
from tests.kit.apply.local import endpoint_of
from tests.kit.forked import killed_at

NAME = "altered"
RULES = LoadRules(chunk_rows=400, parallel=1)


@pytest.fixture
def rig(request: pytest.FixtureRequest, pool: Pool) -> Iterator[LoadRig]:
    """A source of one server with the tables, and a target of its flavour without them; MariaDB unless a test asks."""
    source = source_of_one(pool, getattr(request, "param", FLAVOURS[0]))
    with load_rig(pool, source, NAME) as made:
        create_filled(source, NAME, leaves=("computed", "defaults", "parted", "texts"))
        yield made


@in_turn(
    "changes",
    {
        "snapshot, added": {"keyless": "ADD COLUMN c INT DEFAULT 7"},
        "dropped": {"keyless": "DROP COLUMN b", "uniques": "DROP COLUMN u"},
    },
    "rig",
    indirect=True,
)
def test_table_altered_before_its_copy_waits_for_another_load(
    rig: LoadRig, changes: dict[str, str]
) -> None:
    """Also one whose snapshot could be read as planned: its stream would pass the statement as copied."""
    pending = dict(changes)

    def alter(order: CopyOrder) -> None:
        for _, table in [each.key for each in order.tables]:
            if statement := pending.pop(table, ""):
                rig.source.execute(f"ALTER TABLE {NAME}.{table} {statement}")

    assert rig.load(LocalCopier(alter), rules=RULES) is not None
    assert pending == {}
    states = {key[1]: one.state for key, one in rig.tables().items()}
    assert {states.pop(table) for table in changes} == {WAITS}
    assert set(states.values()) == {COPIED}


def test_table_dropped_while_it_is_planned_blocks_no_load(rig: LoadRig) -> None:
    """The next run plans without it."""
    reports: list[Loaded] = []

    def drop(loaded: Loaded) -> None:
        reports.append(loaded)
        if len(reports) == 3:
            rig.source.execute(f"DROP TABLE {NAME}.vacant")

    rig.report = drop
    with pytest.raises(Retryable) as caught:
        rig.load(rules=RULES)
    assert caught.value.code == "MR-5111"
    assert rig.load(rules=RULES) is not None
    assert (NAME, "vacant") not in rig.tables()


def test_table_dropped_after_a_killed_load_created_it_is_followed(rig: LoadRig) -> None:
    """It was created for a stored range, so its DROP is in the range, and it waits."""
    killed_at(f"{prepare.AFTER_CREATE}:kill@3", lambda: rig.run(rules=RULES))
    assert ("composite",) in rig.target.execute(f"SHOW TABLES IN {NAME}")
    rig.source.execute(f"DROP TABLE {NAME}.composite")
    assert rig.run(rules=RULES)
    assert rig.tables()[NAME, "composite"].state == WAITS


def test_column_of_another_kind_after_a_kill_blocks_no_load(rig: LoadRig) -> None:
    """No value of it could be copied into the created table (MR-5082), which waits and is created again."""
    killed_at(f"{prepare.AFTER_CREATE}:kill@3", lambda: rig.run(rules=RULES))
    changed = "ALTER TABLE composite DROP COLUMN v, ADD COLUMN v POINT"
    rig.source.execute(changed, db=NAME)
    assert rig.run(rules=RULES)
    assert rig.tables()[NAME, "composite"].state == WAITS
    assert rig.load_again("composite") is not None


STATEMENTS = (
    "ALTER TABLE uniques ADD INDEX later (u)",
    "ALTER TABLE uniques ADD CONSTRAINT few CHECK (u > -5)",
    "ALTER TABLE uniques ALTER COLUMN u SET DEFAULT 5",
    "ALTER TABLE uniques ADD CONSTRAINT kin FOREIGN KEY (u) REFERENCES heir (id) ON DELETE CASCADE",
)


@pytest.mark.parametrize("rig", FLAVOURS, indirect=True)
def test_later_load_leaves_the_definition_of_the_source(rig: LoadRig) -> None:
    """Statements about a table that waits are not executed, so the load must have all of their effect."""
    assert rig.run(rules=RULES)
    session = rig.source.primary
    session.execute(f"DELETE FROM {NAME}.uniques WHERE u > 100 OR id > 100")
    for statement in STATEMENTS:
        session.execute(statement, db=NAME)
    assert rig.load_again("uniques", "heir", "parent", "child") is not None
    shown = [
        side.execute(f"SHOW CREATE TABLE {NAME}.uniques")
        for side in (rig.source.primary, rig.target)
    ]
    assert shown[0] == shown[1]


def test_later_load_creates_a_child_whose_parent_was_altered(rig: LoadRig) -> None:
    """The child comes first by name, and the target's old parent does not have the key that it refers to."""
    rig.source.execute(f"CREATE TABLE {NAME}.zero (n INT)")
    assert rig.run(rules=RULES)
    rig.source.execute(f"ALTER TABLE {NAME}.zero ADD PRIMARY KEY (n)")
    rig.source.execute(
        f"CREATE TABLE {NAME}.first (n INT PRIMARY KEY, FOREIGN KEY (n) REFERENCES zero (n))"
    )
    assert rig.load_again("first", "zero") is not None
    assert rig.target.execute(f"SELECT COUNT(*) FROM {NAME}.first") == [(0,)]


@pytest.mark.parametrize("moment", ["before it is planned", "as it is created"])
def test_table_waits_for_those_that_its_new_foreign_key_relates(
    rig: LoadRig, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Main would write parents while the side stream writes children. They are loaded together then."""
    key = "ADD CONSTRAINT kin FOREIGN KEY (u) REFERENCES heir (id) ON DELETE CASCADE"
    assert rig.run(rules=RULES)
    rig.source.execute(f"DELETE FROM {NAME}.uniques WHERE u > 100 OR id > 100")
    pending = [f"ALTER TABLE {NAME}.uniques {key}"]

    def add_key(*_: object) -> None:
        if pending:
            rig.source.execute(pending.pop())

    if moment == "as it is created":
        real = plan.definition_of

        def definition_of(ends: plan.Ends, table: SourceTable) -> str:
            add_key()
            return real(ends, table)

        monkeypatch.setattr(prepare_again, "definition_of", definition_of)
    else:
        add_key()
    assert rig.load_again("uniques") is not None
    family = {"uniques", "heir", "child", "parent"}
    tables = {key[1]: one for key, one in rig.tables().items()}
    assert {name for name, one in tables.items() if one.state == WAITS} == family
    has_key = "`kin`" in str(rig.target.execute(f"SHOW CREATE TABLE {NAME}.uniques"))
    assert has_key == (moment == "as it is created")
    assert rig.load_again(*family) is not None
    tables = {key[1]: one for key, one in rig.tables().items()}
    assert {tables[name].state for name in family} == {COPIED}
    both = [
        side.execute(f"SELECT COUNT(*) FROM {NAME}.uniques")
        for side in (rig.source.primary, rig.target)
    ]
    assert both[0] == both[1]


def test_table_that_the_target_refuses_keeps_no_other_waiting(rig: LoadRig) -> None:
    """It waits, with its error, and is tried again; alone, its error is the load's. Here it has no primary key."""
    assert rig.load(rules=RULES) is not None
    rig.target.execute(f"DROP TABLE {NAME}.keyless")
    rig.target.execute("SET GLOBAL innodb_force_primary_key = 1")
    try:
        assert rig.load_again("keyless", "uniques") is not None
        found = {key[1]: one for key, one in rig.tables().items()}
        assert found["uniques"].state == COPIED
        assert found["keyless"].state == WAITS
        assert found["keyless"].detail.startswith("MR-5094 ")
        rig.target.execute("DELETE FROM millrace.load_table WHERE state = 'copied'")
        with pytest.raises(Fatal) as caught:
            rig.load_again("keyless")
        assert caught.value.code == "MR-5094"
        assert rig.tables()[NAME, "keyless"].state == WAITS
    finally:
        rig.target.execute("SET GLOBAL innodb_force_primary_key = 0")
    assert rig.load_again("keyless") is not None
    assert rig.tables()[NAME, "keyless"].state == COPIED


def test_later_load_drops_no_table_that_the_task_excludes(rig: LoadRig) -> None:
    """It is only on the target, and refers to a table that is loaded again. It may wait since an earlier document."""
    assert rig.run(rules=RULES)
    own = f"{NAME}_own"
    rig.target.execute(f"CREATE DATABASE {own}")
    try:
        rig.target.execute(
            "CREATE TABLE notes (id INT PRIMARY KEY, k INT,"
            f" FOREIGN KEY (k) REFERENCES {NAME}.uniques (id))",
            db=own,
        )
        found = rig.later().together([(NAME, "uniques")])
        assert found == {(NAME, "uniques")}
        session = connect(endpoint_of(rig.target))
        set_waiting(session, NAME, [(own, "notes")], detail="again")
        session.commit()
        session.close()
        assert rig.load_again("uniques") is not None
        assert rig.tables()[NAME, "uniques"].state == COPIED
        assert rig.target.execute(f"SHOW TABLES IN {own}") == [("notes",)]
    finally:
        rig.target.execute(f"DROP DATABASE {own}")
