"""The schemas of a table's records: branches as in the contract, and the whole table restored."""

import json

import fastavro
import pytest

from millrace.errors import Fatal
from millrace.schemas.gtid import Flavour
from millrace.schemas.record.avro_schema import (
    AvroSchema,
    column_branches,
    envelope_schema,
    key_schema,
)
from millrace.schemas.record.row_layout import RowLayout, parse_row_layout
from millrace.schemas.table.structure import Column, ColumnType, TableSchema, TextEncoding, TypeCode
from millrace.schemas.table.table_map import parse_table_map
from millrace.schemas.table.type_text import type_text
from tests.kit.binlog.table_map_vectors import (
    MARIADB_COMPRESSED,
    MARIADB_TEXTS,
    MYSQL_CHARSETS,
    MYSQL_NUMBERS,
    MYSQL_TEXTS,
)

TABLES = [
    parse_table_map(body, flavour=flavour)[1]
    for flavour, body in (
        (Flavour.MYSQL, MYSQL_NUMBERS),
        (Flavour.MYSQL, MYSQL_TEXTS),
        (Flavour.MYSQL, MYSQL_CHARSETS),
        (Flavour.MARIADB, MARIADB_TEXTS),
        (Flavour.MARIADB, MARIADB_COMPRESSED),
    )
]
LATIN1, BINARY = TextEncoding("latin1", 8), TextEncoding("binary", 63)
C = TypeCode


@pytest.mark.parametrize(
    ("type_", "branches", "text"),
    [
        (ColumnType(C.TINY), ("int",), "tinyint"),
        (ColumnType(C.SHORT, is_unsigned=True), ("int",), "smallint unsigned"),
        (ColumnType(C.INT24), ("int",), "mediumint"),
        (ColumnType(C.LONG), ("int",), "int"),
        (ColumnType(C.LONG, is_unsigned=True), ("long",), "int unsigned"),
        (ColumnType(C.LONGLONG), ("long",), "bigint"),
        (ColumnType(C.LONGLONG, is_unsigned=True), ("bytes",), "bigint unsigned"),
        (ColumnType(C.NEWDECIMAL, 65 << 8 | 30), ("bytes",), "decimal(65,30)"),
        (ColumnType(C.FLOAT, 4), ("float",), "float"),
        (ColumnType(C.DOUBLE, 8, is_unsigned=True), ("double",), "double unsigned"),
        (ColumnType(C.BIT, 64), ("bytes",), "bit(64)"),
        (ColumnType(C.YEAR, is_unsigned=True), ("int",), "year"),
        (ColumnType(C.DATE), ("string",), "date"),
        (ColumnType(C.TIME2, 3), ("string",), "time(3)"),
        (ColumnType(C.DATETIME2), ("string",), "datetime"),
        (ColumnType(C.TIMESTAMP2, 6), ("string",), "timestamp(6)"),
        (ColumnType(C.STRING, 10, text=LATIN1), ("string", "bytes"), "char(10)"),
        (ColumnType(C.STRING, 10, text=BINARY), ("bytes",), "binary(10)"),
        (
            ColumnType(C.VARCHAR, 160, text=TextEncoding("utf8mb4", 255)),
            ("string", "bytes"),
            "varchar(40)",
        ),
        (ColumnType(C.VARCHAR, 300, text=BINARY), ("bytes",), "varbinary(300)"),
        (ColumnType(C.BLOB, 1, text=LATIN1), ("string", "bytes"), "tinytext"),
        (ColumnType(C.BLOB, 3, text=BINARY), ("bytes",), "mediumblob"),
        (ColumnType(C.BLOB_COMPRESSED, 2, text=LATIN1), ("string", "bytes"), "text compressed"),
        (
            ColumnType(C.VARCHAR_COMPRESSED, 41, text=LATIN1),
            ("string", "bytes"),
            "varchar(40) compressed",
        ),
        (ColumnType(C.ENUM, 1, text=LATIN1, labels=("a",)), ("string", "int"), "enum"),
        (ColumnType(C.ENUM, 1, text=BINARY, labels=("a",)), ("string", "int"), "enum"),
        (ColumnType(C.SET, 8, text=LATIN1, labels=("a",)), ("string", "long"), "set"),
        (ColumnType(C.JSON, 4), ("string",), "json"),
        (ColumnType(C.GEOMETRY, 4, extent=3), ("bytes",), "polygon"),
        (ColumnType(C.VECTOR, 4, extent=5), ("bytes",), "vector(5)"),
    ],
)
def test_every_column_type_has_its_avro_branches_and_name(
    type_: ColumnType, branches: tuple[str, ...], text: str
) -> None:
    """The order is part of the format: kernels write branches by number."""
    assert column_branches(Column("c", type_, False)) == branches
    assert column_branches(Column("c", type_, True)) == ("null", *branches)
    assert type_text(type_) == text


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.table)
def test_avro_schema_restores_the_table(table: TableSchema) -> None:
    """The schema holds everything that the table map gave."""
    assert parse_row_layout(envelope_schema("my shop", table).text) == RowLayout.of(
        "my shop", table
    )


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.table)
def test_schemas_are_named_by_set_database_and_table(table: TableSchema) -> None:
    """fastavro accepts them; names are escaped."""
    for schema in (envelope_schema("my-shop", table), key_schema("my-shop", table)):
        if schema is None:
            assert not table.primary_key
            continue
        fastavro.parse_schema(json.loads(schema.text), named_schemas={})
        assert schema.full_name.startswith(f"millrace.my_u002d_shop.t.{table.table}.")
        assert schema.subject("topic") == f"topic-{schema.full_name}"
        assert AvroSchema.parse(schema.text) == schema


