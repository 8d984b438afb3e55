"""DDL session settings, from a source's binlog to a target of the same flavor: both tables are equal.

The servers' own mysqlbinlog and mariadb-binlog judge which settings a statement depends on: they print each as SET.
"""

import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from datetime import datetime
from itertools import count

import pymysql
import pytest

from millrace.consumer.load.prepare import create_tables as create_loaded
from millrace.consumer.load.tables import SourceTable
from millrace.consumer.target.fence import raise_fence
from millrace.consumer.target.intents import decide_intent
from millrace.consumer.target.progress import Owner, create_tables
from millrace.consumer.target.sessions import STATEMENTS, Sessions
from millrace.consumer.write.ddl_session import entered
from millrace.deploy.servers import DatabaseServer
from millrace.deploy.servers.programs import MARIADB_SUITES, mariadb_programs, mysql_programs
from millrace.drivers.mysql.catalog import read_inventory
from millrace.drivers.mysql.connection import MySqlSession, connect
from millrace.errors import Fatal, Fenced
from millrace.schemas.gtid import Flavour
from tests.kit.apply.local import apply_task, endpoint_of, run_once
from tests.kit.apply.topic import RecordStream
from tests.kit.binlog.session import LoggedSession, logged
from tests.kit.capture.converter import raw_records

pytestmark = pytest.mark.both_flavours

_names = count(1)


@pytest.fixture
def source(
    request: pytest.FixtureRequest, target_server: DatabaseServer
) -> Iterator[LoggedSession]:
    """A session on a server of the target's flavor; both servers drop its database afterwards."""
    server = request.getfixturevalue(f"{target_server.flavour}_server")
    name = f"session{next(_names)}"
    with logged(server, name) as made:
        yield made
    target_server.execute(f"DROP DATABASE IF EXISTS {name}")


def apply_all(source: LoggedSession, target: DatabaseServer) -> None:
    """Execute everything that was logged on the target."""
    values = [value for batch in source.conversion().batches() for _, value in raw_records(batch)]
    stream = RecordStream(flavour=target.flavour, values=values)
    run_once(target, apply_task(source.database), stream)


def test_charset_without_collation_keeps_other_session_settings(
    source: LoggedSession, target_server: DatabaseServer
) -> None:
    """A latin1 client, a time zone, and on MariaDB the default collations of character sets."""
    if target_server.flavour is Flavour.MARIADB:
        source.run("SET character_set_collations = 'utf8mb4=uca1400_as_ci,latin1=latin1_bin'")
    source.run("SET NAMES latin1", "SET time_zone = '+05:00'")
    source.cursor.connection.encoding = "latin1"
    source.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v ENUM('é'), w CHAR(1) CHARACTER SET latin1,"
        " at TIMESTAMP NOT NULL DEFAULT '2023-11-15 00:00:00') CHARSET=utf8mb4",
    )
    source.run("INSERT INTO t (id) VALUES (1)")
    source.run("ALTER TABLE t ADD n VARCHAR(3) CHARACTER SET utf8mb4, MODIFY at DATETIME")
    source.cursor.connection.encoding = "utf8"
    source.run("SET NAMES utf8mb4")
    apply_all(source, target_server)
    (shown,) = source.rows("SHOW CREATE TABLE t")
    assert "'é'" in str(shown[1])
    assert target_server.execute("SHOW CREATE TABLE t", db=source.database) == [shown]
    rows = source.rows("SELECT CAST(at AS CHAR) FROM t")
    assert rows == [("2023-11-15 00:00:00",)]
    assert target_server.execute("SELECT CAST(at AS CHAR) FROM t", db=source.database) == rows


