"""MariaDB's system-versioned tables: rows and history equal those of the source and of a native replica."""

from collections.abc import Iterator
from itertools import cycle

import pytest

from millrace.consumer.write import row_versions
from millrace.deploy.servers import DatabaseServer, DatabaseSet
from millrace.errors import Fatal
from millrace.schemas.documents import ConflictPolicy
from millrace.schemas.gtid import Flavour
from tests.fixtures.servers import Pool
from tests.kit.apply.local import (
    IN_LANES,
    LocalRecords,
    apply_task,
    apply_with_failures,
    ignore,
    run_once,
    started,
)
from tests.kit.apply.topic import RecordStream
from tests.kit.binlog.session import LoggedSession, logged
from tests.kit.waiting import PATIENCE_S

DATABASE = "versions"
VERSIONED = (
    "SELECT TABLE_NAME FROM information_schema.TABLES"
    " WHERE TABLE_SCHEMA = %s AND TABLE_TYPE = 'SYSTEM VERSIONED'"
)
NAMED = (
    "CREATE TABLE named (id INT PRIMARY KEY, v INT, since TIMESTAMP(6) GENERATED ALWAYS AS ROW START,"
    " till TIMESTAMP(6) GENERATED ALWAYS AS ROW END, UNIQUE (v), PERIOD FOR SYSTEM_TIME (since, till))"
    " WITH SYSTEM VERSIONING"
)
CREATES = (
    "CREATE TABLE hidden (id INT PRIMARY KEY, v INT, note VARCHAR(20)) WITH SYSTEM VERSIONING",
    NAMED,
    "CREATE TABLE bag (v INT, w INT WITHOUT SYSTEM VERSIONING) WITH SYSTEM VERSIONING",
    "CREATE TABLE parts (id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING PARTITION BY SYSTEM_TIME"
    " (PARTITION p0 HISTORY, PARTITION pc CURRENT)",
    "CREATE TABLE later (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE child (id INT PRIMARY KEY, parent INT, FOREIGN KEY (parent) REFERENCES hidden (id))",
)
CHANGES = (
    "INSERT INTO hidden VALUES (1, 1, 'a'), (2, 2, NULL), (3, 3, 'ü')",
    "INSERT INTO child VALUES (1, 1), (2, 2)",
    "UPDATE hidden SET v = v + 10",
    "UPDATE hidden SET note = 'x' WHERE id = 1",
    "DELETE FROM child WHERE id = 2",
    "DELETE FROM hidden WHERE id = 2",
    "UPDATE hidden SET id = 9 WHERE id = 3",
    "REPLACE INTO hidden VALUES (9, 77, 'r')",
    "INSERT INTO hidden VALUES (9, 1, 'd') ON DUPLICATE KEY UPDATE v = v + 1",
    "INSERT INTO hidden VALUES (2, 5, 'again')",
    "BEGIN",
    "UPDATE hidden SET v = 100 WHERE id = 1",
    "UPDATE hidden SET v = 101 WHERE id = 1",
    "INSERT INTO hidden VALUES (50, 0, 'new')",
    "UPDATE hidden SET v = 1 WHERE id = 50",
    "DELETE FROM hidden WHERE id = 50",
    "COMMIT",
    "INSERT INTO named (id, v) VALUES (1, 1), (2, 2), (3, 3)",
    "UPDATE named SET v = v + 10 ORDER BY v DESC",
    "DELETE FROM named WHERE id = 2",
    "INSERT INTO bag VALUES (1, 1), (1, 1), (3, NULL)",
    "INSERT INTO bag VALUES (1, 1)",
    "UPDATE bag SET w = 5 WHERE v = 1 LIMIT 1",
    "UPDATE bag SET v = 2 WHERE v = 1 ORDER BY row_start DESC LIMIT 2",
    "DELETE FROM bag WHERE v = 1",
    "INSERT INTO parts VALUES (1, 1), (2, 2)",
    "UPDATE parts SET v = 5 WHERE id = 1",
    "DELETE FROM parts WHERE id = 2",
    # the same time, and an earlier one
    "SET timestamp = 1700000000.123457",
    "INSERT INTO parts VALUES (7, 1)",
    "UPDATE parts SET v = 2 WHERE id = 7",
    "DELETE FROM parts WHERE id = 7",
    "UPDATE hidden SET v = 0 WHERE id = 1",
    "INSERT INTO later VALUES (1, 1), (2, 2)",
    "SET timestamp = DEFAULT",
    # history of the client's own
    "SET system_versioning_insert_history = 1",
    "INSERT INTO hidden (id, v, row_start, row_end) VALUES (7, 7, '2001-01-01 00:00:00.1', '2002-01-01')",
    "INSERT INTO hidden (id, v, row_start) VALUES (8, 8, '2001-01-01')",
    "INSERT INTO named (id, v, since, till) VALUES (7, 7, '2001-01-01', '2002-01-01 00:00:00.000001')",
    "SET system_versioning_insert_history = 0",
    # structure
    "SET system_versioning_alter_history = KEEP",
    "ALTER TABLE hidden ADD extra INT DEFAULT 4",
    "UPDATE hidden SET extra = 5 WHERE id = 8",
    "ALTER TABLE later ADD SYSTEM VERSIONING",
    "UPDATE later SET v = 7 WHERE id = 1",
    "ALTER TABLE named DROP INDEX v",
    "DELETE HISTORY FROM named BEFORE SYSTEM_TIME '2005-01-01'",
    "DELETE HISTORY FROM parts",
    "DELETE HISTORY FROM bag BEFORE SYSTEM_TIME NOW(6)",
    "UPDATE bag SET v = 8",
    "ALTER TABLE later DROP SYSTEM VERSIONING",
    "UPDATE later SET v = 9",
    "RENAME TABLE hidden TO found",
    "DELETE FROM found WHERE id = 8",
)


