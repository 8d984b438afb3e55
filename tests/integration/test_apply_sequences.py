"""MariaDB's sequences: after each statement the target's equal those of the source and of a native replica."""

from collections.abc import Iterator
from itertools import cycle

import pytest

from millrace.deploy.servers import DatabaseServer, DatabaseSet
from millrace.errors import Fatal
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

DATABASE = "numbers"
SEQUENCES = "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_TYPE = 'SEQUENCE'"
TABLE = (
    "CREATE TABLE numbers.made (next_not_cached_value BIGINT NOT NULL, minimum_value BIGINT NOT NULL, maximum_value"
    " BIGINT NOT NULL, start_value BIGINT NOT NULL, increment BIGINT NOT NULL, cache_size BIGINT UNSIGNED NOT NULL,"
    " cycle_option TINYINT UNSIGNED NOT NULL, cycle_count BIGINT NOT NULL) SEQUENCE=1"
)
STATEMENTS = (
    "CREATE SEQUENCE s START 5 INCREMENT 2 CACHE 3",
    "SELECT NEXT VALUE FOR s",
    "DO NEXTVAL(s), NEXTVAL(s), NEXTVAL(s), NEXTVAL(s)",
    "SELECT SETVAL(s, 100)",
    "SELECT SETVAL(s, 50)",
    "SELECT SETVAL(s, 200, 0)",
    "ALTER SEQUENCE s RESTART 7",
    "SELECT NEXTVAL(s)",
    "ALTER SEQUENCE IF EXISTS s INCREMENT 3 MAXVALUE 20 CYCLE NOCACHE",
    "DO NEXTVAL(s), NEXTVAL(s), NEXTVAL(s), NEXTVAL(s), NEXTVAL(s), NEXTVAL(s), NEXTVAL(s)",
    "CREATE TABLE t (id INT DEFAULT NEXTVAL(s) PRIMARY KEY, v INT)",
    "INSERT INTO t (v) VALUES (1), (2), (3)",
    "RENAME TABLE s TO s2",
    "ALTER TABLE s2 RENAME s",
    "ALTER TABLE s COMMENT 'x'",
    "INSERT INTO s VALUES (11, 1, 1000, 1, 1, 10, 1, 4)",
    "INSERT INTO s VALUES (5, 1, 1000, 1, 1, 10, 0, 0), (6, 1, 900, 1, 1, 10, 0, 0)",
    "SELECT NEXTVAL(s)",
    "CREATE SEQUENCE down MINVALUE -30 MAXVALUE -1 INCREMENT -2 CYCLE CACHE 2",
    "DO NEXTVAL(down), NEXTVAL(down), NEXTVAL(s), NEXTVAL(down)",
    "SELECT SETVAL(down, -21)",
    "DO NEXTVAL(down), NEXTVAL(down), NEXTVAL(down), NEXTVAL(down), NEXTVAL(down), NEXTVAL(down)",
    "CREATE OR REPLACE SEQUENCE down START 3 ENGINE=Aria",
    "SELECT NEXTVAL(down)",
    TABLE,
    "SELECT NEXTVAL(made)",
    "DROP SEQUENCE IF EXISTS nope, made",
    "CREATE OR REPLACE TABLE down (id INT PRIMARY KEY)",
    "INSERT INTO down VALUES (NEXTVAL(s))",
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


def _states(server: DatabaseServer) -> dict[str, list[tuple[object, ...]]]:
    """The row of every sequence."""
    names = sorted(str(name) for (name,) in server.execute(SEQUENCES, (DATABASE,)))
    return {name: list(server.execute(f"SELECT * FROM {DATABASE}.{name}")) for name in names}


@pytest.mark.guarantee("applied")
@IN_LANES
def test_sequences_equal_those_of_a_native_replica(
    source_set: DatabaseSet,
    source: LoggedSession,
    mariadb_server: DatabaseServer,
    in_lanes: tuple[bool, ...],
) -> None:
    """Values from the cache and without, cycles, lower values, INSERT, ALTER, RENAME, and defaults of a table."""
    replica, done = source_set.replicas[0], 0
    applier = started(mariadb_server, apply_task(f"numbers_{len(in_lanes)}_{in_lanes[0]}"))
    for statement, is_large in zip(STATEMENTS, cycle(in_lanes), strict=False):
        source.run(statement)
        values = source.record_values()
        applier.process(LocalRecords(values[done:], first=done, is_large=is_large), ignore)
        done = len(values)
        assert replica.wait_for_position(source.server.gtid_position(), timeout_s=PATIENCE_S)
        states = _states(source.server)
        assert _states(replica) == states, statement
        assert _states(mariadb_server) == states, statement
    applier.close()
    rows = f"SELECT * FROM {DATABASE}.t, {DATABASE}.down ORDER BY t.id"
    assert mariadb_server.execute(rows) == source.server.execute(rows)
    # the source still has values in its cache
    assert mariadb_server.execute(f"SELECT NEXTVAL({DATABASE}.s)") == [states["s"][0][:1]]


def test_sequence_ahead_of_the_topic_is_right_after_safe_mode(
    source: LoggedSession, mariadb_server: DatabaseServer
) -> None:
    """The target has it from a load, which saw a later state."""
    _skip_statement(source, mariadb_server, "loaded_numbers")
    mariadb_server.execute(f"CREATE SEQUENCE {DATABASE}.s")
    mariadb_server.execute(f"SELECT SETVAL({DATABASE}.s, 400)")
    source.run("SELECT NEXTVAL(s)", "SELECT SETVAL(s, 31)")
    task = apply_task("loaded_numbers", safe_until=source.server.gtid_position())
    run_once(mariadb_server, task, RecordStream(values=source.record_values()))
    assert _states(mariadb_server) == _states(source.server)


def _skip_statement(source: LoggedSession, target: DatabaseServer, task: str) -> None:
    """The task passes CREATE SEQUENCE without executing it."""
    source.run(STATEMENTS[0])
    stream = RecordStream(values=source.record_values())
    run_once(target, apply_task(task, exclude=(f"{DATABASE}.s",)), stream)
    assert _states(target) == {}


@pytest.mark.parametrize("window_rows", [3, pytest.param(1000, marks=pytest.mark.chaos)])
def test_sequence_is_right_after_rolled_back_target_transactions(
    source: LoggedSession, mariadb_server: DatabaseServer, window_rows: int
) -> None:
    """A sequence is not rolled back. Each target transaction fails once before its commit, and all rows come again."""
    source.run(*STATEMENTS)
    task = apply_task(f"rolled_back_{window_rows}")
    apply_with_failures(mariadb_server, task, source.record_values(), window_rows=window_rows)
    assert _states(mariadb_server) == _states(source.server)


def test_sequence_without_its_statement_is_created_by_the_operator(
    source: LoggedSession, mariadb_server: DatabaseServer
) -> None:
    """Earlier versions did not apply CREATE SEQUENCE. The fix names the statement; the first row sets all options."""
    _skip_statement(source, mariadb_server, "later")
    source.run(STATEMENTS[1])
    task, stream = apply_task("later"), RecordStream(values=source.record_values())
    with pytest.raises(Fatal) as caught:
        run_once(mariadb_server, task, stream)
    assert caught.value.code == "MR-5012"
    mariadb_server.execute(caught.value.fix.partition(" on the target")[0])
    run_once(mariadb_server, task, stream)
    assert _states(mariadb_server) == _states(source.server)


def test_sequence_blocks_a_mysql_target_until_it_is_excluded(
    source: LoggedSession, mysql_server: DatabaseServer
) -> None:
    """MySQL has no sequences. The table that got its values from one is applied."""
    source.run(STATEMENTS[0], "CREATE TABLE t (id INT PRIMARY KEY)")
    source.run("INSERT INTO t VALUES (NEXTVAL(s))")
    stream, name = (
        RecordStream(flavour=Flavour.MARIADB, values=source.record_values()),
        "no_numbers",
    )
    with pytest.raises(Fatal) as caught:
        run_once(mysql_server, apply_task(name), stream)
    assert caught.value.code == "MR-5028"
    assert caught.value.context["table"] == f"{DATABASE}.s"
    run_once(mysql_server, apply_task(name, exclude=(f"{DATABASE}.s",)), stream)
    assert mysql_server.execute(f"SELECT id FROM {DATABASE}.t") == [(5,)]
    mysql_server.execute(f"DROP DATABASE {DATABASE}")
