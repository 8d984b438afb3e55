"""Statements about other objects than tables, from a binlog to a target: recorded, counted and not applied."""

from collections.abc import Iterator
from contextlib import suppress

import pymysql
import pytest

from millrace.deploy.servers import DatabaseServer
from millrace.schemas.gtid import Flavour
from tests.kit import canaries
from tests.kit.apply.local import apply_task, run_once
from tests.kit.apply.topic import RecordStream
from tests.kit.binlog.session import LoggedSession, logged, session

DATABASE = "left_out"
SECRET = "canary-of-left-out"
ACCOUNTS = ("left_a", "left_b", "left_r")

# kind, statement
STATEMENTS = (
    ("view", "CREATE VIEW v AS SELECT id FROM t"),
    ("view", "CREATE OR REPLACE VIEW v AS SELECT id, n FROM t"),
    ("view", "ALTER VIEW v AS SELECT n FROM t"),
    ("view", "CREATE VIEW gone AS SELECT 1 AS x"),
    ("view", "DROP VIEW gone"),
    (
        "routine",
        "CREATE PROCEDURE p() BEGIN INSERT INTO t VALUES (100, 0); DELETE FROM t WHERE id = 1; END",
    ),
    ("routine", "ALTER PROCEDURE p COMMENT 'DROP TABLE t'"),
    ("routine", "CREATE FUNCTION f(x INT) RETURNS INT DETERMINISTIC RETURN x + 1"),
    ("routine", "ALTER FUNCTION f COMMENT 'x'"),
    ("routine", "DROP FUNCTION f"),
    ("trigger", "CREATE TRIGGER more BEFORE INSERT ON t FOR EACH ROW SET NEW.n = NEW.n + 1"),
    (
        "trigger",
        "CREATE TRIGGER note AFTER INSERT ON t FOR EACH ROW INSERT INTO log VALUES (NEW.id)",
    ),
    (
        "trigger",
        "CREATE TRIGGER gone AFTER DELETE ON t FOR EACH ROW DELETE FROM log WHERE id = OLD.id",
    ),
    ("trigger", "DROP TRIGGER gone"),
    ("event", "CREATE EVENT e ON SCHEDULE EVERY 1 SECOND DISABLE DO DELETE FROM t"),
    ("event", "ALTER EVENT e COMMENT 'x'"),
    ("event", "CREATE EVENT gone ON SCHEDULE EVERY 1 DAY DISABLE DO DELETE FROM t"),
    ("event", "DROP EVENT gone"),
    (
        "routine",
        f"CREATE PROCEDURE change_it() SET PASSWORD FOR left_a = '{SECRET}4'",
    ),
    ("routine", "DROP PROCEDURE change_it"),
    (
        "event",
        "CREATE EVENT rotate ON SCHEDULE EVERY 1 DAY DISABLE"
        f" DO ALTER USER left_a IDENTIFIED BY '{SECRET}5'",
    ),
    ("trigger", f"CREATE TRIGGER keep BEFORE DELETE ON t FOR EACH ROW SET @p = '{SECRET}6'"),
    (
        "server",
        "CREATE SERVER left_s FOREIGN DATA WRAPPER mysql"
        f" OPTIONS (HOST 'h', USER 'u', PASSWORD '{SECRET}7', DATABASE 'd')",
    ),
    ("server", f"ALTER SERVER left_s OPTIONS (PASSWORD '{SECRET}8')"),
    ("server", "DROP SERVER left_s"),
    ("account", f"CREATE USER left_a IDENTIFIED BY '{SECRET}'"),
    ("account", f"ALTER USER left_a IDENTIFIED BY '{SECRET}2'"),
    ("account", "GRANT ALL ON *.* TO left_a"),
    ("account", "REVOKE ALL PRIVILEGES, GRANT OPTION FROM left_a"),
    ("account", "RENAME USER left_a TO left_b"),
    ("account", "SET PASSWORD FOR left_b = {password}"),
    ("account", "CREATE ROLE left_r"),
    ("account", "GRANT left_r TO left_b"),
    ("account", "DROP ROLE left_r"),
)
# (object, where the server lists it) after execution
OBJECTS = (
    "SELECT TABLE_NAME FROM information_schema.VIEWS WHERE TABLE_SCHEMA = 'left_out'",
    "SELECT ROUTINE_NAME FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = 'left_out'",
    "SELECT TRIGGER_NAME FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = 'left_out'",
    "SELECT EVENT_NAME FROM information_schema.EVENTS WHERE EVENT_SCHEMA = 'left_out'",
    "SELECT User FROM mysql.user WHERE User LIKE 'left\\_%'",
)


@pytest.fixture
def source(
    request: pytest.FixtureRequest, target_server: DatabaseServer
) -> Iterator[LoggedSession]:
    """A session on a server of the target's flavor; both servers drop the objects afterwards."""
    server = request.getfixturevalue(f"{target_server.flavour}_server")
    with logged(server, DATABASE) as found:
        yield found
    for side in (server, target_server):
        with session(side) as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
            for account in ACCOUNTS:
                with suppress(pymysql.Error):
                    cursor.execute(f"DROP USER {account}")


def test_views_routines_and_accounts_are_recorded_not_applied(
    source: LoggedSession, target_server: DatabaseServer
) -> None:
    """Views, routines, triggers, events and accounts are created, altered and dropped while rows are written."""
    hashed = (
        f"PASSWORD('{SECRET}3')" if source.server.flavour is Flavour.MARIADB else f"'{SECRET}3'"
    )
    source.run("CREATE TABLE t (id INT PRIMARY KEY, n INT)", "CREATE TABLE log (id INT)")
    source.run("INSERT INTO t VALUES (1, 1)")
    for number, (_, statement) in enumerate(STATEMENTS, 2):
        source.run(statement.format(password=hashed), f"INSERT INTO t VALUES ({number}, 0)")
    source.run("CALL p()", "DELETE FROM t WHERE id = 2")
    stream = RecordStream(flavour=source.server.flavour, values=source.record_values())
    applier = run_once(target_server, apply_task(DATABASE), stream)

    kept = target_server.execute(
        "SELECT kind, sql_text FROM millrace.left_out WHERE task = %s ORDER BY seq", (DATABASE,)
    )
    # MariaDB logs no statement about foreign servers
    is_logged = {"server": source.server.flavour is Flavour.MYSQL}
    logged_kinds = [kind for kind, _ in STATEMENTS if is_logged.get(kind, True)]
    assert [kind for kind, _ in kept] == logged_kinds
    assert applier.figures.counts.left_out == len(logged_kinds)
    secret = {"a password": SECRET}
    assert not any(canaries.shown(value, secret) for value in stream.values), "in the topic"
    assert not canaries.shown(str(kept), secret), "on the target"
    texts = {str(text) for kind, text in kept if kind == "account"}
    assert all(text.endswith(" …") and "left_" not in text for text in texts), "and no hash"
    for question in OBJECTS:
        assert source.rows(question), "the source has them"
        assert target_server.execute(question) == [], question
    for table in ("t", "log"):
        question = f"SELECT * FROM {DATABASE}.{table} ORDER BY 1"
        assert list(target_server.execute(question)) == source.rows(question)
    assert source.rows("SELECT COUNT(*) FROM log") > [(10,)], "the trigger has written"