@pytest.fixture
def source_set(pool: Pool) -> DatabaseSet:
    """The set of MariaDB: a primary and its native replicas."""
    return pool.source_set(Flavour.MARIADB)


@pytest.fixture
def source(source_set: DatabaseSet, mariadb_server: DatabaseServer) -> Iterator[LoggedSession]:
    """A session on the primary; the target's database is dropped afterwards."""
    with logged(source_set.primary, DATABASE) as found:
        yield found
    mariadb_server.execute(f"DROP DATABASE IF EXISTS {DATABASE}")


def _states(server: DatabaseServer) -> dict[str, list[str]]:
    """The current rows and the history of every table."""
    names = sorted(str(name) for (name,) in server.execute(VERSIONED, (DATABASE,)))
    found = {}
    for name in names:
        shown = "*" if name == "named" else "*, row_start, row_end"
        rows = server.execute(f"SELECT {shown} FROM {DATABASE}.{name} FOR SYSTEM_TIME ALL")
        found[name] = sorted(map(str, rows))
    for name in ("child", "later"):
        if name not in found:
            found[name] = sorted(map(str, server.execute(f"SELECT * FROM {DATABASE}.{name}")))
    return found


@pytest.mark.guarantee("applied")
@IN_LANES
def test_versioned_tables_equal_those_of_a_native_replica(
    source_set: DatabaseSet,
    source: LoggedSession,
    mariadb_server: DatabaseServer,
    in_lanes: tuple[bool, ...],
) -> None:
    """After every few changes: every row of the history with its start and end."""
    replica, done, turns = source_set.replicas[0], 0, cycle(in_lanes)
    applier = started(mariadb_server, apply_task(f"versions_{len(in_lanes)}_{in_lanes[0]}"))
    source.run(*CREATES)
    is_open = False
    for number, statement in enumerate(CHANGES, 1):
        source.run(statement)
        is_open = statement == "BEGIN" or (is_open and statement != "COMMIT")
        if is_open or (number % 8 and number < len(CHANGES)):
            continue  # in a transaction, a look at the binlog would end it
        values = source.record_values()
        applier.process(LocalRecords(values[done:], first=done, is_large=next(turns)), ignore)
        done = len(values)
        assert replica.wait_for_position(source.server.gtid_position(), timeout_s=PATIENCE_S)
        states = _states(source.server)
        assert _states(replica) == states, statement
        assert _states(mariadb_server) == states, statement
    applier.close()
    assert sum(map(len, states.values())) > 25


@pytest.mark.parametrize("window_rows", [2, pytest.param(1000, marks=pytest.mark.chaos)])
def test_versions_are_exact_after_rolled_back_target_transactions(
    source: LoggedSession, mariadb_server: DatabaseServer, window_rows: int
) -> None:
    """All at once, cut anywhere. Each target transaction fails once before its commit, and its rows come again."""
    source.run(*CREATES, *CHANGES)
    task = apply_task(f"versions_again_{window_rows}")
    apply_with_failures(mariadb_server, task, source.record_values(), window_rows=window_rows)
    assert _states(mariadb_server) == _states(source.server)


@pytest.mark.parametrize(
    "policy", [pytest.param(ConflictPolicy.STOP, marks=pytest.mark.chaos), ConflictPolicy.OVERWRITE]
)
def test_conflict_in_a_versioned_table_is_decided(
    source: LoggedSession, mariadb_server: DatabaseServer, policy: ConflictPolicy
) -> None:
    """A row that a client has deleted on the target: the task stops, or writes the row and its start again."""
    source.run(CREATES[0], "INSERT INTO hidden VALUES (1, 1, 'a'), (2, 2, 'b')")
    values, task = source.record_values(), apply_task(f"versions_{policy}", conflict=policy)
    run_once(mariadb_server, task, RecordStream(values=values))
    mariadb_server.execute(f"DELETE FROM {DATABASE}.hidden")
    source.run("UPDATE hidden SET v = 5 WHERE id = 1", "DELETE FROM hidden WHERE id = 2")
    stream = RecordStream(values=source.record_values())
    if policy is ConflictPolicy.STOP:
        with pytest.raises(Fatal) as caught:
            run_once(mariadb_server, task, stream)
        assert caught.value.code == "MR-5010"
        return
    run_once(mariadb_server, task, stream)
    current = f"SELECT *, row_start FROM {DATABASE}.hidden"
    assert mariadb_server.execute(current) == source.server.execute(current)
    decisions = "SELECT decision FROM millrace.conflict WHERE task = %s ORDER BY seq"
    assert mariadb_server.execute(decisions, (task.name,)) == [("overwrite",)] * 2


def test_target_without_the_time_of_the_source_is_refused(
    source: LoggedSession, mariadb_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session may not set its time (``secure_timestamp``), and MariaDB before 10.11 has no variable for history."""
    source.run(CREATES[0], "INSERT INTO hidden VALUES (1, 1, 'a')")
    stream = RecordStream(values=source.record_values())
    monkeypatch.setattr(row_versions, "HISTORY", b"no_such_variable")
    with pytest.raises(Fatal) as caught:
        run_once(mariadb_server, apply_task("versions_refused"), stream)
    assert caught.value.code == "MR-5029"
    assert caught.value.context["table"] == f"{DATABASE}.hidden"