def test_ambiguous_ddl_waits_for_an_operator(
    source: LoggedSession, target_server: DatabaseServer
) -> None:
    """A statement whose meaning is not exactly known is not executed, and the error says why."""
    source.run("CREATE TABLE t (id INT)")
    apply_all(source, target_server)
    stream = RecordStream(flavour=target_server.flavour)
    stream.ddl(
        "DROP TABLE t", database=source.database, session={"in_doubt": "no text"}, kind="unknown"
    )
    with pytest.raises(Fatal, match="no text") as caught:
        run_once(target_server, apply_task(f"{source.database}-doubt"), stream)
    assert caught.value.code == "MR-5042"
    assert target_server.execute("SHOW TABLES", db=source.database) == [("t",)]


def test_rows_get_the_ddl_time_to_the_microsecond(
    source: LoggedSession, target_server: DatabaseServer
) -> None:
    """DEFAULT CURRENT_TIMESTAMP(6) of a new column, also for times that a double cannot represent."""
    source.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    for number, micros in enumerate((1, 123456, 123457, 500_000, 999_999)):
        source.run(
            f"SET timestamp = 1763774801.{micros:06}3",
            f"ALTER TABLE t ADD c{number} DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6)",
        )
    source.run("SET timestamp = DEFAULT")
    source.run("ALTER TABLE t ADD now DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6)")
    apply_all(source, target_server)
    rows = source.rows("SELECT * FROM t")
    assert [value.microsecond for value in rows[0][1:6] if isinstance(value, datetime)] == [
        1,
        123456,
        123457,
        500_000,
        999_999,
    ]
    assert target_server.execute("SELECT * FROM t", db=source.database) == rows


# by flavour: statements of one session each. "!": it fails on the source, which may have logged a part of it
_BOTH: list[Sequence[str]] = [
    (  # WL#9687, MDEV-29225
        "SET explicit_defaults_for_timestamp = OFF, sql_mode = ''",
        "CREATE TABLE old_way (id INT PRIMARY KEY, ts TIMESTAMP, ts2 TIMESTAMP)",
        "INSERT INTO old_way (id) VALUES (1)",
        "CREATE TABLE filled (id INT PRIMARY KEY)",
        "INSERT INTO filled VALUES (1)",
        "ALTER TABLE filled ADD COLUMN a TIMESTAMP",
        "SET explicit_defaults_for_timestamp = ON",
        "ALTER TABLE filled ADD COLUMN b TIMESTAMP NULL",
    ),
    (  # bugs.mysql.com 34732
        "CREATE TABLE numbers (k CHAR(1) PRIMARY KEY)",
        "INSERT INTO numbers VALUES ('a'), ('b'), ('c')",
        "SET auto_increment_increment = 10, auto_increment_offset = 3",
        "ALTER TABLE numbers ADD COLUMN n INT NOT NULL AUTO_INCREMENT UNIQUE",
    ),
    (
        "CREATE TABLE months (id INT PRIMARY KEY)",
        "INSERT INTO months VALUES (1)",
        "SET lc_time_names = 'de_AT', timestamp = 1736000000",
        "ALTER TABLE months ADD COLUMN m VARCHAR(20) DEFAULT (MONTHNAME(NOW()))",
    ),
    (  # bugs.mysql.com 56318
        "SET innodb_strict_mode = OFF",
        "CREATE TABLE options (id INT PRIMARY KEY) ROW_FORMAT = COMPRESSED KEY_BLOCK_SIZE = 7",
        "CREATE TABLE wide (id INT PRIMARY KEY, "
        + ", ".join(f"c{number} CHAR(40) CHARACTER SET latin1" for number in range(300))
        + ")",
        "INSERT INTO wide (id, c299) VALUES (1, 'last')",
    ),
    (  # these settings change nothing in a statement that changes definitions
        "SET sql_auto_is_null = 1, autocommit = 0, pseudo_thread_id = 77",
        "SET collation_database = latin1_bin, sql_notes = 0",
        "CREATE TABLE harmless (id INT PRIMARY KEY, v CHAR(3))",
        "ALTER TABLE harmless ADD COLUMN w CHAR(3) DEFAULT 'é'",
        "SET sql_mode = 'REAL_AS_FLOAT,PIPES_AS_CONCAT,HIGH_NOT_PRECEDENCE'",
        "CREATE TABLE modes (id INT PRIMARY KEY, r REAL, d CHAR(2) DEFAULT ('a' || 'b'))",
        "COMMIT",
    ),
]
_MYSQL: list[Sequence[str]] = [
    (
        "SET sql_mode = 'INTERPRET_UTF8_AS_UTF8MB4'",
        "CREATE TABLE four (v VARCHAR(9) CHARACTER SET utf8)",
        "INSERT INTO four VALUES ('\U0001f600')",
    ),
    (
        "SET sql_mode = 'TIME_TRUNCATE_FRACTIONAL'",
        "CREATE TABLE times (t DATETIME(3))",
        "INSERT INTO times VALUES ('2024-01-01 00:00:00.9')",
        "ALTER TABLE times MODIFY t DATETIME",
    ),
]
_MARIADB: list[Sequence[str]] = [
    (
        "CREATE TABLE had (id INT PRIMARY KEY, a INT, KEY ia (a))",
        "SET sql_if_exists = ON",
        "RENAME TABLE absent TO absent2, had TO has",
        "ALTER TABLE absent ADD COLUMN x INT",
        "DROP INDEX ia ON absent",
        "DROP SEQUENCE no_sequence",
        "DROP TABLE absent, absent3",
    ),
    (  # MDEV-35207, MDEV-35499: what failed statements leave
        "CREATE TABLE twice (a INT)",
        "INSERT INTO twice VALUES (1), (1)",
        "CREATE TABLE gone1 (a INT PRIMARY KEY)",
        "CREATE TABLE gone2 (a INT PRIMARY KEY)",
        "CREATE TABLE gone3 (a INT)",
        "!CREATE OR REPLACE TABLE gone1 (a INT PRIMARY KEY) SELECT a FROM twice",
        "!CREATE OR REPLACE TABLE gone2 (b INT, b INT)",
        "!DROP TABLE gone3, missing",
        "CREATE TABLE gone2 (c INT)",
    ),
    (
        "SET sql_mode = 'MAXDB'",
        "CREATE TABLE maxdb (a TIMESTAMP, b INT)",
        "SET sql_mode = 'EMPTY_STRING_IS_NULL'",
        "CREATE TABLE empties (a VARCHAR(3) DEFAULT '')",
    ),
    (
        "CREATE TABLE checked (id INT PRIMARY KEY)",
        "INSERT INTO checked VALUES (1)",
        "SET check_constraint_checks = OFF",
        "ALTER TABLE checked ADD COLUMN c INT DEFAULT -7 CHECK (c > 0)",
        "INSERT INTO checked VALUES (2, -2), (3, -3), (4, -4)",
        "SET check_constraint_checks = ON",
        "UPDATE checked SET c = 3 WHERE id = 3",
        "DELETE FROM checked WHERE id = 4",
        "INSERT INTO checked VALUES (5, 5), (6, 6)",
        "SET check_constraint_checks = OFF",
        "UPDATE checked SET c = -c WHERE id > 4",
    ),
]


def _tables(server: DatabaseServer, database: str) -> dict[str, object]:
    names = [str(name) for (name,) in server.execute("SHOW TABLES", db=database)]
    return {
        name: (
            server.execute(f"SHOW CREATE TABLE {name}", db=database),
            server.execute(f"SELECT * FROM {name}", db=database),
        )
        for name in names
    }


def test_statement_has_the_effect_that_its_session_gave_it(
    source: LoggedSession, target_server: DatabaseServer
) -> None:
    """Also of settings that no binlog has, and of statements that failed. The public reports are in the comments."""
    own = _MARIADB if target_server.flavour is Flavour.MARIADB else _MYSQL
    for statements in (*_BOTH, *own):
        with closing(_new_session(source)) as connection, connection.cursor() as cursor:
            for statement in statements:
                if statement.startswith("!"):
                    with pytest.raises(pymysql.MySQLError):
                        cursor.execute(statement[1:])
                else:
                    cursor.execute(statement)
    apply_all(source, target_server)
    found = _tables(source.server, source.database)
    assert len(found) > len(_BOTH)
    for name, table in _tables(target_server, source.database).items():
        assert table == found.pop(name), name
    assert not found


