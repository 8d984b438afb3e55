"""Executable comments: both servers judge what ``plain_text`` makes of a statement, and which tables it names."""

import random
from collections.abc import Iterator

import pymysql
import pytest

from millrace.deploy.servers import DatabaseServer
from millrace.schemas.gtid import Flavour
from millrace.schemas.server_version import ServerVersion
from millrace.schemas.sql.statement import classify
from millrace.schemas.sql.tokens import SqlMode, plain_text
from tests.fixtures.servers import FLAVOURS
from tests.kit.apply.local import apply_task, run_once
from tests.kit.apply.topic import RecordStream
from tests.kit.binlog.session import Cursor, logged, session

pytestmark = pytest.mark.both_flavours

SEED = 23
COUNT = 400
MARKS = ("/*!", "/*!", "/*!", "/*M!", "/*M!", "/*m!", "/*", "/*+", "/*! ", "/*T!")
VERSIONS = (
    *("", "", "50000 ", "50699 ", "50700", "80000 ", "80000", "080000 ", "0800001 ", "90704 "),
    *("90705 ", "99999 ", "99997 ", "100000 ", "100500", "110405 ", "110406 ", "999999 ", "5000 "),
)
ENDS = (*["*/"] * 20, "", "*/*/")
BETWEEN = (*["", " "] * 8, "\t", "\v", "\f", "\r\n", "\n", "-- x\n", "#*/\n", "--\x01/*!\n", "\x7f")
NO_BREAK_SPACES = "CREATE\xa0TABLE \xa0blanks\xa0(`\xa0id` INT PRIMARY KEY) COMMENT '\xa0é'"


@pytest.fixture
def other(request: pytest.FixtureRequest, server: DatabaseServer) -> DatabaseServer:
    """The server of the other flavor, or the same one if there is only one flavor."""
    flavour = Flavour.MYSQL if server.flavour is Flavour.MARIADB else Flavour.MARIADB
    if flavour not in FLAVOURS:
        return server
    found = request.getfixturevalue(f"{flavour}_server")
    assert isinstance(found, DatabaseServer)
    return found


def commented(chance: random.Random, parts: list[str], depth: int = 0) -> str:
    """These parts with comments around and between some of them, and in them."""
    text = ""
    for part in parts:
        text += chance.choice(BETWEEN)
        if chance.random() < 0.4 / (1 + 2 * depth):
            inside = [part, *chance.choices(parts, k=chance.randint(0, 2))]
            content = commented(chance, inside, depth + 1)
            text += chance.choice(MARKS) + chance.choice(VERSIONS) + content + chance.choice(ENDS)
        else:
            text += part
    return text


def answer(cursor: Cursor, sql: str) -> object:
    """The value of a SELECT; None if the server refuses it."""
    try:
        cursor.execute(sql)
        return cursor.fetchall()
    except pymysql.Error:
        return None


def warned_tables(cursor: Cursor, sql: str) -> list[str] | None:
    """The missing tables that DROP TABLE IF EXISTS reports; None if the server refuses the statement."""
    try:
        cursor.execute(sql)
    except pymysql.Error:
        return None
    cursor.execute("SHOW WARNINGS")
    rows = [str(row[2]) for row in cursor.fetchall()]
    return sorted(
        name for row in rows if "Unknown table" in row for name in row.split("'")[1].split(",")
    )


def version_of(cursor: Cursor) -> ServerVersion:
    """The server's own version."""
    cursor.execute("SELECT VERSION()")
    ((text,),) = cursor.fetchall()
    return ServerVersion.parse(str(text))


@pytest.mark.parametrize("modes", ["", "ANSI_QUOTES", "NO_BACKSLASH_ESCAPES"])
def test_plain_text_has_the_value_of_the_commented_one(
    modes: str, server: DatabaseServer, other: DatabaseServer
) -> None:
    """A sum of powers of two shows which parts a server executed; the other server executes the same.

    A statement that the source refuses is never logged.
    """
    chance = random.Random(f"{SEED} {modes}")
    mode = SqlMode("ANSI_QUOTES" in modes, "NO_BACKSLASH_ESCAPES" in modes)
    texts = ["'*/'", "'/*!'", r"'\\'", "'a''*/'", '"/*"', r"'\'", r"'\'*/'", r'"\""']
    if mode.ansi_quotes:
        texts = ["'*/'", "'/*!'", "'\"'", r"'\'/*!'"]
    accepted = 0
    with session(server) as here, session(other) as there:
        version = version_of(here)
        for cursor in (here, there):
            cursor.execute("SET sql_mode = %s", (modes,))
        for _ in range(COUNT):
            parts = [f"+{1 << bit}" for bit in range(5)]
            parts.insert(chance.randrange(5), f"+LENGTH({chance.choice(texts)})*64")
            sql = f"SELECT 1 {commented(chance, parts)}"
            value = answer(here, sql)
            if value is None:
                continue
            accepted += 1
            plain = plain_text(sql, version, mode)
            assert answer(here, plain) == value, (sql, plain)
            assert answer(there, plain) == value, (sql, plain)
    assert accepted > COUNT // 10


def test_classifier_names_the_tables_that_the_server_drops(server: DatabaseServer) -> None:
    """Names with blanks, letters and digits of Unicode among them."""
    chance = random.Random(SEED)
    names = [
        "a",
        "b2",
        "\u3000c",
        "d\xa0",
        "`e*/`",
        "`/*!f`",
        "\u1680g",
        "\u0661",
        "\u2003h",
        "`i j`",
    ]
    accepted = 0
    with logged(server, "dropped") as source:
        version = version_of(source.cursor)
        source.run("SET SESSION sql_log_bin = 0")
        for _ in range(COUNT):
            chosen = chance.sample(names, 4)
            parts = [chosen[0], *(f", {name}" for name in chosen[1:])]
            sql = f"DROP TABLE IF EXISTS {commented(chance, parts)}"
            tables = warned_tables(source.cursor, sql)
            if tables is None:
                continue
            accepted += 1
            statement = classify(plain_text(sql, version), "dropped")
            assert sorted(f"{t.database}.{t.table}" for t in statement.tables) == tables, sql
    assert accepted > COUNT // 10


def statements_of(flavour: Flavour) -> Iterator[str]:
    """Every way in which a statement with comments reaches the binlog; each creates or renames tables."""
    options = (
        "/*!99999 COMMENT 'no' */ /*!50000 COMMENT 'both' */"
        " /*!80000 COMMENT 'mysql' */ /*M! COMMENT 'mariadb' */"
    )
    yield f"CREATE TABLE direct (id INT PRIMARY KEY) {options}"
    yield f'PREPARE p FROM "CREATE TABLE prepared (id INT PRIMARY KEY) {options}"'
    yield "EXECUTE p"
    yield f"CREATE PROCEDURE q() CREATE TABLE called (id INT PRIMARY KEY) {options}"
    yield "CALL q()"
    yield "DROP PROCEDURE q"
    if flavour is Flavour.MARIADB:
        yield f'EXECUTE IMMEDIATE "CREATE TABLE immediate (id INT PRIMARY KEY) {options}"'
    yield "CREATE TABLE mine (id INT PRIMARY KEY)"
    yield "CREATE TABLE secret (id INT PRIMARY KEY)"
    yield "RENAME TABLE mine TO yours /*M! , secret TO shown */"
    yield "CREATE TABLE parted (id INT PRIMARY KEY) /*!50100 PARTITION BY HASH (id) PARTITIONS 2 */"


def test_other_flavor_executes_what_the_source_executed(
    server: DatabaseServer, other: DatabaseServer
) -> None:
    """Tables, comments and partitions are those of the source, whatever the target would make of the comments."""
    question = (
        "SELECT TABLE_NAME, TABLE_COMMENT, CREATE_OPTIONS LIKE '%%partitioned%%'"
        " FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'commented' ORDER BY 1"
    )
    with logged(server, "commented") as source:
        source.run(*statements_of(server.flavour), "SET NAMES latin1")
        # here the no-break space separates words
        source.cursor.connection.query(NO_BREAK_SPACES.encode("latin-1"))
        source.run("SET NAMES utf8mb4")
        expected = source.rows(question.replace("%%", "%"))
        stream = RecordStream(flavour=server.flavour, values=source.record_values())
    try:
        run_once(other, apply_task("commented"), stream)
        assert list(other.execute(question.replace("%%", "%"))) == expected
    finally:
        with session(other) as cursor:
            cursor.execute("DROP DATABASE IF EXISTS commented")