def test_key_holds_the_primary_key_columns_in_key_order() -> None:
    """The key is PRIMARY KEY (d, a), without null."""
    schema = key_schema("s", TABLES[0])
    assert schema is not None
    fields = json.loads(schema.text)["fields"]
    assert [(field["name"], field["type"]) for field in fields] == [("d", "long"), ("a", "int")]


def test_prefix_key_keeps_its_lengths() -> None:
    """PRIMARY KEY (b(3), a): the key record holds whole values; the schema gives the key's part of them."""
    row = json.loads(envelope_schema("s", TABLES[1]).text)["fields"][0]["type"][1]
    assert row["millrace.primary_key"] == ["b", "a"]
    assert row["millrace.primary_key_prefixes"] == [3, 0]


def test_last_byte_of_an_envelope_flags_the_last_row() -> None:
    """The converter patches the byte when it sees the commit."""
    fields = json.loads(envelope_schema("s", TABLES[0]).text)["fields"]
    assert [field["name"] for field in fields] == [
        "before",
        "after",
        "source",
        "op",
        "ts_ms",
        "transaction",
    ]
    assert fields[-1]["type"]["fields"][-1] == {"name": "last", "type": "boolean"}


def test_schema_identity_includes_the_properties() -> None:
    """A longer VARCHAR, another label or another collation makes another schema, though Avro sees no difference."""
    column = Column("c", ColumnType(C.VARCHAR, 40, text=LATIN1), True)
    longer = Column("c", ColumnType(C.VARCHAR, 41, text=LATIN1), True)
    other = Column("c", ColumnType(C.VARCHAR, 40, text=TextEncoding("latin1", 48)), True)
    schemas = [
        envelope_schema("s", TableSchema("d", "t", (c,))) for c in (column, longer, other, column)
    ]
    assert len({schema.fingerprint for schema in schemas}) == 3
    assert schemas[0] == schemas[3]


@pytest.mark.parametrize(
    ("found", "replaced"),
    [
        ('"millrace.database":"t",', ""),
        ('"millrace.code":1', '"millrace.code":99'),
        ('"millrace.code":1', '"millrace.code":"1"'),
        ('"millrace.primary_key":["d","a"]', '"millrace.primary_key":["d","z"]'),
        ('"name":"before"', '"name":"earlier"'),
        ('"type":["null","long"]', '"type":["null","int"]'),
        ("{", ""),
    ],
)
def test_foreign_schema_is_refused(found: str, replaced: str) -> None:
    """It is refused before any row is decoded with it."""
    text = envelope_schema("s", TABLES[0]).text
    assert found in text
    with pytest.raises(Fatal, match="MR-6010"):
        parse_row_layout(text.replace(found, replaced, 1))
