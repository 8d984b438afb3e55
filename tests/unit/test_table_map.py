"""Table structure comes from table maps of servers; wrong or missing parts are refused."""

import struct

import pytest

from millrace.errors import Fatal
from millrace.schemas.gtid import Flavour
from millrace.schemas.table.structure import Column, ColumnType, TableSchema, TextEncoding, TypeCode
from millrace.schemas.table.table_map import parse_table_map
from tests.kit.binlog.table_map_vectors import (
    LOGGED,
    MARIADB_COMPRESSED,
    MARIADB_LONG_UNIQUE,
    MARIADB_NUMBERS,
    MARIADB_TEXTS,
    MYSQL_CHARSETS,
    MYSQL_NUMBERS,
    MYSQL_TEXTS,
)

LATIN1 = TextEncoding("latin1", 8)
UTF8 = TextEncoding("utf8mb4", 255)
BINARY = TextEncoding("binary", 63)


def column(name: str, type_: ColumnType, *, nullable: bool = True) -> Column:
    """Return a column with the usual properties."""
    return Column(name, type_, nullable)


@pytest.mark.parametrize(
    ("flavour", "body", "table_id"),
    [(Flavour.MYSQL, MYSQL_NUMBERS, 0x6A), (Flavour.MARIADB, MARIADB_NUMBERS, 8)],
)
def test_numeric_columns_have_their_signs_and_sizes(
    flavour: Flavour, body: bytes, table_id: int
) -> None:
    """YEAR uses a bit of the signs, BIT does not; the key's columns are in key order."""
    got_id, table = parse_table_map(body, flavour=flavour)
    assert got_id == table_id
    assert table == TableSchema(
        "t",
        "tnum",
        (
            column("a", ColumnType(TypeCode.TINY, is_unsigned=True), nullable=False),
            column("y", ColumnType(TypeCode.YEAR, is_unsigned=True)),
            column("b", ColumnType(TypeCode.SHORT, is_unsigned=True)),
            column("f", ColumnType(TypeCode.FLOAT, 4, is_unsigned=True)),
            column("c", ColumnType(TypeCode.INT24)),
            column("bb", ColumnType(TypeCode.BIT, 3)),
            column("d", ColumnType(TypeCode.LONG, is_unsigned=True), nullable=False),
            column("e", ColumnType(TypeCode.LONGLONG)),
            column("g", ColumnType(TypeCode.DOUBLE, 8)),
            column("h", ColumnType(TypeCode.NEWDECIMAL, 10 << 8 | 2, is_unsigned=True)),
            column("i", ColumnType(TypeCode.LONGLONG, is_unsigned=True)),
            column("dt", ColumnType(TypeCode.DATE)),
        ),
        (6, 0),
        (0, 0),
    )


def test_mysql_text_columns_have_charsets_labels_and_lengths() -> None:
    """VECTOR has a collation, GEOMETRY and JSON have none; the invisible column is recognized."""
    _, table = parse_table_map(MYSQL_TEXTS, flavour=Flavour.MYSQL)
    assert [c.type for c in table.columns] == [
        ColumnType(TypeCode.STRING, 10, text=LATIN1),
        ColumnType(TypeCode.VARCHAR, 160, text=UTF8),
        ColumnType(TypeCode.BLOB, 2, text=UTF8),
        ColumnType(TypeCode.BLOB, 2, text=BINARY),
        ColumnType(TypeCode.STRING, 5, text=BINARY),
        ColumnType(TypeCode.VARCHAR, 300, text=BINARY),
        ColumnType(TypeCode.JSON, 4),
        ColumnType(TypeCode.GEOMETRY, 4),
        ColumnType(TypeCode.GEOMETRY, 4, extent=1),
        ColumnType(TypeCode.VECTOR, 4, extent=5),
        ColumnType(TypeCode.ENUM, 1, text=LATIN1, labels=("x", "y,z")),
        ColumnType(TypeCode.SET, 1, text=TextEncoding("utf8mb4", 46), labels=("p", "q")),
        ColumnType(TypeCode.BLOB, 4, text=TextEncoding("gbk", 28)),
        ColumnType(TypeCode.BLOB, 1, text=UTF8),
        ColumnType(TypeCode.VARCHAR, 40, text=UTF8),
    ]
    assert [c.name for c in table.columns if not c.is_visible] == ["m"]
    assert (table.primary_key, table.primary_key_prefixes) == ((1, 0), (3, 0))


def test_mariadb_text_columns_have_charsets_and_labels() -> None:
    """GEOMETRY has a collation in MariaDB; UUID and INET look like BINARY."""
    _, table = parse_table_map(MARIADB_TEXTS, flavour=Flavour.MARIADB)
    charsets = {c.name: c.type.text.charset for c in table.columns if c.type.text}
    assert charsets == {
        **dict.fromkeys(["a", "j"], "latin1"),
        **dict.fromkeys(["b", "c", "g", "k", "tb", "m"], "utf8mb4"),
        **dict.fromkeys(["d", "e", "f", "u", "i6", "i4"], "binary"),
        "l": "gbk",
    }
    assert table.columns[9].type == ColumnType(TypeCode.STRING, 16, text=BINARY)


def test_compressed_columns_keep_their_types() -> None:
    """The length is that of the row image."""
    _, table = parse_table_map(MARIADB_COMPRESSED, flavour=Flavour.MARIADB)
    assert [(c.type.code, c.type.parameter, c.type.is_compressed) for c in table.columns[:5]] == [
        (TypeCode.VARCHAR_COMPRESSED, 41, True),
        (TypeCode.BLOB_COMPRESSED, 2, True),
        (TypeCode.BLOB_COMPRESSED, 2, True),
        (TypeCode.VARCHAR_COMPRESSED, 301, True),
        (TypeCode.VARCHAR_COMPRESSED, 4001, True),
    ]


def test_hash_column_of_a_long_unique_key_is_recognized() -> None:
    """MariaDB logs it as a column of the rows; no client can write it."""
    _, table = parse_table_map(MARIADB_LONG_UNIQUE, flavour=Flavour.MARIADB)
    assert [(c.name, c.is_key_hash) for c in table.columns] == [
        ("a", False),
        ("b", False),
        ("DB_ROW_HASH_1", True),
        ("DB_ROW_HASH_2", True),
    ]


def test_hash_column_of_a_key_without_null_is_recognized() -> None:
    """It is NOT NULL if all columns of its key are."""
    type_ = ColumnType(TypeCode.LONGLONG, is_unsigned=True)
    assert Column("DB_ROW_HASH_1", type_, nullable=False).is_key_hash


def test_enum_labels_are_decoded_in_their_columns_charset() -> None:
    """ucs2 labels have two bytes per character; those of a binary column are UTF-8."""
    _, table = parse_table_map(MYSQL_CHARSETS, flavour=Flavour.MYSQL)
    assert [c.type.labels for c in table.columns[4:]] == [("a", "b"), ("a",), ("a", "b", "é")]


def test_undecodable_or_duplicate_enum_label_is_none() -> None:
    """The record then carries the number, and the target gets exactly that value."""
    twice = MYSQL_TEXTS.replace(
        bytes.fromhex("06 07 02 0178 03792c7a"), bytes.fromhex("06 05 02 0178 0178")
    )
    wrong = MYSQL_TEXTS.replace(
        bytes.fromhex("05 05 02 0170 0171"), bytes.fromhex("05 05 02 0170 01ff")
    )
    assert parse_table_map(twice, flavour=Flavour.MYSQL)[1].columns[10].type.labels == ("x", None)
    assert parse_table_map(wrong, flavour=Flavour.MYSQL)[1].columns[11].type.labels == ("p", None)


@pytest.mark.parametrize(("flavour", "body"), LOGGED)
def test_table_map_without_column_names_is_refused_with_a_fix(
    flavour: Flavour, body: bytes
) -> None:
    """With MINIMAL metadata the names could only be guessed."""
    at = body.index(b"\x04", 30)
    while body[at + 2 : at + 4] not in (b"\x01a",):  # the field of column names starts with "a"
        at = body.index(b"\x04", at + 1)
    minimal = body[:at] + body[at + 2 + body[at + 1] :]
    with pytest.raises(Fatal, match=r"MR-6004 .*t\.t") as caught:
        parse_table_map(minimal, flavour=flavour)
    assert "SET GLOBAL binlog_row_metadata=FULL" in caught.value.fix


@pytest.mark.parametrize(("flavour", "body"), LOGGED)
def test_table_map_truncated_anywhere_is_refused(flavour: Flavour, body: bytes) -> None:
    """Every length is checked: a prefix passes only if it ends between optional fields."""
    whole = parse_table_map(body, flavour=flavour)[1]
    passed, codes = [], set()
    for end in range(len(body)):
        try:
            passed.append(parse_table_map(body[:end], flavour=flavour)[1])
        except Fatal as error:
            codes.add(error.code)
    assert codes <= {"MR-6003", "MR-6004"}
    assert len(passed) <= 2  # without the key, without the visibility: a table may have neither
    assert all(table.database == whole.database for table in passed)


