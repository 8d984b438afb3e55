"""Every type at its extremes on both flavors: the target holds the record's value, inserted and updated.

``expected`` is the expected result of a SELECT on the target, written from the servers' manuals.
"""

import struct
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal

import pytest

from millrace.deploy.servers import DatabaseServer, sql
from millrace.errors import Fatal
from millrace.schemas.gtid import Flavour
from millrace.schemas.table.structure import (
    BINARY,
    BINARY_COLLATION_ID,
    Column,
    ColumnType,
    TextEncoding,
    TypeCode,
)
from tests.kit.apply.local import apply_task, run_once
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import RecordStream

pytestmark = pytest.mark.both_flavours

_BINARY = TextEncoding(BINARY, BINARY_COLLATION_ID)
_POINT = bytes(4) + b"\x01\x01\x00\x00\x00" + struct.pack("<dd", -1.5, 2.25)
_UUID = bytes.fromhex("00112233445516778899aabbccddee00")


@dataclass(frozen=True)
class Case:
    """A column, and pairs of a record value and the expected answer of ``question`` (about column ``v``)."""

    sql: str
    type: ColumnType
    pairs: tuple[tuple[object, object], ...]
    question: str = "CAST(v AS CHAR)"
    flavour: str = ""


def _text(charset: str, collation: int) -> ColumnType:
    return ColumnType(TypeCode.VARCHAR, 80, text=TextEncoding(charset, collation))


