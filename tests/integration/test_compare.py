"""Comparison of real servers: equal tables compare equal, and every kind of difference is found and named."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from millrace.codes import CATALOGUE
from millrace.consumer.compare import Comparison, Difference, Ends, chunk, compare_sets
from millrace.consumer.compare.tables import NO_COLUMN
from millrace.deploy.servers import DatabaseServer
from millrace.errors import Fatal
from tests.kit.apply.local import apply_task, endpoint_of, run_once
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import RecordStream

TABLES = (
    "CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(20), f FLOAT, b BLOB, e ENUM('x','y'), g GEOMETRY)",
    "INSERT INTO a VALUES (1, 'é', 0.1, x'00ff', 'x', ST_GeomFromText('POINT(1 2)'))",
    "INSERT INTO a (id) VALUES (2)",
    "CREATE TABLE bag (v INT)",
    "INSERT INTO bag VALUES (1), (1), (2)",
)


@pytest.fixture
def sides(
    target_server: DatabaseServer, mariadb_server: DatabaseServer
) -> Iterator[tuple[DatabaseServer, DatabaseServer]]:
    """Two servers with equal tables; each flavor is the source in turn."""
    with equal_tables(target_server, mariadb_server) as made:
        yield made


@contextmanager
def equal_tables(
    *servers: *tuple[DatabaseServer, DatabaseServer],
) -> Iterator[tuple[DatabaseServer, DatabaseServer]]:
    """Drop the databases after the block."""
    for server in servers:
        server.execute("DROP DATABASE IF EXISTS compared")
        server.execute("CREATE DATABASE compared DEFAULT CHARSET utf8mb4 COLLATE utf8mb4_bin")
        for statement in TABLES:
            server.execute(statement.replace("%", "%%"), db="compared")
    yield servers
    for server in servers:
        server.execute("DROP DATABASE compared")


def _compared(sides: tuple[DatabaseServer, DatabaseServer]) -> Comparison:
    return compare_sets(
        Ends(endpoint_of(sides[0]), endpoint_of(sides[1])),
        lambda database, _: database == "compared",
    )


def test_equal_tables_compare_equal(sides: tuple[DatabaseServer, DatabaseServer]) -> None:
    """Every row is counted, also across flavors and without a key."""
    found = _compared(sides)
    assert (found.tables, found.rows, found.difference_count) == (2, 5, 0)
    assert found.is_equal


# by table, what changes it on the target
CHANGES = {
    "a1": ("UPDATE a1 SET v = 'É' WHERE id = 1", "different", "1"),
    "a2": ("UPDATE a2 SET f = 0.10000001 WHERE id = 1", "different", "1"),
    "a3": ("UPDATE a3 SET v = '' WHERE id = 2", "different", "2"),
    "a4": ("DELETE FROM a4 WHERE id = 2", "missing", "2"),
    "a5": ("INSERT INTO a5 (id) VALUES (3)", "extra", "3"),
    "bag1": ("DELETE FROM bag1 WHERE v = 1 LIMIT 1", "missing", "1"),
    "bag2": ("INSERT INTO bag2 VALUES (2)", "extra", "2"),
    "bag3": ("ALTER TABLE bag3 CHANGE v w INT", "different", NO_COLUMN),
    "bag4": ("DROP TABLE bag4", "missing", "(the whole table)"),
    "more": ("CREATE TABLE more (v INT)", "extra", "(the whole table)"),
}


@pytest.mark.guarantee("compared")
def test_each_difference_is_named(sides: tuple[DatabaseServer, DatabaseServer]) -> None:
    """One change on the target is one difference, with its table and key."""
    for side in sides:
        for name in CHANGES.keys() - {"more"}:
            kind = name.rstrip("0123456789")
            side.execute(f"CREATE TABLE {name} LIKE {kind}", db="compared")
            side.execute(f"INSERT INTO {name} SELECT * FROM {kind}", db="compared")
    for statement, *_ in CHANGES.values():
        sides[1].execute(statement, db="compared")
    found = _compared(sides)
    wanted = {Difference(f"compared.{name}", what, key) for name, (_, what, key) in CHANGES.items()}
    assert set(found.differences) == wanted
    assert found.difference_count == len(found.differences) == len(wanted)


def test_differences_in_any_part_of_a_chunk_are_found(
    sides: tuple[DatabaseServer, DatabaseServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first and last rows of parts, a row that only one side has, and a row beyond all others."""
    monkeypatch.setattr(chunk, "PART_ROWS", 10)
    digits = "(SELECT 0 d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3)"
    rows = f"SELECT 1 + a.d + 4 * b.d + 16 * c.d, 'v' FROM {digits} a, {digits} b, {digits} c"
    for side in sides:
        side.execute("CREATE TABLE many (id INT PRIMARY KEY, v VARCHAR(9))", db="compared")
        side.execute(f"INSERT INTO many {rows}", db="compared")
    sides[1].execute("UPDATE many SET v = 'w' WHERE id IN (1, 10, 11, 60)", db="compared")
    sides[1].execute("DELETE FROM many WHERE id = 35", db="compared")
    sides[1].execute("INSERT INTO many VALUES (900, 'v')", db="compared")
    found = _compared(sides)
    assert {(one.what, one.key) for one in found.differences} == {
        *(("different", key) for key in ("1", "10", "11", "60")),
        ("missing", "35"),
        ("extra", "900"),
    }
    assert found.difference_count == 6


