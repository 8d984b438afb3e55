"""The structure of a table from the server's catalogue: the same ``TableSchema`` that its table map gives.

A table map has the types as the binlog encodes them. The catalogue has them as SQL. So each column type is translated
with the parameter that its table map would have (``schemas.table.structure``). Integration tests compare both for every
type on both servers.

MariaDB's hidden columns of UNIQUE keys over long columns (``DB_ROW_HASH_1``) are in the table map and not in the
catalogue. They come last, are nullable, and no SELECT can read them: they are NULL in a snapshot.

Not done here: asking the server (``drivers.mysql.catalog``).
"""

import re
from collections.abc import Iterable, Mapping

from millrace.drivers.mysql.catalog import CatalogColumn, CatalogTable
from millrace.errors import Fatal
from millrace.schemas.gtid import Flavour
from millrace.schemas.table.structure import (
    BINARY,
    BINARY_COLLATION_ID,
    Column,
    ColumnType,
    TableSchema,
    TextEncoding,
    TypeCode,
)

_INTEGERS = {
    "tinyint": TypeCode.TINY,
    "smallint": TypeCode.SHORT,
    "mediumint": TypeCode.INT24,
    "int": TypeCode.LONG,
    "bigint": TypeCode.LONGLONG,
}
_FRACTIONAL = {
    "time": TypeCode.TIME2,
    "datetime": TypeCode.DATETIME2,
    "timestamp": TypeCode.TIMESTAMP2,
}
_BLOBS = {
    "tinytext": 1,
    "text": 2,
    "mediumtext": 3,
    "longtext": 4,
    "tinyblob": 1,
    "blob": 2,
    "mediumblob": 3,
    "longblob": 4,
}
_ADDRESSES = {"uuid": 16, "inet6": 16, "inet4": 4}
_GEOMETRIES = {
    "geometry": 0,
    "point": 1,
    "linestring": 2,
    "polygon": 3,
    "multipoint": 4,
    "multilinestring": 5,
    "multipolygon": 6,
    "geometrycollection": 7,
    "geomcollection": 7,
}
_SET_BYTES = (1, 2, 3, 4, 8)
_LABEL = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
_ESCAPED = {"\\n": "\n", "\\r": "\r", "\\0": "\0", "\\\\": "\\", "\\'": "'"}


def table_schema(
    table: CatalogTable, flavour: Flavour, collations: Mapping[str, int]
) -> TableSchema:
    """The structure that the table map of the table's next change has. Fatal MR-6005 for an unknown type.

    ``collations``: the numbers of collations by name.
    """
    columns = [_column(column, collations, flavour) for column in table.columns.values()]
    columns += _hashes(table)
    indexes = {name: index for index, name in enumerate(table.columns)}
    primary = table.primary
    return TableSchema(
        table.database,
        table.table,
        tuple(columns),
        tuple(indexes[name] for name in primary.columns) if primary else (),
        (primary.lengths or (0,) * len(primary.columns)) if primary else (),
    )


def _hashes(table: CatalogTable) -> Iterable[Column]:
    count = sum(key.is_hash for key in table.unique_keys)
    type_ = ColumnType(TypeCode.LONGLONG, is_unsigned=True)
    return (Column(f"DB_ROW_HASH_{number}", type_, True) for number in range(1, count + 1))


def _column(column: CatalogColumn, collations: Mapping[str, int], flavour: Flavour) -> Column:
    is_visible = flavour is Flavour.MARIADB or not column.is_invisible
    return Column(column.name, _type(column, collations, flavour), column.nullable, is_visible)


def _type(column: CatalogColumn, collations: Mapping[str, int], flavour: Flavour) -> ColumnType:
    base, numbers = column.base_type, _numbers(column.full_type)
    is_unsigned = " unsigned" in column.full_type
    if base in _INTEGERS:
        return ColumnType(_INTEGERS[base], is_unsigned=is_unsigned)
    if base in _FRACTIONAL:
        return ColumnType(_FRACTIONAL[base], numbers[0] if numbers else 0)
    if base == "decimal":
        return ColumnType(TypeCode.NEWDECIMAL, numbers[0] << 8 | numbers[1], is_unsigned)
    if base == "bit":
        return ColumnType(TypeCode.BIT, numbers[0])
    if base in _ADDRESSES:
        return ColumnType(TypeCode.STRING, _ADDRESSES[base], text=_BYTES)
    if base in _GEOMETRIES:
        return ColumnType(TypeCode.GEOMETRY, 4, extent=_GEOMETRIES[base])
    if base in ("enum", "set"):
        return _labelled(column, collations)
    match base:
        case "float":
            return ColumnType(TypeCode.FLOAT, 4, is_unsigned)
        case "double":
            return ColumnType(TypeCode.DOUBLE, 8, is_unsigned)
        case "year":
            return ColumnType(TypeCode.YEAR, is_unsigned=True)
        case "date":
            return ColumnType(TypeCode.DATE)
        case "vector":
            return ColumnType(TypeCode.VECTOR, 4, extent=numbers[0])
        case "json" if flavour is Flavour.MYSQL:
            return ColumnType(TypeCode.JSON, 4)
    return _string(column, collations)


def _numbers(full_type: str) -> tuple[int, ...]:
    numbers = re.match(r"\w+\(([\d,]+)\)", full_type)
    return tuple(map(int, numbers[1].split(","))) if numbers else ()


_BYTES = TextEncoding(BINARY, BINARY_COLLATION_ID)


def _string(column: CatalogColumn, collations: Mapping[str, int]) -> ColumnType:
    base, text = column.base_type, _text(column, collations)
    is_compressed = "COMPRESSED" in column.full_type.upper()  # MariaDB's
    if base in _BLOBS:
        code = TypeCode.BLOB_COMPRESSED if is_compressed else TypeCode.BLOB
        return ColumnType(code, _BLOBS[base], text=text)
    if base in ("varchar", "varbinary"):
        if is_compressed:  # one byte names the method
            return ColumnType(TypeCode.VARCHAR_COMPRESSED, column.octets + 1, text=text)
        return ColumnType(TypeCode.VARCHAR, column.octets, text=text)
    if base in ("char", "binary"):
        return ColumnType(TypeCode.STRING, column.octets, text=text)
    raise Fatal("MR-6005", f"the type {column.full_type} of {column.name} is not supported")


def _labelled(column: CatalogColumn, collations: Mapping[str, int]) -> ColumnType:
    labels = _labels(column.full_type)
    text = _text(column, collations)
    if column.base_type == "enum":
        return ColumnType(TypeCode.ENUM, 1 if len(labels) < 256 else 2, text=text, labels=labels)
    size = next(size for size in _SET_BYTES if 8 * size >= len(labels))
    return ColumnType(TypeCode.SET, size, text=text, labels=labels)


def _labels(full_type: str) -> tuple[str | None, ...]:
    """The labels; None for one that equals an earlier one."""
    labels: list[str | None] = []
    for label in _LABEL.findall(full_type):
        text = re.sub(r"\\.|''", lambda part: _ESCAPED.get(part[0], part[0][-1]), label)
        labels.append(None if text in labels else text)
    return tuple(labels)


def _text(column: CatalogColumn, collations: Mapping[str, int]) -> TextEncoding:
    if not column.charset:
        return _BYTES
    return TextEncoding(column.charset, collations[column.collation])
