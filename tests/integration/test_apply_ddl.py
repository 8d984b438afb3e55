"""DDL on real targets: ordered with the rows, executed once despite kills, blocked where an operator must decide."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from millrace.consumer.compare import Ends, compare_sets
from millrace.consumer.target.sessions import COORDINATOR
from millrace.consumer.turn.resident import forget, residents
from millrace.consumer.write import ddl, ddl_session
from millrace.deploy.servers import DatabaseServer, ServerOptions
from millrace.drivers.mysql.connection import MySqlSession, connect
from millrace.errors import Fatal, Retryable
from millrace.schemas.gtid import Flavour
from tests.fixtures.servers import NewServer
from tests.kit.apply.local import (
    LocalRecords,
    apply_task,
    endpoint_of,
    ignore,
    run_once,
    started,
)
from tests.kit.apply.tables import integer, table, text
from tests.kit.apply.topic import RecordStream
from tests.kit.waiting import PATIENCE_S

_names = count(1)


@pytest.fixture
def name(target_server: DatabaseServer) -> Iterator[str]:
    """Name of a database and task; both are dropped after the test."""
    made = f"ddl{next(_names)}"
    yield made
    target_server.execute(f"DROP DATABASE IF EXISTS {made}")


def test_rows_are_applied_under_their_own_table_structure(
    name: str, target_server: DatabaseServer
) -> None:
    """Create, insert, add a column, insert, rename, truncate, insert: in order, in lanes and in one lane."""
    for is_large in (True, False):
        stream = RecordStream()
        old = table(name, "t", integer("id"))
        new = table(name, "t", integer("id"), text("body"))
        moved = table(name, "u", integer("id"), text("body"))
        stream.ddl(f"CREATE DATABASE {name}")
        stream.ddl("CREATE TABLE t (id INT PRIMARY KEY)", database=name)
        stream.insert(old, {"id": 1})
        stream.ddl("ALTER TABLE t ADD COLUMN body VARCHAR(20) DEFAULT 'new'", database=name)
        stream.update(new, {"id": 1, "body": "new"}, {"id": 1, "body": "old"})
        stream.insert(new, {"id": 2, "body": "x"})
        stream.ddl("RENAME TABLE t TO u", database=name)
        stream.ddl("TRUNCATE u", database=name)
        stream.insert(moved, {"id": 3, "body": "y"})
        stream.ddl("CREATE INDEX b ON u (body)", database=name)
        stream.commit()
        applier = run_once(
            target_server, apply_task(f"{name}-{is_large}"), stream, is_large=is_large
        )
        assert applier.mark.seq == stream.seq
        assert target_server.execute(f"SELECT * FROM {name}.u") == [(3, "y")]
        assert target_server.execute(f"SHOW INDEX FROM {name}.u WHERE Key_name = 'b'")
        target_server.execute(f"DROP DATABASE {name}")


@pytest.mark.both_flavours
@pytest.mark.guarantee("ddl")
def test_ddl_runs_under_the_source_session_settings(
    name: str, target_server: DatabaseServer
) -> None:
    """DEFAULT CURRENT_TIMESTAMP uses the source's time and zone; foreign keys are unchecked where the source did so."""
    stream = RecordStream(flavour=target_server.flavour)
    stream.ddl(f"CREATE DATABASE {name}")
    session = {"time_zone": "+05:00", "foreign_key_checks": "0", "sql_mode": "ANSI_QUOTES"}
    stream.ddl(
        'CREATE TABLE "c" (p INT, FOREIGN KEY (p) REFERENCES later (id))',
        database=name,
        session=session,
    )
    stream.insert(table(name, "c", integer("p"), key=()), {"p": 1}, flags=2)
    stream.ddl(
        "ALTER TABLE c ADD COLUMN at DATETIME DEFAULT CURRENT_TIMESTAMP",
        database=name,
        session=session,
    )
    stream.commit()
    run_once(target_server, apply_task(name), stream)
    rows = target_server.execute(f"SELECT CAST(at AS CHAR) FROM {name}.c")
    assert rows == [("2023-11-15 03:13:20",)]


