"""Comparison of tables whose definitions differ, on real servers: what differs is named, and the rows are compared."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from millrace.consumer.compare import Change, Comparison, Difference, Ends, Rules, compare_sets
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.connection import Endpoint
from millrace.drivers.mysql.grants import Role, needed_grants
from millrace.schemas.gtid import Flavour
from tests.kit.apply.local import endpoint_of

NAME = "structured"
READER = "structure_reader"

# of each table the columns that both flavours accept
WIDE = (
    "CREATE TABLE parent (id INT PRIMARY KEY, n INT, UNIQUE KEY by_n (n))",
    "CREATE TABLE wide (id INT UNSIGNED NOT NULL AUTO_INCREMENT, ti TINYINT(1) DEFAULT '1', y YEAR DEFAULT 2020,"
    " z INT(5) UNSIGNED ZEROFILL DEFAULT 7, bi BIGINT, de DECIMAL(10,2) NOT NULL DEFAULT '1.50', f FLOAT DEFAULT 1.5,"
    " d DOUBLE DEFAULT 2, b BIT(3) DEFAULT b'101', da DATE DEFAULT '2020-01-01', ti2 TIME(2),"
    " dt DATETIME(3) DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3), ts TIMESTAMP NULL DEFAULT NULL,"
    " ts2 TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, v VARCHAR(20) NOT NULL DEFAULT '',"
    " v2 VARCHAR(20) CHARACTER SET latin1 DEFAULT 'NULL', v3 VARCHAR(20) DEFAULT 'it''s \\\\ \"1\"',"
    " v4 CHAR(9) NOT NULL,"
    " v5 VARCHAR(9) CHARACTER SET utf8mb3 COLLATE utf8mb3_bin DEFAULT '7', bb BINARY(3) DEFAULT 'a', vb VARBINARY(9),"
    " e ENUM('A','b') DEFAULT 'b', s SET('x','Y') DEFAULT 'x,Y', tx MEDIUMTEXT, bl BLOB, g GEOMETRY NOT NULL,"
    " gs INT GENERATED ALWAYS AS (bi + 1) STORED, gv INT AS (bi * 2) VIRTUAL, parent INT,"
    " PRIMARY KEY (id), UNIQUE KEY u (v(5), bi), KEY k (de), FULLTEXT KEY ft (tx), SPATIAL KEY sp (g),"
    " CONSTRAINT positive CHECK (de > 1), CONSTRAINT refers FOREIGN KEY (parent) REFERENCES parent (id)"
    " ON DELETE CASCADE) COMMENT 'c'",
    "CREATE TABLE ranged (id INT NOT NULL, d DATE NOT NULL, PRIMARY KEY (id, d)) PARTITION BY RANGE (TO_DAYS(d))"
    " SUBPARTITION BY HASH (id) SUBPARTITIONS 2"
    " (PARTITION p0 VALUES LESS THAN (730000), PARTITION p1 VALUES LESS THAN MAXVALUE)",
    "CREATE TABLE listed (id INT NOT NULL PRIMARY KEY) PARTITION BY LIST COLUMNS(id)"
    " (PARTITION p0 VALUES IN (1,2), PARTITION p1 VALUES IN (3))",
    "CREATE TABLE keyed (id INT NOT NULL PRIMARY KEY) PARTITION BY KEY (id) PARTITIONS 3",
    "CREATE TABLE plain (id INT NOT NULL PRIMARY KEY)",
)
# what only one flavour prints in this way
OF_FLAVOUR = {
    Flavour.MYSQL: (
        "CREATE TABLE own (id INT NOT NULL PRIMARY KEY, j JSON, a VARCHAR(9) COLLATE utf8mb4_0900_ai_ci,"
        " b VARCHAR(9) COLLATE utf8mb4_0900_as_cs, c VARCHAR(9) COLLATE utf8mb4_0900_bin)",
    ),
    Flavour.MARIADB: (
        "CREATE TABLE own (id INT NOT NULL PRIMARY KEY, j JSON, v VARCHAR(9) DEFAULT concat('a', 'b'), w UUID,"
        " i INT INVISIBLE)",
    ),
}
# a statement on the target, and the place that it changes
STATEMENTS = {
    "ALTER TABLE wide MODIFY de DECIMAL(10,3) NOT NULL DEFAULT '1.50'": "column de",
    "ALTER TABLE wide MODIFY bi BIGINT UNSIGNED": "column bi",
    "ALTER TABLE wide MODIFY v4 CHAR(9) CHARACTER SET latin1 NOT NULL": "column v4",
    "ALTER TABLE wide MODIFY v4 CHAR(9) COLLATE utf8mb4_unicode_ci NOT NULL": "column v4",
    "ALTER TABLE wide MODIFY v4 CHAR(9)": "column v4",
    "ALTER TABLE wide MODIFY v3 VARCHAR(20) DEFAULT 'its'": "column v3",
    "ALTER TABLE wide MODIFY v2 VARCHAR(20) CHARACTER SET latin1 DEFAULT NULL": "column v2",
    "ALTER TABLE wide MODIFY v5 VARCHAR(9) CHARACTER SET utf8mb3 COLLATE utf8mb3_bin DEFAULT '8'": "column v5",
    "ALTER TABLE wide ALTER y SET DEFAULT 2021": "column y",
    "ALTER TABLE wide MODIFY dt DATETIME(3) DEFAULT CURRENT_TIMESTAMP(3)": "column dt",
    "ALTER TABLE wide MODIFY e ENUM('a','b') DEFAULT 'b'": "column e",
    "ALTER TABLE wide MODIFY tx LONGTEXT": "column tx",
    "ALTER TABLE wide MODIFY gs INT": "column gs",
    "ALTER TABLE wide MODIFY ti2 TIME(2) AFTER id": "column order",
    "ALTER TABLE wide ADD more INT": "column more",
    "ALTER TABLE wide DROP COLUMN vb": "column vb",
    "ALTER TABLE wide DROP KEY k": "key k",
    "ALTER TABLE wide DROP KEY k, ADD KEY k (de, y)": "key k",
    "ALTER TABLE wide DROP KEY u, ADD UNIQUE KEY u (v(6), bi)": "key u",
    "ALTER TABLE wide DROP KEY u, ADD KEY u (v(5), bi)": "key u",
    "ALTER TABLE wide DROP KEY ft": "key ft",
    "ALTER TABLE wide ADD KEY added (y)": "key added",
    "ALTER TABLE wide DROP FOREIGN KEY refers": "foreign key refers",
    "ALTER TABLE wide DEFAULT CHARACTER SET latin1": "collation",
    "ALTER TABLE wide DROP CONSTRAINT positive": "check positive",
    "ALTER TABLE ranged DROP PARTITION p1": "partition p1",
    "ALTER TABLE keyed COALESCE PARTITION 1": "partition p2",
    "ALTER TABLE plain PARTITION BY HASH (id) PARTITIONS 1": "partitioning, partition p0",
    "ALTER DATABASE DEFAULT CHARACTER SET latin1": "collation",
}
MIXED = {"check positive": "checks"}


@pytest.fixture
def sides(
    target_server: DatabaseServer, mariadb_server: DatabaseServer
) -> Iterator[tuple[DatabaseServer, DatabaseServer]]:
    """Two servers with an empty database."""
    with _empty(target_server, mariadb_server) as made:
        yield made


@contextmanager
def _empty(*servers: DatabaseServer) -> Iterator[tuple[DatabaseServer, DatabaseServer]]:
    for server in servers:
        server.execute(f"DROP DATABASE IF EXISTS {NAME}")
        server.execute(f"CREATE DATABASE {NAME} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")
    yield servers[0], servers[1]
    for server in servers:
        server.execute(f"DROP DATABASE IF EXISTS {NAME}")


def _do(server: DatabaseServer, *statements: str) -> None:
    for statement in statements:
        server.execute(statement.replace("%", "%%"), db=NAME)


def _create(sides: tuple[DatabaseServer, DatabaseServer], *statements: str) -> None:
    """On the source, and on the target as a load creates tables: by the definition that the source prints."""
    source, target = sides
    target.execute("SET GLOBAL foreign_key_checks = 1")
    for statement in statements:
        _do(source, statement)
        table = statement.split()[2]
        ((_, text),) = source.execute(f"SHOW CREATE TABLE {NAME}.{table}")
        _do(target, str(text))


def _compared(
    sides: tuple[DatabaseServer, DatabaseServer],
    rules: Rules | None = None,
    source: Endpoint | None = None,
) -> Comparison:
    return compare_sets(
        Ends(source or endpoint_of(sides[0]), endpoint_of(sides[1])),
        lambda database, _: database == NAME,
        rules=rules,
    )


def _places(found: Comparison) -> list[str]:
    return [change.place for change in found.structure]


def test_tables_that_a_load_creates_have_no_difference_of_structure(
    mariadb_server: DatabaseServer, target_server: DatabaseServer, mysql_server: DatabaseServer
) -> None:
    """Within each flavor and across them, by the words that each server prints."""
    for source, target in (
        (target_server, mariadb_server),
        (mysql_server, mariadb_server),
        (mariadb_server, mysql_server),
    ):
        with _empty(source, target) as sides:
            _create(sides, *WIDE)
            if (source.flavour, target.flavour) != (Flavour.MARIADB, Flavour.MYSQL):
                _create(sides, *OF_FLAVOUR[source.flavour])
            found = _compared(sides)
            assert (found.structure, found.difference_count, found.tables) == (
                [],
                0,
                len(sides[0].execute(f"SHOW TABLES FROM {NAME}")),
            )
            assert found.is_equal


@pytest.mark.both_flavours
def test_each_difference_of_structure_is_named(
    sides: tuple[DatabaseServer, DatabaseServer],
) -> None:
    """One statement on the target is one difference at its place, also across flavors."""
    is_mixed = sides[0].flavour is not sides[1].flavour
    left = {
        statement: MIXED.get(place, place) if is_mixed else place
        for statement, place in STATEMENTS.items()
    }
    while left:
        batch = {place: statement for statement, place in left.items()}  # one for each place
        with _empty(*sides):
            _create(sides, *WIDE[:3], *WIDE[4:])
            _do(sides[1], *batch.values())
            found = _compared(sides)
            assert sorted(_places(found)) == sorted(", ".join(batch).split(", "))
            assert (found.structure_count, found.difference_count) == (len(found.structure), 0)
            assert not found.is_equal
        left = {
            statement: place for statement, place in left.items() if statement not in batch.values()
        }


@pytest.mark.both_flavours
@pytest.mark.guarantee("compared")
def test_rows_are_compared_in_the_columns_of_both_sides(
    sides: tuple[DatabaseServer, DatabaseServer],
) -> None:
    """A column of one side, or one in another case, hides no wrong row, with a key, without and with another key."""
    for server in sides:
        _do(
            server,
            "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9), w INT)",
            "CREATE TABLE bag (v INT, w INT)",
            "CREATE TABLE other (id INT PRIMARY KEY, v INT, w INT)",
            *(f"INSERT INTO {table} VALUES (1, '1', 1), (2, '2', 2)" for table in ("t", "other")),
            "INSERT INTO bag VALUES (1, 1), (1, 1), (2, 2)",
        )
    _do(
        sides[1],
        "ALTER TABLE t ADD extra INT DEFAULT 5 FIRST, DROP COLUMN w, CHANGE v V VARCHAR(9)",
        "ALTER TABLE bag ADD extra INT DEFAULT 5",
        "ALTER TABLE other DROP PRIMARY KEY, ADD tenant INT NOT NULL DEFAULT 0, ADD PRIMARY KEY (tenant, id)",
    )
    found = _compared(sides)
    assert (found.difference_count, found.rows) == (0, 7)
    assert [(change.table.partition(".")[2], change.place) for change in found.structure] == [
        ("bag", "column extra"),
        ("other", "key PRIMARY"),
        ("other", "column tenant"),
        ("t", "column w"),
        ("t", "column extra"),
    ]
    _do(
        sides[1],
        "UPDATE t SET v = 'wrong' WHERE id = 2",
        "DELETE FROM bag WHERE v = 1 LIMIT 1",
        "DELETE FROM other WHERE id = 1",
    )
    assert _compared(sides).differences == [
        Difference(f"{NAME}.bag", "missing", "1,1"),
        Difference(f"{NAME}.other", "missing", "1"),
        Difference(f"{NAME}.t", "different", "2"),
    ]
    ignored = _compared(sides, Rules(with_structure=False))
    assert (ignored.structure, ignored.difference_count) == ([], 3)


@pytest.mark.both_flavours
def test_views_triggers_and_routines_are_only_named(
    sides: tuple[DatabaseServer, DatabaseServer],
) -> None:
    """They are listed, and count as no difference. A filter of tables leaves out what is not theirs."""
    for server in sides:
        _do(server, "CREATE TABLE t (id INT PRIMARY KEY)", "CREATE VIEW same AS SELECT 1 AS one")
    _do(
        sides[0],
        "CREATE VIEW v AS SELECT id FROM t",
        "CREATE PROCEDURE p() SELECT 1",
        "CREATE EVENT e ON SCHEDULE EVERY 1 YEAR DISABLE DO SELECT 1",
    )
    _do(
        sides[1],
        "CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW SET NEW.id = NEW.id",
        "CREATE FUNCTION f() RETURNS INT DETERMINISTIC RETURN 1",
    )
    found = _compared(sides)
    assert found.structure == [
        Change(NAME, "event e", "exists", ""),
        Change(NAME, "function f", "", "exists"),
        Change(NAME, "procedure p", "exists", ""),
        Change(NAME, "trigger tr", "", "exists"),
        Change(NAME, "view v", "exists", ""),
    ]
    assert (found.structure_count, found.is_equal) == (0, True)
    ends = Ends(endpoint_of(sides[0]), endpoint_of(sides[1]))
    only = compare_sets(ends, lambda *key: key == (NAME, "t"))
    assert _places(only) == ["trigger tr"]


@pytest.mark.both_flavours
def test_account_with_the_rights_of_a_comparison_sees_every_definition(
    sides: tuple[DatabaseServer, DatabaseServer],
) -> None:
    """The rights that `millrace grants print` has for a comparison hide no place from it."""
    source = sides[0]
    _create(sides, *WIDE)
    source.execute(f"DROP USER IF EXISTS {READER}")
    source.execute(f"CREATE USER {READER} IDENTIFIED BY 'secret'")
    try:
        for grant in needed_grants(Role.COMPARE, source.flavour, (NAME,)):
            source.execute(grant.sql(f"{READER}"))
        reader = replace(endpoint_of(source), user=READER, password="secret")
        assert _compared(sides, source=reader).structure == []
    finally:
        source.execute(f"DROP USER {READER}")