def test_load_creates_a_table_as_its_definition_says(
    source: LoggedSession, target_server: DatabaseServer
) -> None:
    """The target's strict mode of InnoDB and its defaults of TIMESTAMP columns do not matter."""
    with closing(_new_session(source)) as connection, connection.cursor() as cursor:
        cursor.execute("SET innodb_strict_mode = OFF, explicit_defaults_for_timestamp = ON")
        cursor.execute(
            "CREATE TABLE t (id INT PRIMARY KEY, ts TIMESTAMP NOT NULL) ROW_FORMAT = COMPRESSED KEY_BLOCK_SIZE = 7"
        )
    ((_, text),) = source.rows("SHOW CREATE TABLE t")
    target_server.execute("SET GLOBAL explicit_defaults_for_timestamp = OFF")
    try:
        with (
            closing(connect(endpoint_of(target_server))) as target,
            closing(
                connect(replace(endpoint_of(target_server), port=source.server.port))
            ) as reader,
        ):
            create_tables(target)
            owner = raise_fence(target, task=source.database, epoch=1)
            table = read_inventory(reader, with_folds=False).tables[source.database, "t"]
            wanted = SourceTable((source.database, "t"), table)
            create_loaded(reader, target, owner, [(wanted, str(text))])
    finally:
        target_server.execute("SET GLOBAL explicit_defaults_for_timestamp = DEFAULT")
    assert target_server.execute("SHOW CREATE TABLE t", db=source.database) == [("t", text)]


def test_text_that_utf8_does_not_hold_blocks_with_its_fix(
    source: LoggedSession, target_server: DatabaseServer
) -> None:
    """MDEV-8334: `utf8` is utf8mb4 by old_mode, which no binlog has. The row arrives when the column is altered."""
    is_mariadb = target_server.flavour is Flavour.MARIADB
    source.run("SET old_mode = ''" if is_mariadb else "SET sql_mode = ''")
    charset = "utf8" if is_mariadb else "utf8mb4"
    source.run(f"CREATE TABLE four (id INT PRIMARY KEY, v VARCHAR(9) CHARACTER SET {charset})")
    apply_all(source, target_server)
    narrow = "ALTER TABLE four MODIFY v VARCHAR(9) CHARACTER SET utf8mb3"
    target_server.execute(narrow, db=source.database)  # already so on MariaDB
    source.run("INSERT INTO four VALUES (1, '\U0001f600')")
    with pytest.raises(Fatal) as caught:
        apply_all(source, target_server)
    assert caught.value.code == "MR-5011"
    assert f"v of {source.database}.four: utf8mb4 on the source" in caught.value.fix
    target_server.execute(narrow.replace("utf8mb3", "utf8mb4"), db=source.database)
    apply_all(source, target_server)
    rows = source.rows("SELECT * FROM four")
    assert target_server.execute("SELECT * FROM four", db=source.database) == rows


def test_success_of_a_statement_that_failed_on_the_source_blocks(
    source: LoggedSession, target_server: DatabaseServer
) -> None:
    """Every run stops, until an operator decides. The same error, or another number of a duplicate, passes."""
    apply_all(source, target_server)
    stream = RecordStream(flavour=target_server.flavour)
    failed = {"error_code": "1586"}
    stream.ddl("CREATE TABLE t (a INT)", database=source.database, kind="create_table")
    rows = ("INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (1)")
    run_once(target_server, apply_task(f"{source.database}-failed"), stream)
    for row in rows:
        target_server.execute(row, db=source.database)
    for sql in ("ALTER TABLE t ADD UNIQUE (a)", "ALTER TABLE t ADD KEY (a)"):
        stream.ddl(sql, database=source.database, session=failed, kind="alter_table")
    for _ in range(2):
        with pytest.raises(Fatal) as caught:
            run_once(target_server, apply_task(f"{source.database}-failed"), stream)
        assert caught.value.code == "MR-5040"
        assert caught.value.context["seq"] == "3"
    with closing(connect(endpoint_of(target_server))) as session:
        decide_intent(session, f"{source.database}-failed", seq=3, decision="done")
    run_once(target_server, apply_task(f"{source.database}-failed"), stream)