KEYS = (
    ("INT, v VARCHAR(10) CHARACTER SET utf8mb4", "4100, 'k0'", "4100,'k0'"),
    ("INT, v VARCHAR(10) CHARACTER SET utf8mb4", "9, '日本'", "9,'日本'"),
    ("BIGINT UNSIGNED, v VARCHAR(9) CHARACTER SET latin1", "5, 'é''\\\\'", "5,'é\\'\\\\'"),
    ("INT, v CHAR(3) CHARACTER SET sjis", "1, '日'", "1,'日'"),
    ("DECIMAL(5,2), v VARBINARY(5)", "-1.5, x'00FF'", "-1.50,x'00ff'"),
    (
        "DATETIME(1), v ENUM('a','日')",
        "'2026-01-02 03:04:05.6', '日'",
        "'2026-01-02 03:04:05.6','日'",
    ),
    ("INT, v SET('a','b')", "1, 'a,b'", "1,'a,b'"),
    ("BIT(9), v YEAR", "257, 2026", "257,2026"),
)


def test_keys_are_printed_as_literals(sides: tuple[DatabaseServer, DatabaseServer]) -> None:
    """As in MR-5010, in every character set; bytes as hex digits with a prefix."""
    for side in sides:
        for number, (types, *_) in enumerate(KEYS):
            columns = f"i {types}, PRIMARY KEY (i, v)"
            side.execute(f"CREATE TABLE k{number} ({columns})", db="compared")
    for side, what in zip(sides, ("missing", "extra"), strict=True):
        for number, (_, values, _) in enumerate(KEYS):
            side.execute(f"INSERT INTO k{number} VALUES ({values})", db="compared")
        assert _compared(sides).differences == [
            Difference(f"compared.k{number}", what, wanted)
            for number, (_, _, wanted) in enumerate(KEYS)
        ]
        for number in range(len(KEYS)):
            side.execute(f"DELETE FROM k{number}", db="compared")


def test_text_that_is_no_unicode_is_printed_as_bytes(
    sides: tuple[DatabaseServer, DatabaseServer],
) -> None:
    """A server converts half a surrogate pair of ucs2 to bytes that no reader of UTF-8 accepts."""
    for server in sides:
        server.execute("CREATE TABLE half (v VARCHAR(9) CHARACTER SET ucs2)", db="compared")
    sides[0].execute("INSERT INTO half VALUES (x'D83D')", db="compared")
    (found,) = _compared(sides).differences
    assert (found.table, found.what) == ("compared.half", "missing")
    assert "x'd83d'" in found.rows.source


def test_rows_without_a_key_are_printed_whole(
    sides: tuple[DatabaseServer, DatabaseServer],
) -> None:
    """NULL is a word, and only the beginning of a long value is printed, with its length and digest."""
    for side in sides:
        side.execute("CREATE TABLE k (i INT, v VARCHAR(9), b BLOB)", db="compared")
    values = "(NULL, '', 'x'), (NULL, 'n', NULL), (NULL, 'o', REPEAT('y', 50))"
    sides[0].execute(f"INSERT INTO k VALUES {values}", db="compared")
    digest = sides[0].execute("SELECT LEFT(SHA2(REPEAT('y', 50), 224), 12)")[0][0]
    assert sorted(found.key for found in _compared(sides).differences) == [
        "NULL,'',x'78'",
        "NULL,'n',NULL",
        f"NULL,'o',x'{'79' * 40}' … (50 bytes, digest {digest})",
    ]


def test_many_differences_are_counted_and_the_first_listed(
    sides: tuple[DatabaseServer, DatabaseServer],
) -> None:
    """The list is bounded; the count is not."""
    numbers = ", ".join(f"({number})" for number in range(100, 200))
    sides[0].execute(f"INSERT INTO a (id) VALUES {numbers}", db="compared")
    found = _compared(sides)
    assert found.difference_count == 100
    assert len(found.differences) == 20


