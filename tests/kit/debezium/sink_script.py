"""SQL whose rows Debezium's JDBC sink can write: one table for each kind of type, and one for changes of keys."""

# SQL in long lines is easier to read than in short ones:
# ruff: noqa: E501

from collections.abc import Iterator

SOURCE = "sink_source"
_TYPES = {
    "numbers": (
        "ti TINYINT, tu TINYINT UNSIGNED, si SMALLINT, su SMALLINT UNSIGNED, mi MEDIUMINT, i INT, iu INT UNSIGNED, bi BIGINT, bu BIGINT UNSIGNED",
        "-128, 255, -32768, 65535, -8388608, -2147483648, 4294967295, -9223372036854775808, 18446744073709551615",
        "127, 0, 32767, 0, 8388607, 2147483647, 0, 9223372036854775807, 0",
    ),
    "decimals": (
        "d1 DECIMAL(5,2), d2 DECIMAL(38,19), d3 DECIMAL(65,30), f FLOAT, d DOUBLE, b1 BIT(1), y YEAR",
        "-999.99, 9999999999999999999.9999999999999999999, -1.000000000000000000000000000001, 0.1, 1.7976931348623157e308, b'1', 2155",
        "0.01, -0.0000000000000000001, 12345678901234567890123456789012345.5, -1.5, 0.1, b'0', 1901",
    ),
    "times": (
        "da DATE, ti TIME, t6 TIME(6), dt DATETIME, d3 DATETIME(3), d6 DATETIME(6), ts TIMESTAMP NULL, t3 TIMESTAMP(6) NULL",
        "'9999-12-31', '23:59:59', '12:34:56.789012', '9999-12-31 23:59:59', '2024-02-29 12:00:00.123', '2024-02-29 12:00:00.123456', '2024-10-27 00:30:00', '2024-03-31 01:30:00.000001'",
        "'1970-01-01', '00:00:00', '00:00:00.5', '1970-01-02 00:00:00', '2000-01-01 00:00:00', '1999-12-31 23:59:59.999999', '1971-01-01 00:00:00', '2037-12-31 23:59:59.999999'",
    ),
    "texts": (
        "c CHAR(10), v VARCHAR(50), t TEXT, lt LONGTEXT, la VARCHAR(20) CHARACTER SET latin1, e ENUM('a', 'b', 'ü'), s SET('x', 'y', 'z'), j JSON",
        "'char', 'ü 😀 \"q\" \\\\ ''', '', REPEAT('long ü ', 10000), 'é€', 'ü', 'x,z', '{\"a\": [1, null, \"ü\"]}'",
        "'', '', 'text', 'x', '', 'a', '', '[]'",
    ),
    "octets": (
        "bi BINARY(4), vb VARBINARY(20), bl BLOB, lb LONGBLOB",
        "x'00FF0102', x'', x'00', REPEAT(x'00FF', 30000)",
        "x'01', x'FF00', x'', x'7F'",
    ),
}
TABLES = (*_TYPES, "moves", "pairs")


def sink_script() -> Iterator[str]:
    """Statements in the current database, one after the other."""
    for table, (columns, first, second) in _TYPES.items():
        names = ", ".join(part.strip().split()[0] for part in _split(columns))
        nulls = ", ".join("NULL" for _ in _split(columns))
        yield f"CREATE TABLE {table} (id INT PRIMARY KEY, {columns})"
        yield f"INSERT INTO {table} VALUES (1, {first}), (2, {second}), (3, {nulls}), (4, {first}), (5, {second})"
        yield f"UPDATE {table} a JOIN {table} b ON b.id = 2 SET {', '.join(f'a.{name} = b.{name}' for name in names.split(', '))} WHERE a.id = 4"
        yield f"DELETE FROM {table} WHERE id = 5"
    yield "CREATE TABLE moves (id INT PRIMARY KEY, v VARCHAR(20))"
    yield "INSERT INTO moves VALUES (1, 'a'), (2, 'b'), (3, 'c')"
    yield "UPDATE moves SET id = id + 10 ORDER BY id DESC"
    yield "UPDATE moves SET id = 1 WHERE id = 13"
    yield "DELETE FROM moves WHERE id = 12"
    yield "INSERT INTO moves VALUES (12, 'again')"
    yield "CREATE TABLE pairs (v INT, b VARCHAR(10), a BIGINT, PRIMARY KEY (a, b))"
    yield "INSERT INTO pairs VALUES (1, 'x', 1), (2, 'y', 1), (3, 'x', 2)"
    yield "UPDATE pairs SET b = 'z' WHERE a = 1 AND b = 'x'"
    yield "UPDATE pairs SET v = v + 1"
    yield "DELETE FROM pairs WHERE a = 2"


def _split(columns: str) -> list[str]:
    """Columns at commas outside brackets."""
    parts, depth = [""], 0
    for letter in columns:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts
