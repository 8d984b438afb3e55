"""The statements that give a row of the target the source's values. Pure.

    different    UPDATE of all columns that the target does not generate
    missing      INSERT
    extra        DELETE

A row is named by the chunk key or by digest, with a LIMIT. None of these statements changes another row: if one has a
unique key of the row, the server refuses it. ``replacing`` also deletes that one.

A value is read on the source as text and written as a literal:

    source                      read as                      literal
    number, YEAR                its text                     5
    FLOAT                       that of the same DOUBLE      0.10000000149011612
    BIT, equal ENUM or SET      its number                   3
    date, time, UUID, INET      its text                     '2026-01-01'
    characters                  hex digits of its bytes      '日本', _latin1 x'e9'
    JSON of MySQL               hex digits of its text       '{"a": 1}', or an expression for its numbers
    bytes, geometry, vector     hex digits                   x'00ff'

A literal may be no exact way for a pair of types. So a repair compares the digests after it has written.
"""

import re

import numpy as np

from millrace.consumer.compare.gaps import Gap
from millrace.consumer.compare.table import Name, Pair
from millrace.consumer.tables.json_documents import by_expression
from millrace.consumer.tables.table_plan import SPATIAL_TYPES
from millrace.drivers.mysql.catalog import CatalogColumn
from millrace.drivers.mysql.chunks.key import whole_number
from millrace.drivers.mysql.connection import Row, text_of
from millrace.schemas.sql.quoting import characters, escaped, hex_bytes, number, quoted

_BYTES = SPATIAL_TYPES | {"vector", "binary", "varbinary"}
_BYTES |= {"tinyblob", "blob", "mediumblob", "longblob"}
_NUMBERS = {"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "double", "year"}
_NUMBERS |= {"float", "bit"}
_ADDRESSES = {"uuid", "inet4", "inet6"}
_UTF8 = {"utf8mb4", "utf8mb3", "ascii"}
_PRINTABLE = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff]*")


def values_query(pair: Pair, name: Name) -> str:
    """Reads the written columns of one row of the source."""
    read = ", ".join(_read(*both) for both in _written(pair))
    side = pair.source
    return f"SELECT {read} FROM {side.digest.table} WHERE {side.named([name])} LIMIT 1"


def repair_statements(pair: Pair, gap: Gap, values: Row | None) -> list[str]:
    """``values``: those of the source's row; None to delete it."""
    if values is None:
        return [_delete(pair, gap)]
    if gap.target is None:
        return [_insert(pair, values, "INSERT")] * gap.count
    named = zip(_names(pair), _literals(pair, values), strict=True)
    settings = ", ".join(f"{name} = {literal}" for name, literal in named)
    where = f"{pair.target.named([gap.target.name])} LIMIT {gap.count}"
    return [f"UPDATE {pair.target.digest.table} SET {settings} WHERE {where}"]


def replacing(pair: Pair, gap: Gap, values: Row) -> list[str]:
    """The same for a missing or different row, without the rows of the target that have a unique key of it."""
    return [
        *([_delete(pair, gap)] if gap.target is not None else []),
        *[_insert(pair, values, "REPLACE")] * gap.count,
    ]


def _insert(pair: Pair, values: Row, verb: str) -> str:
    names, literals = ", ".join(_names(pair)), ", ".join(_literals(pair, values))
    return f"{verb} INTO {pair.target.digest.table} ({names}) VALUES ({literals})"


def _delete(pair: Pair, gap: Gap) -> str:
    assert gap.target is not None
    where = f"{pair.target.named([gap.target.name])} LIMIT {gap.count}"
    return f"DELETE FROM {pair.target.digest.table} WHERE {where}"


def _names(pair: Pair) -> list[str]:
    return [quoted(target.name).decode() for _, target in _written(pair)]


def _literals(pair: Pair, values: Row) -> list[str]:
    columns = _written(pair)
    return [_literal(*both, value) for both, value in zip(columns, values, strict=True)]


def _written(pair: Pair) -> list[tuple[CatalogColumn, CatalogColumn]]:
    both = ((pair.source.table.columns[n], pair.target.table.columns[n]) for n in pair.columns)
    return [(source, target) for source, target in both if not target.generated]


def _read(column: CatalogColumn, other: CatalogColumn) -> str:
    name, base = quoted(column.name).decode(), column.base_type
    if base == "bit" or _is_same_label(column, other):
        return whole_number(name)
    if base == "float":
        return f"CAST({name} AS DOUBLE)"
    if base == "json":
        return f"HEX(CONVERT({name} USING utf8mb4))"
    if base in _BYTES or column.charset or (base in _ADDRESSES and other.base_type != base):
        return f"HEX({name})"
    return f"CAST({name} AS CHAR)"


def _literal(column: CatalogColumn, other: CatalogColumn, value: object) -> str:
    if value is None:
        return "NULL"
    text = text_of(value)
    base = column.base_type
    if base == "float" and other.float_max:
        limit = np.float32(other.float_max)  # as stored, which may be above the limit
        if abs(np.float32(text)) == limit:
            return f"{float(text) / abs(float(text)) * other.float_max:.17e}"
    if base in _NUMBERS or _is_same_label(column, other):
        return number(text)
    if base in _BYTES or (base in _ADDRESSES and other.base_type != base):
        return hex_bytes(text.lower())
    if base == "json" or column.charset:
        return _characters(bytes.fromhex(text), column.charset or "utf8mb4", other)
    return f"'{escaped(text.encode()).decode()}'"


def _characters(found: bytes, charset: str, other: CatalogColumn) -> str:
    if other.base_type in _BYTES:
        return f"x'{found.hex()}'"
    if other.base_type == "json" and charset in _UTF8 and (by := by_expression(found)):
        return by.decode()
    if charset in _UTF8:
        try:
            text = found.decode()
        except UnicodeDecodeError:
            text = "\0"
        if _PRINTABLE.fullmatch(text):
            return f"'{escaped(found).decode()}'"
    return characters(found.hex(), charset)


def _is_same_label(column: CatalogColumn, other: CatalogColumn) -> bool:
    is_label = column.is_labelled and column.base_type == other.base_type
    return is_label and column.type_text == other.type_text
