"""The SQL that Debezium and Millrace both read: every column type at its extremes, and a story of tables and DDL.

``types_script`` has the table ``t<n>`` for the n-th ``TypeCase``. Values are inserted and deleted, so that each is in
both images. ``story_script`` has keys of all kinds, transactions of several tables, and DDL between rows.
"""

# SQL in long lines is easier to read than in short ones:
# ruff: noqa: E501

from collections.abc import Callable, Iterator, Sequence

from millrace.schemas.gtid import Flavour
from tests.kit.type_values import TypeCase

TYPES, STORY = "kinds", "story"
LONG_VALUE = 300_000
WITH_DEFAULT = "with a default"
# columns of the story whose type makes a difference; "" is the table itself
_STORY_TYPES = {
    ("keyless", ""): "table without a key",
    ("numbers", ""): "sequence",
    ("zero", "dn"): "DATE",
    ("zero", "tsn"): "TIMESTAMP NULL",
    ("times", "t0"): "TIME",
    ("times", "t3"): "TIME",
    ("booleans", "b"): "BOOLEAN",
    ("synonyms", "r"): "REAL",
    ("byte_word", "b"): "CHAR BYTE",
    ("byte_word", ""): "CHAR BYTE",
    **dict.fromkeys(
        (
            *(("altered", "b"), ("altered", "c"), ("copied", "id"), ("copied", "note")),
            *(("invisible", "hidden"), ("like_two", "note"), ("two", "note"), ("zero", "ts")),
            *(
                ("defaults", each)
                for each in ("i", "s", "d", "ts", "dt", "b", "y", "tt", "n", "bo")
            ),
        ),
        WITH_DEFAULT,
    ),
}


def column_types(cases: Sequence[TypeCase]) -> Callable[[tuple[str, str], str], str]:
    """The type of a column of both scripts, for the comparison; the name of a column of the story without a type."""

    def type_of(table: tuple[str, str], column: str) -> str:
        database, name = table
        if database == TYPES:
            return "INT" if column == "id" else cases[int(name[1:])].ddl
        return _STORY_TYPES.get((name, column), f"{name}.{column}")

    return type_of


def types_script(cases: Sequence[TypeCase], *, tables_first: bool = False) -> Iterator[str]:
    """Statements for the tables ``t0``, ``t1``, … of these cases, one table after the other.

    ``tables_first``: all tables are made before the first row. A publish task ends its batch at each statement, and
    begins to write a topic in about a second, or hundreds of topics of one batch in some seconds.
    """
    tables = [
        f"CREATE TABLE {TYPES}.t{number} (id INT PRIMARY KEY, v {case.ddl}) ROW_FORMAT=DYNAMIC"
        for number, case in enumerate(cases)
    ]
    if tables_first:
        yield from tables
    for number, case in enumerate(cases):
        table = f"{TYPES}.t{number}"
        if not tables_first:
            yield tables[number]
        for place, value in enumerate((*case.values, "NULL"), 1):
            yield f"INSERT INTO {table} VALUES ({place}, {value})"
        yield f"UPDATE {table} SET v = NULL WHERE id = 1"
        yield f"UPDATE {table} SET id = id + 1000 WHERE id = 2"
        yield f"DELETE FROM {table} WHERE id < 1000"


def story_script(flavour: Flavour) -> Iterator[str]:
    """Statements in the database ``story``, one after the other."""
    yield from _keys()
    yield from _transactions()
    yield from _structure(flavour)
    yield from _special_rows(flavour)
    yield from _names()