# tables, statement, question, its answer after one execution
_Crash = tuple[list[str], str, str, tuple[int, int]]
_CRASHES: dict[str, _Crash] = {
    "rename that swaps": (
        ["CREATE TABLE a (id INT PRIMARY KEY)", "CREATE TABLE b (id INT PRIMARY KEY)"],
        "RENAME TABLE a TO x, b TO a, x TO b",
        "SELECT (SELECT MAX(id) FROM a), (SELECT MAX(id) FROM b)",
        (2, 1),
    ),
    "unnamed index": (
        ["CREATE TABLE a (id INT PRIMARY KEY, v INT)", "CREATE TABLE b (id INT PRIMARY KEY)"],
        "ALTER TABLE a ADD INDEX (v)",
        "SELECT COUNT(*), 0 FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE() AND COLUMN_NAME = 'v'",
        (1, 0),
    ),
    "truncate": (
        ["CREATE TABLE a (id INT PRIMARY KEY)", "CREATE TABLE b (id INT PRIMARY KEY)"],
        "TRUNCATE TABLE a",
        "SELECT (SELECT COUNT(*) FROM a), (SELECT MAX(id) FROM b)",
        (0, 2),
    ),
}


class _KilledError(Exception):
    """Simulates kill -9 at a fault point."""


@pytest.mark.both_flavours
@pytest.mark.parametrize("point", ["AFTER_INTENT", "AFTER_EXECUTE"])
@pytest.mark.parametrize("case", _CRASHES)
def test_ddl_executes_once_wherever_the_driver_dies(
    name: str,
    target_server: DatabaseServer,
    case: str,
    point: str,
) -> None:
    """After a kill past the intent the next run executes the statement; after a kill past the statement it does not."""
    _kill_and_resume(name, target_server, crash=_CRASHES[case], point=point)


def _kill_and_resume(
    name: str, target_server: DatabaseServer, *, crash: _Crash, point: str
) -> None:
    tables, sql, question, wanted = crash
    target_server.execute(f"CREATE DATABASE {name}")
    for statement in tables:
        target_server.execute(statement, db=name)
    target_server.execute("INSERT INTO a (id) VALUES (1)", db=name)
    target_server.execute("INSERT INTO b (id) VALUES (2)", db=name)
    stream = RecordStream()
    stream.ddl(sql, database=name)

    def die(passed: str) -> None:
        if passed == getattr(ddl, point):
            raise _KilledError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ddl, "fault_point", die)
        with pytest.raises(_KilledError):
            run_once(target_server, apply_task(name), stream)
    run_once(target_server, apply_task(name), stream)
    assert target_server.execute(question, db=name) == [wanted]
    left = target_server.execute(
        "SELECT COUNT(*) FROM millrace.ddl_intent WHERE task = %s", (name,)
    )
    assert left == [(0,)]


def test_statements_about_other_objects_are_recorded_and_skipped(
    name: str, target_server: DatabaseServer
) -> None:
    """Views and accounts are counted and not executed; account statements are stored without their secrets."""
    stream = RecordStream()
    stream.ddl(f"CREATE DATABASE {name}")
    stream.ddl("CREATE VIEW v AS SELECT 1", database=name)
    stream.ddl("CREATE USER u IDENTIFIED BY 'canary'")
    stream.commit()
    applier = run_once(target_server, apply_task(name), stream)
    assert (applier.figures.counts.ddl, applier.figures.counts.left_out) == (1, 2)
    found = target_server.execute(
        "SELECT kind, sql_text FROM millrace.left_out WHERE task = %s", (name,)
    )
    assert [kind for kind, _ in found] == ["view", "account"]
    assert "canary" not in str(found)
    assert target_server.execute("SELECT COUNT(*) FROM mysql.user WHERE user = 'u'") == [(0,)]


