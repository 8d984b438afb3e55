"""The columns of a table as the kernel's rows of numbers (``kernel.program``), or only their sizes.

A table that is not published needs only the sizes of its values, so that its rows can be counted. It needs no names,
labels or charsets. Some sizes are unknown: the fraction of MariaDB's times from before 10.1 is in the row but not in
the table map, and an unknown type can have any size. The rows of these tables cannot be counted, and need not be.
"""

import numpy as np

from millrace.errors import Fatal
from millrace.producer.convert.arrays import KernelArrays, Numbers
from millrace.producer.convert.charset_tables import CharsetTables
from millrace.producer.convert.kernel import charsets
from millrace.producer.convert.kernel import program as p
from millrace.schemas.gtid import Flavour
from millrace.schemas.record.avro_schema import column_branches
from millrace.schemas.table.structure import Column, TableSchema, TypeCode
from millrace.schemas.table.table_map import read_real_types

_FIXED = {
    TypeCode.FLOAT: (p.RAW, 4),
    TypeCode.DOUBLE: (p.RAW, 8),
    TypeCode.YEAR: (p.YEAR, 1),
    TypeCode.DATE: (p.DATE, 3),
    TypeCode.NEWDATE: (p.DATE, 3),
    TypeCode.TIME: (p.OLD_TIME, 3),
    TypeCode.DATETIME: (p.OLD_DATETIME, 8),
    TypeCode.TIMESTAMP: (p.OLD_TIMESTAMP, 4),
}
_INTEGERS = {
    TypeCode.TINY: (p.INT8, p.UINT8, 1),
    TypeCode.SHORT: (p.INT16, p.UINT16, 2),
    TypeCode.INT24: (p.INT24, p.UINT24, 3),
    TypeCode.LONG: (p.INT32, p.UINT32, 4),
    TypeCode.LONGLONG: (p.INT64, p.UINT64, 8),
}
_FRACTIONS = {
    TypeCode.TIME2: (p.TIME2, 3),
    TypeCode.DATETIME2: (p.DATETIME2, 5),
    TypeCode.TIMESTAMP2: (p.TIMESTAMP2, 4),
}
_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4)


class ColumnProgram:
    """``columns`` (kernel.program) and ``reserve_bytes``; the labels are added to the arrays.

    Fatal MR-6003 for more columns in the key than the kernel has places for, or more labels than a SET has bits.
    """

    def __init__(self, schema: TableSchema, arrays: KernelArrays, tables: CharsetTables) -> None:
        _check_counts(schema)
        self._arrays = arrays
        self._charsets = tables
        self.reserve_bytes = 64
        keys = {column: place for place, column in enumerate(schema.primary_key)}
        self.columns: Numbers = np.zeros((len(schema.columns), p.COLUMN_WIDTH), np.int64)
        for index, column in enumerate(schema.columns):
            row = self.columns[index]
            branches = column_branches(column)
            first = 1 if column.nullable else 0
            is_union = len(branches) > 1
            row[p.NULLABLE] = first
            row[p.BRANCH] = 2 * first if is_union else -1
            row[p.OTHER] = 2 * first + 2 if len(branches) - first > 1 else -1
            row[p.KEY] = keys.get(index, -1)
            self._fill(row, column)

    def _fill(self, row: Numbers, column: Column) -> None:
        type_ = column.type
        code = type_.code
        self.reserve_bytes += p.FIXED_VALUE_BYTES_MAX
        row[p.SIZE], row[p.IS_PREFIXED] = _size(code, type_.parameter)
        if code in _FIXED:
            row[p.OP], _ = _FIXED[code]
        elif code in _INTEGERS:
            signed, unsigned, _ = _INTEGERS[code]
            row[p.OP] = unsigned if type_.is_unsigned else signed
        elif code in _FRACTIONS:
            row[p.OP], _ = _FRACTIONS[code]
            row[p.A] = type_.fraction_digits
        elif code is TypeCode.NEWDECIMAL:
            row[p.OP] = p.DECIMAL
            row[p.A], row[p.B] = type_.precision, type_.scale
        elif code is TypeCode.BIT:
            row[p.OP] = p.BIT
        elif code in (TypeCode.ENUM, TypeCode.SET):
            self._fill_labels(row, column)
        elif code is TypeCode.JSON:
            row[p.OP] = p.JSON
        elif type_.is_compressed:
            self._fill_compressed(row, column)
        elif type_.is_text:
            self._fill_text(row, column)
        elif code is TypeCode.STRING:
            row[p.OP], row[p.A] = p.BYTES_PADDED, type_.length_bytes_max
            self.reserve_bytes += type_.length_bytes_max
        else:
            row[p.OP] = p.BYTES

    def _fill_text(self, row: Numbers, column: Column) -> None:
        assert column.type.text is not None
        entry = self._charsets.entry(column.type.text.charset)
        if entry.kind in (charsets.ASCII, charsets.UTF8MB3, charsets.UTF8MB4):
            row[p.OP], row[p.A] = p.TEXT, entry.bytes_max
            return
        row[p.OP], row[p.A] = p.TEXT_CONVERTED, entry.kind
        row[p.B], row[p.C], row[p.D] = entry.first, entry.second, entry.has_ascii

    def _fill_compressed(self, row: Numbers, column: Column) -> None:
        # the prefix is that of the declared type; its length includes the header byte
        row[p.OP], row[p.A] = p.COMPRESSED, -1
        if column.type.is_text:
            assert column.type.text is not None
            entry = self._charsets.entry(column.type.text.charset)
            row[p.A], row[p.B], row[p.C] = entry.kind, entry.first, entry.second
            row[p.D] = entry.bytes_max

    def _fill_labels(self, row: Numbers, column: Column) -> None:
        is_enum = column.type.code is TypeCode.ENUM
        row[p.OP] = p.ENUM if is_enum else p.SET
        row[p.A], row[p.B] = self._arrays.label_count, len(column.type.labels)
        branch = bytes([row[p.BRANCH]])
        longest = total = 0
        for label in column.type.labels:
            if label is None:
                self._arrays.add_label(0, -1)
                continue
            content = branch + avro_string(label) if is_enum else label.encode()
            start = self._arrays.add_blob(content)
            self._arrays.add_label(start, start + len(content))
            longest = max(longest, len(content))
            total += len(content) + 1
        # a text could not show whether an empty label is the only one or one of several
        row[p.C] = not is_enum and "" not in column.type.labels
        self.reserve_bytes += longest if is_enum else total