def _keys() -> Iterator[str]:
    yield "CREATE TABLE story.one (id INT PRIMARY KEY, name VARCHAR(20), amount DECIMAL(10,2))"
    yield "INSERT INTO story.one VALUES (1, 'a', 1.50), (2, NULL, -0.01), (3, 'ü', 99999999.99)"
    yield "UPDATE story.one SET name = 'b' WHERE id = 1"
    yield "UPDATE story.one SET id = 10 WHERE id = 1"
    yield "UPDATE story.one SET id = id + 100, name = 'moved' ORDER BY id DESC"
    yield "DELETE FROM story.one WHERE id = 102"
    yield "REPLACE INTO story.one VALUES (103, 'replaced', 1), (200, 'new', 2)"
    yield "INSERT INTO story.one VALUES (200, 'x', 3), (201, 'y', 4) ON DUPLICATE KEY UPDATE amount = amount + 1"
    yield "CREATE TABLE story.composite (b VARCHAR(10), v INT, a INT, PRIMARY KEY (a, b))"
    yield "INSERT INTO story.composite VALUES ('x', 1, 1), ('y', 2, 1), ('x', 3, 2)"
    yield "UPDATE story.composite SET v = v + 1"
    yield "UPDATE story.composite SET b = 'z' WHERE a = 1 AND b = 'y'"
    yield "DELETE FROM story.composite WHERE a = 2"
    yield "CREATE TABLE story.keyless (a INT, b VARCHAR(10))"
    yield "INSERT INTO story.keyless VALUES (1, 'a'), (1, 'a'), (NULL, NULL)"
    yield "UPDATE story.keyless SET b = 'c' WHERE a = 1 LIMIT 1"
    yield "DELETE FROM story.keyless WHERE a IS NULL"
    yield "CREATE TABLE story.unique_only (id INT NOT NULL, code VARCHAR(10) NOT NULL, v INT, UNIQUE KEY (code))"
    yield "INSERT INTO story.unique_only VALUES (1, 'p', 1), (2, 'q', 2)"
    yield "UPDATE story.unique_only SET v = 9 WHERE id = 1"
    yield "DELETE FROM story.unique_only WHERE id = 2"
    yield "CREATE TABLE story.prefix_key (t TEXT NOT NULL, v INT, PRIMARY KEY (t(3)))"
    yield "INSERT INTO story.prefix_key VALUES ('abcdef', 1), ('xyz123', 2)"
    yield "UPDATE story.prefix_key SET v = 3"
    yield "DELETE FROM story.prefix_key"
    for number, (ddl, value, other) in enumerate(
        (
            ("BIGINT UNSIGNED", "18446744073709551615", "0"),
            ("DECIMAL(20,4)", "1234567890123456.7891", "-1"),
            ("DATETIME(6)", "'2024-02-29 12:30:01.123456'", "'1999-01-01'"),
            ("DATE", "'2024-02-29'", "'1000-01-01'"),
            ("BINARY(4)", "x'01020304'", "x'00'"),
            ("ENUM('a', 'b')", "'a'", "'b'"),
            ("CHAR(5)", "'é'", "'z'"),
            ("TIMESTAMP(3)", "'2024-02-29 12:30:01.123'", "'2000-01-01'"),
        )
    ):
        table = f"story.key{number}"
        yield f"CREATE TABLE {table} (k {ddl} NOT NULL PRIMARY KEY, v INT)"
        yield f"INSERT INTO {table} VALUES ({value}, 1)"
        yield f"UPDATE {table} SET k = {other}"
        yield f"DELETE FROM {table}"


