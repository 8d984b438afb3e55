"""The SELECT list of a table, and how its values are packed into the row images that the converter's kernel converts.

The server is asked for raw bytes: ``character_set_results`` is binary, so a text comes as it is stored. Each value is
packed as in a row image of the binlog (``kernel.images``). So charsets, labels and branches are the converter's work,
and a record has the bytes that it would have from the binlog. Where the server's text is what the record holds, the
converter copies it:

    column                     selected as          in the image               converter
    integers, YEAR             c                    little-endian              as in the binlog
    ENUM, SET                  its number           little-endian              as in the binlog
    FLOAT, DOUBLE              CAST(c AS DOUBLE)    IEEE 754                   as in the binlog
    DECIMAL                    c                    packed                     as in the binlog
    dates and times            c                    the text                   copied
    text and bytes             c                    length, bytes              as in the binlog
    compressed                 c                    length, bytes              as if not compressed
    JSON of MySQL              c                    length, text               copied, as UTF-8
    UUID, INET4, INET6         their bytes          length, bytes              as in the binlog
    hidden hash of MariaDB     NULL                 —                          null

Pure.
"""

from dataclasses import dataclass, replace

import numpy as np

from millrace.drivers.mysql.catalog import CatalogTable
from millrace.producer.convert.arrays import KernelArrays, Numbers
from millrace.producer.convert.charset_tables import CharsetTables
from millrace.producer.convert.column_program import ColumnProgram
from millrace.producer.convert.kernel import program as p
from millrace.producer.convert.kernel.decimals import packed_size
from millrace.producer.snapshot.kernel import images as i
from millrace.schemas.sql.quoting import quoted
from millrace.schemas.table.structure import (
    FRACTION_CODES,
    INTEGER_BYTES,
    LABELLED_CODES,
    Column,
    TableSchema,
    TypeCode,
)

# raw bytes, UTC, dates as they are stored, CHAR without its padding
SESSION = (
    "SET NAMES utf8mb4",
    "SET SESSION character_set_results = binary, time_zone = '+00:00', sql_mode = ''",
)

_PLAIN = {TypeCode.VARCHAR_COMPRESSED: TypeCode.VARCHAR, TypeCode.BLOB_COMPRESSED: TypeCode.BLOB}
_TEXTS = FRACTION_CODES | {TypeCode.DATE}
_PREFIX_BYTES = 4


@dataclass(frozen=True, slots=True)
class Selection:
    """``columns``: the SELECT list. ``packs``: a row for each column, see ``kernel.images``."""

    schema: TableSchema
    columns: str
    packs: Numbers

    @classmethod
    def of(cls, table: CatalogTable, schema: TableSchema) -> "Selection":
        """For a table of the catalogue and its structure."""
        kinds = {name: column.base_type for name, column in table.columns.items()}
        selected = (_selected(column, kinds.get(column.name, "")) for column in schema.columns)
        packs = np.array([_pack(column) for column in schema.columns], np.int64)
        return cls(schema, ", ".join(selected), packs)

    @property
    def margin(self) -> int:
        return (len(self.packs) + 7) // 8 + int(self.packs[:, i.SIZE].sum())


def selection_program(
    schema: TableSchema, arrays: KernelArrays, charsets: CharsetTables
) -> ColumnProgram:
    """The columns for the kernel: as for the binlog, with other operations where the module says so."""
    program = ColumnProgram(_uncompressed(schema), arrays, charsets)
    for row, column in zip(program.columns, schema.columns, strict=True):
        code = column.type.code
        if code in _TEXTS:
            row[p.OP], row[p.SIZE], row[p.IS_PREFIXED] = p.BYTES, _PREFIX_BYTES, 1
        elif code is TypeCode.JSON:
            row[p.OP], row[p.A] = p.TEXT, 4
            row[p.SIZE], row[p.IS_PREFIXED] = _PREFIX_BYTES, 1
        elif row[p.IS_PREFIXED]:
            row[p.SIZE] = _PREFIX_BYTES
    return program


def _uncompressed(schema: TableSchema) -> TableSchema:
    columns = tuple(
        replace(
            column, type=replace(column.type, code=_PLAIN.get(column.type.code, column.type.code))
        )
        for column in schema.columns
    )
    return replace(schema, columns=columns)


def _selected(column: Column, base: str) -> str:
    name, code = quoted(column.name).decode(), column.type.code
    if not base:  # MariaDB's hidden hash
        return "NULL"
    if code in LABELLED_CODES:
        return f"CAST({name} AS UNSIGNED)"
    if code in (TypeCode.FLOAT, TypeCode.DOUBLE):
        return f"CAST({name} AS DOUBLE)"
    if base == "uuid":
        return f"UNHEX(REPLACE(CAST({name} AS CHAR), '-', ''))"
    if base in ("inet4", "inet6"):
        return f"INET6_ATON({name})"
    return name


def _pack(column: Column) -> tuple[int, int, int, int]:
    """The row of ``kernel.images`` for a column."""
    code, type_ = column.type.code, column.type
    if code in INTEGER_BYTES:
        return i.INTEGER, INTEGER_BYTES[code], 0, 0
    if code in LABELLED_CODES:
        return i.INTEGER, type_.parameter, 0, 0
    match code:
        case TypeCode.YEAR:
            return i.YEAR, 1, 0, 0
        case TypeCode.FLOAT:
            return i.FLOAT, 4, 0, 0
        case TypeCode.DOUBLE:
            return i.DOUBLE, 8, 0, 0
        case TypeCode.NEWDECIMAL:
            size = packed_size(type_.precision, type_.scale)
            return i.DECIMAL, size, type_.precision, type_.scale
        case TypeCode.BIT:
            return i.BYTES, (type_.parameter + 7) // 8, 0, 0
    return i.TEXT, _PREFIX_BYTES, 0, 0