_U64 = 2**64 - 1
CASES = {
    "tinyint": Case("TINYINT", ColumnType(TypeCode.TINY), ((-128, "-128"), (127, "127"), (0, "0"))),
    "int unsigned": Case(
        "INT UNSIGNED", ColumnType(TypeCode.LONG, is_unsigned=True), ((2**32 - 1, "4294967295"),)
    ),
    "bigint": Case(
        "BIGINT",
        ColumnType(TypeCode.LONGLONG),
        ((-(2**63), str(-(2**63))), (2**63 - 1, str(2**63 - 1))),
    ),
    "bigint unsigned": Case(
        "BIGINT UNSIGNED",
        ColumnType(TypeCode.LONGLONG, is_unsigned=True),
        (
            (Decimal(0), "0"),
            (Decimal(_U64), str(_U64)),
            (Decimal(127), "127"),
            (Decimal(128), "128"),
        ),
    ),
    "decimal": Case(
        "DECIMAL(65,30)",
        ColumnType(TypeCode.NEWDECIMAL, 65 << 8 | 30),
        tuple(
            (Decimal(expected), expected)
            for expected in (
                "-" + "9" * 35 + "." + "9" * 30,
                "9" * 35 + "." + "9" * 30,
                "0." + "0" * 29 + "1",
                "-0." + "0" * 29 + "1",
                "0." + "0" * 30,
            )
        ),
    ),
    "float": Case(
        "FLOAT",
        ColumnType(TypeCode.FLOAT, 4),
        (
            (struct.unpack("<f", b"\xcd\xcc\xcc\x3d")[0], "0.10000000149011612"),
            (1.401298464324817e-45, "1.401298464324817e-45"),
        ),
        "CAST(CAST(v AS DOUBLE) AS CHAR)",
    ),
    "double": Case(
        "DOUBLE",
        ColumnType(TypeCode.DOUBLE, 8),
        (
            (-0.0, "-0"),
            (5e-324, "5e-324"),
            (1.7976931348623157e308, "1.7976931348623157e308"),
            (0.1 + 0.2, "0.30000000000000004"),
        ),
    ),
    "bit": Case(
        "BIT(64)", ColumnType(TypeCode.BIT, 64), ((b"\xff" * 8, _U64), (bytes(8), 0)), "v + 0"
    ),
    "year": Case("YEAR", ColumnType(TypeCode.YEAR), ((0, "0000"), (1901, "1901"), (2155, "2155"))),
    "date": Case(
        "DATE",
        ColumnType(TypeCode.DATE),
        tuple(
            (expected, expected)
            for expected in ("0000-00-00", "2001-02-31", "2010-00-00", "9999-12-31")
        ),
    ),
    "time": Case(
        "TIME(6)",
        ColumnType(TypeCode.TIME2, 6),
        tuple(
            (expected, expected)
            for expected in ("-838:59:58.999999", "838:59:59.000000", "-00:00:00.000001")
        ),
    ),
    "datetime": Case(
        "DATETIME(3)",
        ColumnType(TypeCode.DATETIME2, 3),
        tuple(
            (expected, expected)
            for expected in ("0000-00-00 00:00:00.000", "9999-12-31 23:59:59.999")
        ),
    ),
    "timestamp": Case(
        "TIMESTAMP NULL",
        ColumnType(TypeCode.TIMESTAMP2, 0),
        tuple(
            (expected, expected)
            for expected in ("0000-00-00 00:00:00", "1970-01-01 00:00:01", "2038-01-19 03:14:07")
        ),
    ),
    "utf8mb4": Case(
        "VARCHAR(20) CHARSET utf8mb4",
        _text("utf8mb4", 45),
        tuple(
            (expected, expected.encode().hex().upper())
            for expected in ("", "it's \\ \"\0\n\x1a% é 🛒", "%s {} `;--")
        ),
        "HEX(v)",
    ),
    "latin1": Case("VARCHAR(20) CHARSET latin1", _text("latin1", 8), (("é€", "E980"),), "HEX(v)"),
    "gbk": Case("VARCHAR(20) CHARSET gbk", _text("gbk", 28), (("顾", "B9CB"),), "HEX(v)"),
    "utf16": Case("VARCHAR(20) CHARSET utf16", _text("utf16", 54), (("🛒", "D83DDED2"),), "HEX(v)"),
    "char": Case(
        "CHAR(5)", ColumnType(TypeCode.STRING, 20, text=TextEncoding("utf8mb4", 45)), (("a", "a"),)
    ),
    "blob": Case(
        "BLOB",
        ColumnType(TypeCode.BLOB, 2, text=_BINARY),
        ((b"", ""), (bytes(range(256)), bytes(range(256)).hex().upper())),
        "HEX(v)",
    ),
    "binary": Case(
        "BINARY(4)",
        ColumnType(TypeCode.STRING, 4, text=_BINARY),
        ((b"a\0\0\0", "61000000"),),
        "HEX(v)",
    ),
    "enum": Case(
        "ENUM('new','it''s')",
        ColumnType(TypeCode.ENUM, 1, text=TextEncoding("utf8mb4", 45), labels=("new", "it's")),
        (("it's", 2), (0, 0), ("new", 1)),
        "v + 0",
    ),
    "set": Case(
        "SET('a','b','c')",
        ColumnType(TypeCode.SET, 1, text=TextEncoding("utf8mb4", 45), labels=("a", "b", "c")),
        (("a,c", 5), ("", 0), (6, 6)),
        "v + 0",
    ),
    "json": Case(
        "JSON",
        ColumnType(TypeCode.JSON, 4),
        (('{"a": [1, null, "é\\n"]}', '{"a": [1, null, "é\\n"]}'),),
        "CONVERT(v USING utf8mb4)",
    ),
    "geometry": Case(
        "GEOMETRY", ColumnType(TypeCode.GEOMETRY, 4), ((_POINT, _POINT.hex().upper()),), "HEX(v)"
    ),
    "vector": Case(
        "VECTOR(2)",
        ColumnType(TypeCode.VECTOR, 4),
        ((struct.pack("<ff", 1.5, -2), struct.pack("<ff", 1.5, -2).hex().upper()),),
        "HEX(v)",
        "mysql",
    ),
    "uuid": Case(
        "UUID",
        ColumnType(TypeCode.STRING, 16, text=_BINARY),
        ((_UUID, "00112233-4455-1677-8899-aabbccddee00"),),
        flavour="mariadb",
    ),
    "inet6": Case(
        "INET6",
        ColumnType(TypeCode.STRING, 16, text=_BINARY),
        ((bytes(15) + b"\1", "::1"),),
        flavour="mariadb",
    ),
    "inet4": Case(
        "INET4",
        ColumnType(TypeCode.STRING, 4, text=_BINARY),
        ((b"\1\2\3\0", "1.2.3.0"),),
        flavour="mariadb",
    ),
    "compressed": Case(
        "VARCHAR(20) COMPRESSED CHARSET utf8mb4",
        ColumnType(TypeCode.VARCHAR_COMPRESSED, 81, text=TextEncoding("utf8mb4", 45)),
        (("aaaa", "aaaa"),),
        flavour="mariadb",
    ),
}