@pytest.mark.parametrize(
    ("sql", "code"),
    [("FROBNICATE TABLE t", "MR-5042"), ("ALTER TABLE nowhere ADD x INT", "MR-5041")],
)
def test_unexecutable_ddl_waits_for_an_operator(
    name: str, target_server: DatabaseServer, sql: str, code: str
) -> None:
    """Unknown and failing statements block the task until an operator writes a decision; then the task resumes."""
    stream = RecordStream()
    stream.ddl(f"CREATE DATABASE {name}")
    stream.ddl(sql, database=name)
    stream.ddl("CREATE TABLE t (id INT PRIMARY KEY)", database=name)
    stream.commit()
    for _ in range(2):
        applier = started(target_server, apply_task(name))
        with pytest.raises(Fatal) as caught:
            applier.process(LocalRecords(stream.values), ignore)
        applier.close()
        assert caught.value.code == code
        assert caught.value.context["seq"] == "2"
    session = connect(endpoint_of(target_server))
    session.query("UPDATE millrace.ddl_intent SET decision = 'done' WHERE task = %s", (name,))
    session.commit()
    session.close()
    applier = run_once(target_server, apply_task(name), stream)
    assert applier.mark.seq == 3
    assert target_server.execute(f"SELECT COUNT(*) FROM {name}.t") == [(0,)]


def test_ddl_that_capture_cannot_parse_blocks(name: str, target_server: DatabaseServer) -> None:
    """The statement may concern excluded tables too, so the target keeps its tables until an operator decides."""
    target_server.execute(f"CREATE DATABASE {name}")
    target_server.execute("CREATE TABLE mine (id INT PRIMARY KEY)", db=name)
    stream = RecordStream()
    stream.ddl(f"DROP TABLE {name}.mine, {name}.others", kind="unknown")
    applier = started(target_server, apply_task(name))
    with pytest.raises(Fatal, match="MR-5042"):
        applier.process(LocalRecords(stream.values), ignore)
    applier.close()
    assert target_server.execute(f"SELECT COUNT(*) FROM {name}.mine") == [(0,)]


def test_refused_ddl_executes_once_its_obstacle_is_removed(
    name: str, target_server: DatabaseServer
) -> None:
    """The operator creates the missing table; this difference does not count as a sign that the DDL was executed."""
    stream = RecordStream()
    stream.ddl(f"CREATE DATABASE {name}")
    stream.ddl("ALTER TABLE lost ADD x INT", database=name)
    stream.commit()
    for _ in range(2):
        applier = started(target_server, apply_task(name))
        with pytest.raises(Fatal, match="MR-5041"):
            applier.process(LocalRecords(stream.values), ignore)
        applier.close()
    target_server.execute("CREATE TABLE lost (id INT PRIMARY KEY)", db=name)
    run_once(target_server, apply_task(name), stream)
    assert [row[0] for row in target_server.execute(f"SHOW COLUMNS FROM {name}.lost")] == [
        "id",
        "x",
    ]


def test_renamed_parent_keeps_its_children_in_order(
    name: str, target_server: DatabaseServer
) -> None:
    """The child is in another database: Millrace reads its foreign key again although no statement named it."""
    other = f"{name}_c"
    target_server.execute(f"CREATE DATABASE {other}")
    try:
        stream = RecordStream()
        stream.ddl(f"CREATE DATABASE {name}")
        stream.ddl("CREATE TABLE p (id INT PRIMARY KEY)", database=name)
        stream.ddl(
            f"CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES {name}.p (id))",
            database=other,
        )
        stream.ddl("RENAME TABLE p TO q", database=name)
        applier = started(target_server, apply_task(name))
        applier.process(LocalRecords(stream.values), ignore)
        (foreign,) = applier.inventory.foreign_keys
        applier.close()
        assert foreign.parent == (name, "q")
    finally:
        target_server.execute(f"DROP DATABASE {other}")


def test_ddl_ignores_case_where_the_server_folds_names(new_server: NewServer) -> None:
    """With `lower_case_table_names=1`, later rows find the structure that the DDL made."""
    name = "folded"
    folds = ServerOptions(extra=("--lower-case-table-names=1",))
    server = new_server(Flavour.MARIADB, options=folds)
    stream = RecordStream()
    stream.ddl("CREATE DATABASE Folded")
    stream.ddl("CREATE TABLE Folded.T (id INT PRIMARY KEY)")
    stream.insert(table(name, "t", integer("id")), {"id": 1})
    stream.commit()
    stream.ddl("ALTER TABLE Folded.T ADD n INT", database=name)
    new = table(name, "t", integer("id"), integer("n", nullable=True))
    stream.insert(new, {"id": 2, "n": 3})
    stream.commit()
    run_once(server, apply_task(name), stream)
    assert server.execute("SELECT * FROM folded.t ORDER BY id") == [(1, None), (2, 3)]