def _applied(target: DatabaseServer, name: str) -> None:
    """A database on the target, created and filled by an apply task of this name."""
    stream = RecordStream(flavour=target.flavour)
    stream.ddl(f"CREATE DATABASE {name}")
    stream.ddl("CREATE TABLE t (id INT PRIMARY KEY)", database=name)
    stream.insert(table(name, "t", integer("id")), {"id": 1})
    stream.commit()
    run_once(target, apply_task(name), stream)


@pytest.mark.guarantee("compared")
def test_compare_finds_tables_dropped_only_on_the_source(
    sides: tuple[DatabaseServer, DatabaseServer],
) -> None:
    """The source dropped a database that the task has written, or the last table of a database.

    Other objects on the target are ignored.
    """
    source, target = sides
    name = f"dropped_{source.flavour}"
    _applied(target, name)

    def compared(task: str) -> list[Difference]:
        ends = endpoint_of(source), endpoint_of(target)
        return compare_sets(
            Ends(*ends), lambda database, _: database == name, written_by=task
        ).differences

    extra = [Difference(f"{name}.t", "extra", "(the whole table)")]
    try:
        assert compared(name) == extra
        assert compared("another") == []
        assert compare_sets(
            Ends(endpoint_of(source), endpoint_of(target)), lambda *_: False, written_by=name
        ).is_equal
        source.execute(f"CREATE DATABASE {name}")
        assert compared("another") == extra
    finally:
        for server in sides:
            server.execute(f"DROP DATABASE IF EXISTS {name}")


def test_task_that_never_ran_has_written_nothing(mariadb_server: DatabaseServer) -> None:
    """Its target has no Millrace tables yet. The next task that starts creates them."""
    mariadb_server.execute("DROP DATABASE IF EXISTS millrace")
    ends = endpoint_of(mariadb_server), endpoint_of(mariadb_server)
    assert compare_sets(Ends(*ends), lambda *_: False, written_by="new").is_equal


def test_values_beyond_max_allowed_packet_are_compared(
    sides: tuple[DatabaseServer, DatabaseServer],
) -> None:
    """A server returns NULL for a text beyond max_allowed_packet, but differences at the end are found."""
    limits = [(side, side.execute("SELECT @@GLOBAL.max_allowed_packet")[0][0]) for side in sides]
    tables = {"long_bytes": "LONGBLOB", "long_texts": "LONGTEXT CHARACTER SET latin1"}
    try:
        for side, end in zip(sides, "xy", strict=True):
            side.execute("SET GLOBAL max_allowed_packet = 1048576")
            text = f"CONCAT('\"', REPEAT('a', 700000), '{end}', '\"')"
            for name, column in tables.items():
                columns = f"id INT PRIMARY KEY, v {column}, w {column}"
                side.execute(f"CREATE TABLE {name} ({columns})", db="compared")
                rows = f"(1, {text}, {text}), (2, NULL, '1')"
                side.execute(f"INSERT INTO {name} VALUES {rows}", db="compared")
        assert _compared(sides).differences == [
            Difference(f"compared.{name}", "different", "1") for name in tables
        ]
    finally:
        for side, limit in limits:
            side.execute(f"SET GLOBAL max_allowed_packet = {limit}")


@pytest.mark.parametrize("hides", [0, 1], ids=["source", "target"])
def test_unreadable_table_is_a_missing_grant_not_a_difference(
    sides: tuple[DatabaseServer, DatabaseServer], hides: int
) -> None:
    """A server hides unreadable tables; after the suggested GRANT the tables compare equal."""
    server = sides[hides]
    server.execute("DROP USER IF EXISTS reader")
    server.execute("CREATE USER reader IDENTIFIED BY 'secret'")
    # enough for capture; the account sees a part of the database
    server.execute("GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO reader")
    server.execute("GRANT SELECT ON compared.bag TO reader")
    ends = [endpoint_of(side) for side in sides]
    ends[hides] = replace(ends[hides], user="reader", password="secret")

    def compared() -> Comparison:
        return compare_sets(Ends(ends[0], ends[1]), lambda database, _: database == "compared")

    try:
        with pytest.raises(Fatal) as caught:
            compared()
        assert caught.value.code == "MR-5007"
        entry = CATALOGUE["MR-5007"]
        assert "`millrace compare`" in entry.cause
        assert "SELECT" in entry.fix
        grant = caught.value.fix.partition(";")[0]
        assert grant == "GRANT SELECT ON `compared`.* TO `reader`@`%`"
        server.execute(grant)
        assert compared().is_equal
    finally:
        server.execute("DROP USER reader")