def _cases(flavour: Flavour) -> dict[str, Case]:
    return {name: case for name, case in CASES.items() if case.flavour in ("", str(flavour))}


@pytest.mark.parametrize("keyed", [True, False], ids=["with a key", "without a key"])
def test_every_value_arrives_exactly(target_server: DatabaseServer, *, keyed: bool) -> None:
    """Inserted, updated to the next extreme, to NULL and back, and deleted where the value identifies the row."""
    target_server.execute("DROP DATABASE IF EXISTS types")
    target_server.execute("CREATE DATABASE types DEFAULT CHARSET utf8mb4")
    task = apply_task(f"types-{keyed}")
    stream, wanted = RecordStream(), {}
    for place, (name, case) in enumerate(_cases(target_server.flavour).items()):
        key = "PRIMARY KEY" if keyed else "NOT NULL"
        target_server.execute(f"CREATE TABLE t{place} (id INT {key}, v {case.sql})", db="types")
        made = table(
            "types",
            f"t{place}",
            integer("id"),
            Column("v", case.type, nullable=True),
            key=(0,) if keyed else (),
        )
        for number, (value, _) in enumerate(case.pairs):
            stream.insert(made, {"id": number, "v": value})
            stream.insert(made, {"id": 100 + number, "v": value})
            stream.delete(made, {"id": 100 + number, "v": value})
        for number in range(len(case.pairs)):
            old, new = case.pairs[number][0], case.pairs[number - 1][0]
            stream.update(made, {"id": number, "v": old}, {"id": number, "v": None})
            stream.update(made, {"id": number, "v": None}, {"id": number, "v": new})
        stream.commit()
        wanted[name] = [(number, case.pairs[number - 1][1]) for number in range(len(case.pairs))]
    run_once(target_server, task, stream, is_large=keyed)
    found = {
        name: target_server.execute(f"SELECT id, {case.question} FROM types.t{place} ORDER BY id")
        for place, (name, case) in enumerate(_cases(target_server.flavour).items())
    }
    found = {
        name: [(number, _plain(value)) for number, value in rows] for name, rows in found.items()
    }
    assert found == wanted


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode()
    return int(value) if isinstance(value, float) else value


