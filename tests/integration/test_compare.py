"""Comparison of real servers: equal is equal, every kind of difference is found and named."""

from collections.abc import Iterator

import pytest

from consumer.compare import Comparison, Difference, compare_sets
from deploy.servers import DatabaseServer
from tests.apply_local import endpoint_of

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
    """Two servers with equal tables; the source of each flavour in turn."""
    for server in (target_server, mariadb_server):
        server.execute("DROP DATABASE IF EXISTS compared")
        server.execute("CREATE DATABASE compared DEFAULT CHARSET utf8mb4")
        for statement in TABLES:
            server.execute(statement.replace("%", "%%"), db="compared")
    yield target_server, mariadb_server
    for server in (target_server, mariadb_server):
        server.execute("DROP DATABASE compared")


def _compared(sides: tuple[DatabaseServer, DatabaseServer]) -> Comparison:
    return compare_sets(
        endpoint_of(sides[0]), endpoint_of(sides[1]), lambda database, _: database == "compared"
    )


def test_equal_tables_are_equal(sides: tuple[DatabaseServer, DatabaseServer]) -> None:
    """Every row is counted, also across flavours and without a key."""
    found = _compared(sides)
    assert (found.tables, found.rows, found.difference_count) == (2, 5, 0)
    assert found.is_equal


@pytest.mark.parametrize(
    ("statement", "wanted"),
    [
        ("UPDATE a SET v = 'É' WHERE id = 1", ("compared.a", "different", "1")),
        ("UPDATE a SET f = 0.10000001 WHERE id = 1", ("compared.a", "different", "1")),
        ("UPDATE a SET v = '' WHERE id = 2", ("compared.a", "different", "2")),
        ("DELETE FROM a WHERE id = 2", ("compared.a", "missing", "2")),
        ("INSERT INTO a (id) VALUES (3)", ("compared.a", "extra", "3")),
        ("DELETE FROM bag WHERE v = 1 LIMIT 1", ("compared.bag", "missing", "1")),
        ("INSERT INTO bag VALUES (2)", ("compared.bag", "extra", "2")),
        ("ALTER TABLE bag ADD w INT", ("compared.bag", "different", "(column w)")),
        ("DROP TABLE bag", ("compared.bag", "missing", "(the whole table)")),
        ("CREATE TABLE more (v INT)", ("compared.more", "extra", "(the whole table)")),
    ],
)
def test_each_difference_is_named(
    sides: tuple[DatabaseServer, DatabaseServer], statement: str, wanted: tuple[str, str, str]
) -> None:
    """One change on the target is one difference, with its table and key."""
    sides[1].execute(statement, db="compared")
    found = _compared(sides)
    assert found.differences == [Difference(*wanted)]
    assert found.difference_count == 1


def test_many_differences_are_counted_and_the_first_named(
    sides: tuple[DatabaseServer, DatabaseServer],
) -> None:
    """The list is bounded, the count is not."""
    numbers = ", ".join(f"({number})" for number in range(100, 200))
    sides[0].execute(f"INSERT INTO a (id) VALUES {numbers}", db="compared")
    found = _compared(sides)
    assert found.difference_count == 100
    assert len(found.differences) == 20