def test_mixed_case_names_work_on_a_folding_target(
    new_server: NewServer, mariadb_server: DatabaseServer
) -> None:
    """With `lower_case_table_names=1`, rows of `Mixed.T` go to `mixed.t`, and the comparison finds them there."""
    folds = ServerOptions(extra=("--lower-case-table-names=1",))
    server = new_server(Flavour.MARIADB, options=folds)
    made, stream = table("Mixed", "T", integer("id"), integer("p", nullable=True)), RecordStream()
    statements = (
        "CREATE DATABASE Mixed",
        "CREATE TABLE Mixed.P (id INT PRIMARY KEY)",
        "CREATE TABLE Mixed.T (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES Mixed.P (id))",
    )
    for statement in statements:
        mariadb_server.execute(statement)
        stream.ddl(statement)
    stream.insert(table("Mixed", "P", integer("id")), {"id": 7})
    for number in (1, 2):
        stream.insert(made, {"id": number, "p": 7})
    stream.update(made, {"id": 2, "p": 7}, {"id": 3, "p": 7})
    stream.commit()
    mariadb_server.execute("INSERT INTO P VALUES (7)", db="Mixed")
    mariadb_server.execute("INSERT INTO T VALUES (1, 7), (3, 7)", db="Mixed")
    try:
        run_once(server, apply_task("mixed"), stream)
        assert server.execute("SELECT * FROM mixed.t ORDER BY id") == [(1, 7), (3, 7)]
        found = compare_sets(
            Ends(endpoint_of(mariadb_server), endpoint_of(server)), lambda name, _: name == "Mixed"
        )
        assert (found.differences, found.tables, found.rows) == ([], 2, 3)
        mariadb_server.execute("CREATE TABLE t (id INT PRIMARY KEY)", db="Mixed")
        found = compare_sets(
            Ends(endpoint_of(mariadb_server), endpoint_of(server)), lambda name, _: name == "Mixed"
        )
        assert found.difference_count == 1
    finally:
        mariadb_server.execute("DROP DATABASE IF EXISTS Mixed")


@pytest.mark.both_flavours
def test_create_table_select_gets_its_rows_from_records(
    name: str, target_server: DatabaseServer
) -> None:
    """On MySQL the statement begins a transaction; the target executes it alone and gets the rows from records."""
    stream = RecordStream()
    stream.ddl(f"CREATE DATABASE {name}")
    stream.ddl("CREATE TABLE t (id INT PRIMARY KEY) START TRANSACTION", database=name)
    stream.insert(table(name, "t", integer("id")), {"id": 1})
    stream.commit()
    run_once(target_server, apply_task(name), stream)
    assert target_server.execute(f"SELECT id FROM {name}.t") == [(1,)]


def test_exchange_that_waits_for_a_lock_executes_once(mariadb_server: DatabaseServer) -> None:
    """MariaDB takes WAIT before the clauses. A second EXCHANGE would undo the first."""
    crash = (
        [
            "CREATE TABLE a (id INT PRIMARY KEY) PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (9))",
            "CREATE TABLE b (id INT PRIMARY KEY)",
        ],
        "ALTER TABLE a WAIT 5 EXCHANGE PARTITION p WITH TABLE b",
        "SELECT (SELECT MAX(id) FROM a), (SELECT MAX(id) FROM b)",
        (2, 1),
    )
    _kill_and_resume("exchanged", mariadb_server, crash=crash, point="AFTER_EXECUTE")
    mariadb_server.execute("DROP DATABASE exchanged")