@pytest.mark.parametrize(
    ("labels", "collation", "is_applied"),
    [
        (("a", "A"), "utf8mb4_unicode_ci", False),
        (("ss", "ß"), "utf8mb4_unicode_ci", False),
        (("a", "ä"), "latin1_german1_ci", False),
        (("a", "A"), "utf8mb4_bin", True),
        (("a", "A"), "latin1_general_cs", True),
        (("a", "ä"), "latin1_general_ci", True),
    ],
)
@pytest.mark.parametrize("kind", ["ENUM", "SET"])
def test_equal_labels_stop_the_task_until_they_are_distinct(
    target_server: DatabaseServer,
    kind: str,
    labels: tuple[str, str],
    collation: str,
    *,
    is_applied: bool,
) -> None:
    """The target would store the first of two labels that its collation calls equal."""
    target_server.execute("DROP DATABASE IF EXISTS labels")
    target_server.execute("CREATE DATABASE labels")
    column = f"{kind}{labels} CHARACTER SET {collation.partition('_')[0]} COLLATE"
    with closing(sql.open_root(target_server.socket)) as session, session.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        cursor.execute(f"CREATE TABLE labels.t (id INT PRIMARY KEY, v {column} {collation})")
    type_ = ColumnType(TypeCode[kind], 1, text=TextEncoding("utf8mb4", 45), labels=labels)
    made = table("labels", "t", integer("id"), Column("v", type_, nullable=True))
    stream = RecordStream(flavour=target_server.flavour)
    stream.insert(made, {"id": 1, "v": labels[1]})
    stream.commit()
    task = apply_task(f"labels-{kind}-{labels[1]}-{collation}")
    if not is_applied:
        with pytest.raises(Fatal) as caught:
            run_once(target_server, task, stream, is_large=False)
        assert caught.value.code == "MR-5039"
        charset = collation.partition("_")[0]
        target_server.execute(f"ALTER TABLE labels.t MODIFY v {column} {charset}_bin")
    run_once(target_server, task, stream, is_large=False)
    assert target_server.execute("SELECT v + 0 FROM labels.t") == [(2,)]


def test_updates_keep_long_values_whole_on_mariadb(mariadb_server: DatabaseServer) -> None:
    """In a multi-row statement MariaDB would silently keep the value's length modulo 65,536."""
    mariadb_server.execute("CREATE OR REPLACE DATABASE long_values")
    mariadb_server.execute("CREATE TABLE long_values.t (id INT PRIMARY KEY, v LONGBLOB)")
    made = table(
        "long_values",
        "t",
        integer("id"),
        Column("v", ColumnType(TypeCode.BLOB, 4, text=_BINARY), nullable=True),
    )
    lengths = [0, 1, 32_000, 65_535, 65_536, 200_000]
    stream = RecordStream(flavour=Flavour.MARIADB)
    for number, _ in enumerate(lengths):
        stream.insert(made, {"id": number, "v": b""})
    stream.commit()
    run_once(mariadb_server, apply_task("long-values"), stream, is_large=False)
    for number, length in enumerate(
        lengths
    ):  # in one window they would be inserted with the new value
        stream.update(made, {"id": number, "v": b""}, {"id": number, "v": b"x" * length})
    stream.commit()
    run_once(mariadb_server, apply_task("long-values"), stream, is_large=False)
    found = mariadb_server.execute("SELECT LENGTH(v) FROM long_values.t ORDER BY id")
    mariadb_server.execute("DROP DATABASE long_values")
    assert [length for (length,) in found] == lengths


def test_json_decimals_keep_their_digits_on_mysql(mysql_server: DatabaseServer) -> None:
    """Inserted and updated next to documents without decimals; read as text, the value would become a DOUBLE."""
    mysql_server.execute("DROP DATABASE IF EXISTS documents")
    mysql_server.execute("CREATE DATABASE documents")
    mysql_server.execute("CREATE TABLE documents.t (id INT PRIMARY KEY, v JSON)")
    made = table(
        "documents", "t", integer("id"), Column("v", ColumnType(TypeCode.JSON, 4), nullable=True)
    )
    texts = ["[1.50]", '{"a": 0.10}', "[1.5]", "123456789012345678901234567890.5", "null"]
    stream = RecordStream()
    for number, text in enumerate(texts):
        stream.insert(made, {"id": number, "v": text})
        stream.insert(made, {"id": 10 + number, "v": "[]"})
    stream.commit()
    run_once(mysql_server, apply_task("documents"), stream, is_large=False)
    for number, text in enumerate(texts):
        stream.update(made, {"id": 10 + number, "v": "[]"}, {"id": 10 + number, "v": text})
    stream.commit()
    run_once(mysql_server, apply_task("documents"), stream, is_large=False)
    found = mysql_server.execute("SELECT CAST(v AS CHAR) FROM documents.t ORDER BY id")
    mysql_server.execute("DROP DATABASE documents")
    assert [text for (text,) in found] == texts * 2