def _transactions() -> Iterator[str]:
    yield "CREATE TABLE story.two (id INT PRIMARY KEY AUTO_INCREMENT, note VARCHAR(50) NOT NULL DEFAULT 'none')"
    yield "DO SLEEP(1)"  # the times of MariaDB's events are in seconds; the next differs from the last
    yield "START TRANSACTION"
    yield "INSERT INTO story.two (note) VALUES ('first'), ('second')"
    yield "UPDATE story.one SET amount = 7 WHERE id = 200"
    yield "INSERT INTO story.two () VALUES ()"
    yield "DELETE FROM story.two WHERE id = 1"
    yield "UPDATE story.two SET id = 50 WHERE id = 2"
    yield "COMMIT"
    yield "START TRANSACTION"
    yield "INSERT INTO story.two (note) VALUES ('kept')"
    yield "SAVEPOINT s"
    yield "INSERT INTO story.two (note) VALUES ('rolled back')"
    yield "ROLLBACK TO SAVEPOINT s"
    yield "INSERT INTO story.one VALUES (300, 'after', 0)"
    yield "COMMIT"
    yield "START TRANSACTION"
    yield "INSERT INTO story.two (note) VALUES ('never')"
    yield "ROLLBACK"
    yield "CREATE TABLE story.parent (id INT PRIMARY KEY) ENGINE=InnoDB"
    yield "CREATE TABLE story.child (id INT PRIMARY KEY, parent_id INT, FOREIGN KEY (parent_id) REFERENCES story.parent (id) ON DELETE SET NULL) ENGINE=InnoDB"
    yield "INSERT INTO story.parent VALUES (1), (2)"
    yield "INSERT INTO story.child VALUES (1, 1), (2, 2)"
    yield "UPDATE story.child SET parent_id = 2 WHERE id = 1"
    yield "DELETE FROM story.child"
    yield "DELETE FROM story.parent"
    yield "INSERT INTO story.two (note) WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500) SELECT CONCAT('row ', i) FROM n"


def _structure(flavour: Flavour) -> Iterator[str]:
    """DDL between rows."""
    yield "CREATE TABLE story.altered (id INT PRIMARY KEY, a INT)"
    yield "INSERT INTO story.altered VALUES (1, 1), (2, 2)"
    yield "ALTER TABLE story.altered ADD COLUMN b VARCHAR(10) NOT NULL DEFAULT 'dflt' AFTER id"
    yield "INSERT INTO story.altered VALUES (3, 'x', 3)"
    yield "UPDATE story.altered SET a = 20 WHERE id = 2"
    yield "ALTER TABLE story.altered MODIFY a BIGINT UNSIGNED, ADD c DATETIME(3) NULL DEFAULT '2000-01-01 00:00:00.5' FIRST"
    yield "INSERT INTO story.altered VALUES ('2024-01-01 10:00:00.123', 4, 'y', 18446744073709551615), (NULL, 5, 'z', NULL)"
    yield "ALTER TABLE story.altered CHANGE b label VARCHAR(40) CHARACTER SET latin1"
    yield "INSERT INTO story.altered (id, label) VALUES (6, 'é€')"
    yield "ALTER TABLE story.altered RENAME COLUMN a TO total"
    yield "UPDATE story.altered SET total = 1 WHERE id = 6"
    yield "ALTER TABLE story.altered DROP COLUMN c"
    yield "UPDATE story.altered SET total = 2 WHERE id = 6"
    yield "ALTER TABLE story.altered DROP PRIMARY KEY, ADD PRIMARY KEY (id, label)"
    yield "UPDATE story.altered SET total = 3 WHERE id = 6"
    yield "RENAME TABLE story.altered TO story.renamed"
    yield "UPDATE story.renamed SET total = 4 WHERE id = 6"
    yield "DELETE FROM story.renamed WHERE id < 3"
    yield "TRUNCATE TABLE story.renamed"
    yield "INSERT INTO story.renamed (id, label) VALUES (1, 'again')"
    yield "DROP TABLE story.renamed"
    yield "CREATE TABLE story.renamed (id INT, v INT)"
    yield "INSERT INTO story.renamed VALUES (1, 1)"
    yield "CREATE TABLE story.labels (id INT PRIMARY KEY, e ENUM('a', 'b'), s SET('x', 'y'))"
    yield "INSERT INTO story.labels VALUES (1, 'b', 'x,y')"
    yield "ALTER TABLE story.labels MODIFY e ENUM('z', 'a', 'b'), MODIFY s SET('y', 'w', 'x')"
    yield "INSERT INTO story.labels VALUES (2, 'b', 'x,w'), (3, 'z', '')"
    yield "UPDATE story.labels SET e = 'a' WHERE id = 1"
    yield "CREATE TABLE story.copied AS SELECT id, note FROM story.two WHERE id < 60"
    yield "INSERT INTO story.copied VALUES (1000, 'more')"
    yield "CREATE TABLE story.like_two LIKE story.two"
    yield "INSERT INTO story.like_two (note) VALUES ('like')"
    yield "CREATE TABLE story.switched (id INT PRIMARY KEY, v VARCHAR(10)) CHARACTER SET latin1"
    yield "INSERT INTO story.switched VALUES (1, 'é')"
    yield "ALTER TABLE story.switched CONVERT TO CHARACTER SET utf8mb4"
    yield "INSERT INTO story.switched VALUES (2, '😀')"
    if flavour is Flavour.MARIADB:
        yield "ALTER TABLE story.switched ADD COLUMN IF NOT EXISTS w INT"
        yield "INSERT INTO story.switched VALUES (3, 'w', 1)"
    yield "CREATE TABLE story.parted (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN MAXVALUE)"
    yield "INSERT INTO story.parted VALUES (1, 1), (20, 2)"
    yield "ALTER TABLE story.parted TRUNCATE PARTITION p0"
    yield "INSERT INTO story.parted VALUES (1, 2)"