def test_target_ignores_its_own_rules_for_keys(
    source: LoggedSession, target_server: DatabaseServer
) -> None:
    """MySQL can require a primary key, or add one; MariaDB has neither setting."""
    names = ("sql_require_primary_key", "sql_generate_invisible_primary_key")
    is_mysql = target_server.flavour is Flavour.MYSQL
    for name in names if is_mysql else ():
        target_server.execute(f"SET GLOBAL {name} = 1")
    try:
        source.run("CREATE TABLE keyless (a INT)")
        apply_all(source, target_server)
    finally:
        for name in names if is_mysql else ():
            target_server.execute(f"SET GLOBAL {name} = DEFAULT")
    assert _tables(target_server, source.database) == _tables(source.server, source.database)


def _new_session(source: LoggedSession) -> "pymysql.connections.Connection[pymysql.cursors.Cursor]":
    return pymysql.connect(
        unix_socket=str(source.server.socket),
        user="root",
        database=source.database,
        charset="utf8mb4",
        autocommit=True,
        ssl_disabled=True,
    )


# Settings that the programs print and the target's session does not have, and why.
_LEFT_TO_THE_TARGET = {
    "autocommit": "a statement that changes definitions commits itself",
    "sql_auto_is_null": "only SELECT depends on it",
    "system_versioning_insert_history": "only changes of rows depend on it",
    "pseudo_thread_id": "names temporary tables, which have no record",
    "character_set_client": "the text is converted to UTF-8",
    "collation_database": "only LOAD DATA depends on it",
    "default_table_encryption": "encryption at rest is the target's own",
    "sql_require_primary_key": "the source has accepted the statement, so it is always off",
    "original_commit_timestamp": "of the source transaction",
    "original_server_version": "of the source transaction",
    "immediate_server_version": "of the source transaction",
    "gtid_domain_id": "of the GTID",
    "gtid_seq_no": "of the GTID",
    "gtid_next": "the GTID",
    "server_id": "of the GTID",
    "skip_parallel_replication": "only the order of replicas",
}
# They would change the GTIDs of other tests, or make capture stop (MR-6513).
_NOT_CHANGED = re.compile("gtid|server_id|^binlog_alter_two_phase$|^sql_log_bin$")
_PRINTED = re.compile(
    r"^(?:/\*!\d+ |/\*M!\d+ )?SET (@@session\..*?)(?:\*/)?/\*!\*/;$", re.IGNORECASE
)
_CHANGE = re.compile(r"COMMENT 'setting (\d+)'")


def _other_values(name: str, value: str) -> list[str]:
    """Other values of a session variable, as SQL."""
    if name == "sql_mode":
        return [str(1 << bit) for bit in range(40)]
    if name in ("time_zone", "character_set_collations", "old_mode"):
        return ["'+03:00'", "'utf8mb4=utf8mb4_bin'", "''"]
    if name.startswith("lc_"):
        return ["'de_AT'"]
    if value in ("ON", "OFF"):
        return ["OFF" if value == "ON" else "ON"]
    if value.isdigit():
        return [str(int(value) + 1)]
    if "utf8mb4" in value:
        return ["latin1", "latin1_bin"]
    return []


def _change_each_setting(source: LoggedSession) -> None:
    """One statement for each other value of each setting, each in a new session."""
    number = count()
    for name, value in source.rows("SHOW SESSION VARIABLES"):
        if _NOT_CHANGED.search(str(name)):
            continue
        for other in _other_values(str(name), str(value)):
            with (
                closing(_new_session(source)) as connection,
                connection.cursor() as cursor,
                suppress(pymysql.MySQLError),  # it cannot be set, or the statement not be executed
            ):
                cursor.execute(f"SET SESSION {name} = {other}")
                comment = f"COMMENT 'setting {next(number)}'"
                cursor.execute(f"ALTER TABLE t MODIFY a TIMESTAMP(6) NULL {comment}")
                if "encryption" in str(name):
                    cursor.execute(f"ALTER DATABASE {source.database} CHARACTER SET utf8mb4")