def _check_counts(schema: TableSchema) -> None:
    key = len(schema.primary_key)
    if key > p.KEY_COLUMNS_MAX:
        what = f"the key of {schema.full_name} has {key} columns, more than {p.KEY_COLUMNS_MAX}"
        raise Fatal("MR-6003", what, table=schema.full_name)
    for column in schema.columns:
        labels = len(column.type.labels)
        if column.type.code is TypeCode.SET and labels > p.SET_LABELS_MAX:
            what = f"the SET {schema.full_name}.{column.name} has {labels} labels, more than {p.SET_LABELS_MAX}"
            raise Fatal("MR-6003", what, table=schema.full_name)


def column_sizes(body: bytes, *, flavour: Flavour) -> Numbers:
    """SIZE and IS_PREFIXED of each column in the body of a TABLE_MAP event. Fatal MR-6003 for a damaged body.

    SIZE is -1 from the first column on whose size is unknown.
    """
    count, types = read_real_types(body, flavour=flavour)
    if not count:  # a row would have no byte, and an event any number of rows
        raise Fatal("MR-6003", "a table map has no columns")
    rows: Numbers = np.zeros((count, p.COLUMN_WIDTH), np.int64)
    rows[:, p.SIZE] = -1
    for row, (code, parameter) in zip(rows, types, strict=False):
        row[p.SIZE], row[p.IS_PREFIXED] = _size(code, parameter)
    return rows


def _size(code: TypeCode, parameter: int) -> tuple[int, bool]:
    if code in _PLAIN_SIZES:
        return _PLAIN_SIZES[code], False
    if code in _FRACTIONS:
        return _FRACTIONS[code][1] + (parameter + 1) // 2, False
    if code in _LENGTH_IN_METADATA:
        return parameter, True
    if code in (
        TypeCode.VARCHAR,
        TypeCode.VAR_STRING,
        TypeCode.VARCHAR_COMPRESSED,
        TypeCode.STRING,
    ):
        return (1 if parameter < 256 else 2), True
    if code is TypeCode.NEWDECIMAL:
        return _decimal_bytes(parameter >> 8, parameter & 255), False
    if code is TypeCode.BIT:
        return (parameter + 7) // 8, False
    return parameter, False  # ENUM, SET


def _decimal_bytes(precision: int, scale: int) -> int:
    return sum(
        4 * (digits // 9) + _DIGIT_BYTES[digits % 9] for digits in (precision - scale, scale)
    )


_PLAIN_SIZES: dict[TypeCode, int] = {
    **{code: size for code, (_, size) in _FIXED.items()},
    **{code: size for code, (_, _, size) in _INTEGERS.items()},
}
_LENGTH_IN_METADATA = frozenset(
    {
        TypeCode.BLOB,
        TypeCode.BLOB_COMPRESSED,
        TypeCode.JSON,
        TypeCode.GEOMETRY,
        TypeCode.VECTOR,
    }
)


def avro_string(text: str) -> bytes:
    content = text.encode()
    rest = 2 * len(content)
    size = b""
    while rest >= 128:
        size += bytes([rest & 127 | 128])
        rest >>= 7
    return size + bytes([rest]) + content