@pytest.mark.parametrize(
    ("found", "replaced"),
    [
        ("f4c0", "f4"),  # too few signs
        ("01 02 f4c0", "01 03 f4c000"),  # too many
        ("08 02 0600", "08 02 060c"),  # a missing key column
        ("08 02 0600", "08 02 0606"),  # a repeated one
        ("08 02 0600", "08 02 06fb"),  # not a packed integer
        ("06 04 0300 08 0a02", "06 05 0300 08 0a02"),  # FLOAT of 5 bytes
        ("0300 08 0a02", "0308 08 0a02"),  # BIT(67)
        ("0a02", "4202"),  # DECIMAL(66,2)
        ("0a02", "0a0b"),  # DECIMAL(10,11)
        ("06 04 0300 08 0a02", "07 04 0300 08 0a02 00"),  # extra metadata
        ("0164 0165", "01ff 0165"),  # a name that is not UTF-8
        ("746e756d 00", "746e756d 01"),  # no zero byte
    ],
)
def test_invalid_table_map_bytes_are_refused(found: str, replaced: str) -> None:
    """The error reports a damaged event."""
    old, new = bytes.fromhex(found), bytes.fromhex(replaced)
    assert MYSQL_NUMBERS.count(old) == 1
    with pytest.raises(Fatal, match="MR-6003"):
        parse_table_map(MYSQL_NUMBERS.replace(old, new), flavour=Flavour.MYSQL)


@pytest.mark.parametrize("code", [0, 6, 20, 99, 249, 253])
def test_unreadable_column_type_is_refused(code: int) -> None:
    """The error has the column's type code."""
    body = MYSQL_NUMBERS.replace(b"\x01\x0d\x02\x04", bytes([code]) + b"\x0d\x02\x04", 1)
    with pytest.raises(Fatal, match=f"MR-6005 type code {code}"):
        parse_table_map(body, flavour=Flavour.MYSQL)


def test_old_temporal_types_are_accepted_only_from_mysql() -> None:
    """MariaDB's may have fractions in rows that no table map announces; ALTER TABLE … FORCE fixes it."""
    body = MYSQL_NUMBERS.replace(b"\x01\x0d\x02\x04", b"\x01\x0b\x02\x04", 1)
    body = body.replace(bytes.fromhex("f4c0"), bytes.fromhex("e980"))  # one sign less
    _, table = parse_table_map(body, flavour=Flavour.MYSQL)
    assert table.columns[1].type == ColumnType(TypeCode.TIME)
    with pytest.raises(Fatal, match="MR-6005") as caught:
        parse_table_map(body, flavour=Flavour.MARIADB)
    assert "mysql56_temporal_format" in caught.value.fix


@pytest.mark.parametrize(
    ("found", "replaced"),
    [
        ("0d2d 0e2d", "0d2d 0f2d"),  # a collation for a missing text column
        ("07 02 00 01", "07 02 00 01 07 02 00 01"),  # a field twice
        ("07 02 00 01", "07 03 00 01 01"),  # an extra geometry
        ("05 05 02 0170 0171", "05 06 02 0170 0171 00"),  # an extra SET column
    ],
)
def test_wrong_text_column_metadata_is_refused(found: str, replaced: str) -> None:
    """The metadata must cover exactly the existing columns."""
    old, new = bytes.fromhex(found), bytes.fromhex(replaced)
    assert MARIADB_TEXTS.count(old) == 1
    with pytest.raises(Fatal, match="MR-6003"):
        parse_table_map(MARIADB_TEXTS.replace(old, new), flavour=Flavour.MARIADB)


@pytest.mark.parametrize("count", ["00", "fc0110"])
def test_table_has_1_to_4096_columns(count: str) -> None:
    """Another count is damage."""
    head = MYSQL_NUMBERS[: MYSQL_NUMBERS.index(bytes.fromhex("0c010d"))]
    with pytest.raises(Fatal, match=r"MR-6003 .* columns"):
        parse_table_map(head + bytes.fromhex(count) + bytes(20000), flavour=Flavour.MYSQL)


def test_unknown_collation_is_refused() -> None:
    """Text cannot be converted by guessing."""
    body = MYSQL_TEXTS.replace(bytes.fromhex("08 fcff00 fcff00"), bytes.fromhex("08 fcff00 fcff7f"))
    with pytest.raises(Fatal, match="MR-6006 collation id 32767"):
        parse_table_map(body, flavour=Flavour.MYSQL)


@pytest.mark.parametrize("length_bytes", [0, 255, 256, 767, 1020])
def test_char_over_255_bytes_has_length_bits_in_its_type(length_bytes: int) -> None:
    """CHAR(255) of utf8mb4 has 1020 bytes: bits 8 and 9 of the length are inverted in bits 4 and 5 of the type."""
    first = 0xFE ^ (length_bytes >> 8 << 4)
    metadata = struct.pack("BB", first, length_bytes & 0xFF)
    body = MYSQL_TEXTS.replace(bytes.fromhex("fe0a a000"), metadata + bytes.fromhex("a000"))
    _, table = parse_table_map(body, flavour=Flavour.MYSQL)
    assert table.columns[0].type.code is TypeCode.STRING
    assert table.columns[0].type.length_bytes_max == length_bytes