def test_answer_of_one_server_moves_no_mark_on_another(
    name: str, target_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address can lead to a promoted member meanwhile, which may not have the statement."""
    target_server.execute(f"CREATE DATABASE {name}")
    stream, run = RecordStream(), ddl_session.run_statement
    stream.ddl("CREATE TABLE t (id INT)", database=name)

    def move(session: MySqlSession, sql: str) -> None:
        run(session, sql)
        residents[name].sessions.kept[COORDINATOR].session.server = "promoted"

    monkeypatch.setattr(ddl, "run_statement", move)
    with pytest.raises(Retryable, match="is another server now"):
        run_once(target_server, apply_task(name), stream)
    intents = f"SELECT COUNT(*) FROM millrace.ddl_intent WHERE task = '{name}'"
    assert target_server.execute(intents) == [(1,)]
    monkeypatch.undo()
    forget(name)
    run_once(target_server, apply_task(name), stream)
    assert target_server.execute(intents) == [(0,)]


def test_half_done_create_or_replace_is_completed(mariadb_server: DatabaseServer) -> None:
    """MariaDB can crash inside CREATE OR REPLACE, when the old table is gone and the new one does not exist yet."""
    name = "halfreplaced"
    mariadb_server.execute(f"CREATE DATABASE {name}")
    stream = RecordStream()
    stream.ddl("CREATE OR REPLACE TABLE a (id INT PRIMARY KEY)", database=name)
    applier = started(mariadb_server, apply_task(name))
    state = json.dumps({f"{name}.a": "CREATE TABLE a (n INT)"})
    mariadb_server.execute(
        "INSERT INTO millrace.ddl_intent VALUES (%s, 1, '', %s, '')", (name, state)
    )
    applier.process(LocalRecords(stream.values), ignore)
    applier.close()
    assert mariadb_server.execute(f"SELECT COUNT(*) FROM {name}.a") == [(0,)]
    mariadb_server.execute(f"DROP DATABASE {name}")


def test_half_done_drop_of_tables_waits_for_an_operator(mariadb_server: DatabaseServer) -> None:
    """MariaDB can crash between two tables of one DROP; the state is neither old nor new, so the task blocks."""
    name = "halfdropped"
    mariadb_server.execute(f"CREATE DATABASE {name}")
    mariadb_server.execute("CREATE TABLE b (id INT PRIMARY KEY)", db=name)
    stream = RecordStream()
    stream.ddl("DROP TABLE a, b", database=name)
    applier = started(mariadb_server, apply_task(name))
    state = json.dumps({f"{name}.a": "CREATE TABLE a", f"{name}.b": "CREATE TABLE b"})
    mariadb_server.execute(
        "INSERT INTO millrace.ddl_intent VALUES (%s, 1, '', %s, '')", (name, state)
    )
    with pytest.raises(Fatal) as caught:
        applier.process(LocalRecords(stream.values), ignore)
    applier.close()
    assert caught.value.code == "MR-5040"
    mariadb_server.execute(f"DROP DATABASE {name}")


@pytest.mark.parametrize("is_own", [True, False], ids=["own", "other tasks"])
def test_start_kills_only_ddl_of_its_own_earlier_run(
    name: str, target_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch, *, is_own: bool
) -> None:
    """Task names of 63 characters that differ only in the last character or in case have separate locks."""
    task = f"{name:x<62}a"
    started_tasks = [task] if is_own else [f"{task[:-1]}b", task.upper()]
    reached, may_continue = threading.Event(), threading.Event()

    def hold(point: str) -> None:
        if point == ddl.AFTER_INTENT:
            reached.set()
            assert may_continue.wait(PATIENCE_S)

    monkeypatch.setattr(ddl, "fault_point", hold)
    stream = RecordStream()
    stream.ddl(f"CREATE DATABASE {name}")
    with ThreadPoolExecutor(1) as pool:
        earlier = pool.submit(run_once, target_server, apply_task(task), stream)
        try:
            assert reached.wait(PATIENCE_S)
            for each in started_tasks:
                started(target_server, apply_task(each)).close()
        finally:
            may_continue.set()
        failure = earlier.exception(PATIENCE_S)
    assert isinstance(failure, Retryable) if is_own else failure is None
    assert bool(target_server.execute(f"SHOW DATABASES LIKE '{name}'")) is not is_own