def _printed_settings(source: LoggedSession) -> dict[str, dict[str, str]]:
    """The settings that the server's own program prints before each ``_CHANGE``, by the change's number."""
    if source.server.flavour is Flavour.MARIADB:
        program = mariadb_programs(next(reversed(MARIADB_SUITES))).mariadb_binlog
    else:
        mysql = mysql_programs()
        assert mysql is not None
        assert mysql.mysqlbinlog is not None
        program = mysql.mysqlbinlog
    file = source.server.binlog_dir / source.file
    text = subprocess.check_output([program, "--base64-output=DECODE-ROWS", file], text=True)
    settings: dict[str, str] = {}
    found = {}
    for line in text.splitlines():
        if line.startswith("# at "):
            settings.pop("character_set_collations", None)  # printed with each event that has it
        if printed := _PRINTED.match(line):
            for part in printed[1].lower().split("@@session.")[1:]:
                name, _, value = part.rstrip(", ").partition("=")
                settings[name.strip()] = value.strip()
        if change := _CHANGE.search(line):
            found[change[1]] = dict(settings)
    return found


def _values_of(session: MySqlSession, names: Sequence[str]) -> dict[str, object]:
    (row,) = session.query("SELECT " + ", ".join(f"@@SESSION.{name}" for name in names))
    return dict(zip(names, row, strict=True))


@pytest.mark.guarantee("ddl")
def test_session_has_each_setting_that_the_servers_program_prints(
    source: LoggedSession, target_server: DatabaseServer
) -> None:
    """Each session setting of the server was changed before a statement; a new one that is printed fails the test."""
    source.run("CREATE TABLE t (a TIMESTAMP(6) NULL)")
    _change_each_setting(source)
    records = {
        change[1]: record
        for record in source.conversion().statements()
        if (change := _CHANGE.search(record.statement.sql))
    }
    printed = _printed_settings(source)
    assert printed.keys() == records.keys()
    assert len(printed) > 100
    names = {name for settings in printed.values() for name in settings}
    carried = sorted(names - _LEFT_TO_THE_TARGET.keys())
    states = {
        tuple((name, settings[name]) for name in carried if name in settings): number
        for number, settings in printed.items()
    }
    assert len(states) > 20, states
    for state, number in states.items():
        with closing(connect(endpoint_of(target_server))) as session:
            for name, value in state:
                session.query(f"SET SESSION {name} = {value}")
            wanted = _values_of(session, [name for name, _ in state])
        with closing(connect(endpoint_of(target_server))) as session:
            sessions = Sessions(endpoint_of(target_server), Owner("session", 1, 1))
            mine = entered(session, sessions, records[number])
            assert _values_of(mine, [name for name, _ in state]) == wanted, state


def test_fenced_run_executes_nothing_in_a_new_session(
    source: LoggedSession, target_server: DatabaseServer
) -> None:
    """Between the old session and the new one the lock is free, so another run may have begun."""
    source.run("CREATE TABLE a (i INT)", "SET foreign_key_checks = 0", "CREATE TABLE b (i INT)")
    first, *_ = source.conversion().statements()
    other = replace(first, statement=replace(first.statement, session={}))
    task, endpoint = f"{source.database}-fenced", endpoint_of(target_server)
    with closing(connect(endpoint)) as session:
        create_tables(session)
        owner = raise_fence(session, task=task, epoch=1)
        sessions = Sessions(endpoint, owner)
        old = entered(sessions.for_lane(STATEMENTS), sessions, first)
        raise_fence(session, task=task, epoch=1)
        with pytest.raises(Fenced, match="run"):
            entered(old, sessions, other)
    sessions.close()
