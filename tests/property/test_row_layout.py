"""Any table's structure survives its Avro schema, with any names and labels."""

import json

import fastavro
from hypothesis import given
from hypothesis import strategies as st

from millrace.schemas.record.avro_schema import envelope_schema, key_schema
from millrace.schemas.record.row_layout import RowLayout, parse_row_layout
from millrace.schemas.table.structure import Column, ColumnType, TableSchema, TextEncoding, TypeCode

names = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12
)
encodings = st.sampled_from(
    [TextEncoding("latin1", 8), TextEncoding("utf8mb4", 2304), TextEncoding("binary", 63)]
)
types = st.one_of(
    st.builds(
        ColumnType,
        st.sampled_from([TypeCode.TINY, TypeCode.LONG, TypeCode.LONGLONG]),
        is_unsigned=st.booleans(),
    ),
    st.builds(ColumnType, st.just(TypeCode.VARCHAR), st.integers(0, 65535), text=encodings),
    st.builds(ColumnType, st.just(TypeCode.BLOB), st.integers(1, 4), text=encodings),
    st.builds(
        ColumnType, st.just(TypeCode.NEWDECIMAL), st.integers(1, 65).map(lambda digits: digits << 8)
    ),
    st.builds(ColumnType, st.just(TypeCode.BIT), st.integers(1, 64)),
    st.builds(ColumnType, st.just(TypeCode.GEOMETRY), st.just(4), extent=st.integers(0, 7)),
    st.builds(
        ColumnType,
        st.sampled_from([TypeCode.ENUM, TypeCode.SET]),
        st.just(1),
        text=encodings,
        labels=st.lists(st.one_of(st.none(), names), max_size=4).map(tuple),
    ),
)
columns = st.lists(
    st.builds(Column, names, types, st.booleans(), st.booleans()),
    min_size=1,
    max_size=8,
    unique_by=lambda column: column.name,
)


@st.composite
def tables(draw: st.DrawFn) -> TableSchema:
    """Draw a table with a primary key over some columns, or with none."""
    chosen = tuple(draw(columns))
    key = tuple(draw(st.lists(st.integers(0, len(chosen) - 1), unique=True, max_size=3)))
    prefixes = tuple(draw(st.integers(0, 5)) for _ in key)
    omitted = tuple(draw(st.lists(names, max_size=2)))
    return TableSchema(draw(names), draw(names), chosen, key, prefixes, omitted)


@given(names, tables())
def test_schema_restores_any_table(set_name: str, table: TableSchema) -> None:
    """Avro accepts every schema, of values and of keys."""
    schema = envelope_schema(set_name, table)
    assert parse_row_layout(schema.text) == RowLayout.of(set_name, table)
    sorted_text = json.dumps(json.loads(schema.text), sort_keys=True)  # as Karapace returns it
    assert parse_row_layout(sorted_text) == RowLayout.of(set_name, table)
    fastavro.parse_schema(json.loads(schema.text), named_schemas={})
    key = key_schema(set_name, table)
    assert (key is None) == (not table.primary_key)
    if key is not None:
        fastavro.parse_schema(json.loads(key.text), named_schemas={})