def _special_rows(flavour: Flavour) -> Iterator[str]:
    yield "CREATE TABLE story.generated (id INT PRIMARY KEY, a INT, twice INT AS (a * 2) VIRTUAL, kept INT AS (a + 1) STORED)"
    yield "INSERT INTO story.generated (id, a) VALUES (1, 1), (2, NULL)"
    yield "UPDATE story.generated SET a = 5 WHERE id = 1"
    yield "DELETE FROM story.generated WHERE id = 1"
    yield "CREATE TABLE story.invisible (id INT PRIMARY KEY, shown INT, hidden INT INVISIBLE DEFAULT 4)"
    yield "INSERT INTO story.invisible (id, shown) VALUES (1, 1)"
    yield "INSERT INTO story.invisible (id, shown, hidden) VALUES (2, 1, 8)"
    yield "CREATE TABLE story.long_values (id INT PRIMARY KEY, t LONGTEXT, b LONGBLOB)"
    yield f"INSERT INTO story.long_values VALUES (1, REPEAT('ü😀x', {LONG_VALUE // 8}), REPEAT(x'00FF', {LONG_VALUE // 2}))"
    yield "UPDATE story.long_values SET b = NULL"
    yield "CREATE TABLE story.quoted (id INT PRIMARY KEY, t TEXT)"
    yield r"""INSERT INTO story.quoted VALUES (1, 'quote " slash / backslash \\ tab \t nl \n cr \r bell'), (2, CONCAT('ctl', CHAR(1), CHAR(31), CHAR(127), 'x'))"""
    yield "INSERT INTO story.quoted VALUES (3, _utf8mb4 x'E280A8E280A9EFBFBD'), (4, _utf8mb4 x'F09F9880'), (5, '<>&\\'')"
    yield "CREATE TABLE story.defaults (id INT PRIMARY KEY, i INT NOT NULL DEFAULT 7, s VARCHAR(10) DEFAULT 'x', d DECIMAL(5,2) NOT NULL DEFAULT 1.5, ts TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, dt DATETIME NOT NULL DEFAULT '2001-02-03 04:05:06', b BIT(3) DEFAULT b'101', y YEAR DEFAULT 2001, tt TIME DEFAULT '01:02:03', n BIGINT UNSIGNED NOT NULL DEFAULT 1, bo TINYINT(1) NOT NULL DEFAULT 1)"
    yield "INSERT INTO story.defaults (id, ts) VALUES (1, '2024-01-01 00:00:00')"
    yield "INSERT INTO story.defaults VALUES (2, 0, NULL, 0, '2024-01-01 00:00:01', '0000-00-00 00:00:00', NULL, NULL, NULL, 0, 0)"
    yield "CREATE TABLE story.times (id INT PRIMARY KEY, d DATE, t0 TIME, t3 TIME(3), t6 TIME(6), dt0 DATETIME, dt3 DATETIME(3), dt6 DATETIME(6), ts0 TIMESTAMP NULL, ts3 TIMESTAMP(3) NULL, ts6 TIMESTAMP(6) NULL)"
    for number, (day, time) in enumerate(
        (
            ("2024-02-29", "12:34:56.789012"),
            ("2000-01-01", "00:00:00"),
            ("1999-12-31", "23:59:59.999999"),
            ("1971-06-07", "08:00:00.500000"),
            ("2024-10-27", "01:30:00.000001"),
        )
    ):
        values = [f"'{day}'", *[f"'{time}'"] * 3, *[f"'{day} {time}'"] * 6]
        yield f"INSERT INTO story.times VALUES ({number}, {', '.join(values)})"
    yield "INSERT INTO story.times (id, d, dt0, dt6) VALUES (10, '1969-12-31', '1969-12-31 23:59:59', '1969-12-31 23:59:59.999999')"
    yield "CREATE TABLE story.zero (id INT PRIMARY KEY, d DATE NOT NULL, dt DATETIME NOT NULL, dt6 DATETIME(6) NOT NULL, ts TIMESTAMP NOT NULL DEFAULT '2000-01-01 00:00:00', dn DATE, dtn DATETIME, tsn TIMESTAMP NULL)"
    yield "INSERT INTO story.zero VALUES (1, 0, 0, 0, 0, 0, 0, 0)"
    yield "INSERT INTO story.zero VALUES (2, '2024-00-10', '2024-02-31 01:02:03', '2024-00-00 00:00:00.5', '2024-01-01 00:00:00', '2024-02-31', '2024-00-00 00:00:00', NULL)"
    yield "CREATE TABLE story.booleans (id INT PRIMARY KEY, b BOOLEAN, t1 TINYINT(1), t4 TINYINT(4), u TINYINT(1) UNSIGNED, bit1 BIT(1), z INT(5) ZEROFILL)"
    yield "INSERT INTO story.booleans VALUES (1, TRUE, 2, 2, 3, b'1', 42), (2, FALSE, -1, -128, 255, b'0', 0)"
    yield "CREATE TABLE story.synonyms (id INT PRIMARY KEY, r REAL, d DOUBLE PRECISION, f FLOAT(53), f24 FLOAT(24), n NUMERIC(8,3), dc DEC(4), fx FIXED(6,1), nc NATIONAL CHAR(5), nv NATIONAL VARCHAR(10), i8 INT8, i4 INT4, i2 INT2, i1 INT1, m MIDDLEINT, l LONG VARCHAR, s SERIAL)"
    yield "INSERT INTO story.synonyms VALUES (1, 1.5, -2.25, 0.1, 0.1, 12345.678, 1234, 12345.6, 'ä', 'öü', 1, 2, 3, 4, 5, 'long', 1)"
    yield "CREATE TABLE story.byte_word (id INT PRIMARY KEY, b CHAR(4) BYTE)"
    yield "INSERT INTO story.byte_word VALUES (1, 'ab')"
    if flavour is Flavour.MARIADB:
        yield "CREATE SEQUENCE story.numbers"
        yield "SELECT NEXTVAL(story.numbers)"


def _names() -> Iterator[str]:
    """Names that topics, Avro or JSON do not take as they are."""
    yield 'CREATE TABLE story.`order-line` (`i d` INT PRIMARY KEY, `naïve` INT, `a.b` INT, `quo"te` INT, `1st` INT, `from` INT)'
    yield "INSERT INTO story.`order-line` VALUES (1, 2, 3, 4, 5, 6)"
    yield "UPDATE story.`order-line` SET `naïve` = 7"
    yield "DELETE FROM story.`order-line`"
    yield "CREATE TABLE story.`Größe` (id INT PRIMARY KEY, v INT)"
    yield "INSERT INTO story.`Größe` VALUES (1, 1)"
