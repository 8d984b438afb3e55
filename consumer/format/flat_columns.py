"""The values of Maxwell and of Canal, by column: the form of each, and what Canal says of its type.

Both keep the texts of the set topic for dates, times and characters. Maxwell's numbers are numbers, a SET is an array,
a geometry is WKT, JSON is JSON. Canal's values are all strings: an ENUM is its number, a SET its bits, and bytes are
the characters of Latin-1.
"""

import struct
from dataclasses import dataclass, replace

from millrace.consumer.format.columns import ValueForm, form_of
from millrace.consumer.kernel import json_values as forms
from millrace.consumer.kernel.json_labels import ENTRY_BYTES, NUMBER_BYTES
from millrace.schemas.table.structure import (
    INTEGER_CODES,
    LABELLED_CODES,
    TEMPORAL_CODES,
    Column,
    ColumnType,
    TypeCode,
)
from millrace.schemas.table.type_text import type_text
from millrace.schemas.view.format_options import DecimalMode, FormatName, FormatOptions

# java.sql.Types
_BIT, _TINYINT, _SMALLINT, _INTEGER, _BIGINT, _REAL, _DOUBLE = -7, -6, 5, 4, -5, 7, 8
_DECIMAL, _CHAR, _VARCHAR, _DATE, _TIME, _TIMESTAMP = 3, 1, 12, 91, 92, 93
_OTHER, _BLOB, _CLOB = 1111, 2004, 2005

_TIMES = {
    TypeCode.DATE: _DATE,
    TypeCode.NEWDATE: _DATE,
    TypeCode.TIME: _TIME,
    TypeCode.TIME2: _TIME,
}
_INTEGERS = {  # bits, type, type of an unsigned value that does not fit
    TypeCode.TINY: (8, _TINYINT, _SMALLINT),
    TypeCode.SHORT: (16, _SMALLINT, _INTEGER),
    TypeCode.INT24: (24, _INTEGER, _INTEGER),
    TypeCode.LONG: (32, _INTEGER, _BIGINT),
    TypeCode.LONGLONG: (64, _BIGINT, _DECIMAL),
}
_YEAR_ZEROS = 4


@dataclass(frozen=True, slots=True)
class JdbcType:
    """Of a value; ``bits``: of an unsigned integer, 0 for others. ``high``: of one whose highest bit is set."""

    if_null: int
    low: int
    bits: int = 0
    high: int = 0

    @property
    def is_fixed(self) -> bool:
        """Whether all values have the same."""
        return self.if_null == self.low and not self.bits


def maxwell_form(column: Column, options: FormatOptions) -> ValueForm:
    """How Maxwell writes the values of a column."""
    code = column.type.code
    if code is TypeCode.SET:
        return ValueForm(forms.LABELS)
    if code is TypeCode.JSON:
        return ValueForm(forms.RAW_DOCUMENT)
    if code is TypeCode.GEOMETRY:
        return ValueForm(forms.WKT)
    return form_of(column, replace(options, name=FormatName.JSON))


def canal_form(column: Column, options: FormatOptions) -> ValueForm:
    """How Canal writes the values of a column."""
    type_ = column.type
    if type_.code is TypeCode.LONGLONG and type_.is_unsigned:
        return ValueForm(forms.DECIMAL_STRING)
    if type_.code in INTEGER_CODES:
        return ValueForm(forms.INTEGER_STRING, parameter=1)
    if type_.code is TypeCode.YEAR:
        return ValueForm(forms.INTEGER_STRING, parameter=_YEAR_ZEROS)
    if type_.code in (TypeCode.FLOAT, TypeCode.DOUBLE):
        return ValueForm(forms.FLOATING_STRING)
    if type_.code is TypeCode.BIT:
        return ValueForm(forms.BITS_STRING)
    if type_.code in LABELLED_CODES:
        form = forms.ENUM_NUMBER if type_.code is TypeCode.ENUM else forms.SET_BITS
        return ValueForm(form, labels=label_table(type_.labels))
    plain = form_of(column, replace(options, name=FormatName.JSON, decimal=DecimalMode.STRING))
    return ValueForm(forms.LATIN1) if plain.form in (forms.BINARY, forms.BINARY_HEX) else plain


def label_table(labels: tuple[str | None, ...]) -> bytes:
    """The table of ``kernel.json_labels``. Of equal labels the first counts; one that is not text has no entry."""
    numbers: dict[bytes, int] = {}
    for number, label in enumerate(labels, 1):
        if label is not None:
            numbers.setdefault(label.encode(), number)
    offset = NUMBER_BYTES + ENTRY_BYTES * len(numbers)
    entries = []
    for text, number in sorted(numbers.items()):
        entries.append(struct.pack("<3I", offset, len(text), number))
        offset += len(text)
    return b"".join((struct.pack("<I", len(numbers)), *entries, *sorted(numbers)))


def mysql_type(type_: ColumnType) -> str:
    """The type in SQL, as far as the set topic has it: without the width that is displayed."""
    if type_.code in LABELLED_CODES:
        labels = ",".join("'" + (label or "").replace("'", "''") + "'" for label in type_.labels)
        return f"{type_text(type_)}({labels})"
    return type_text(type_)


def jdbc_type(type_: ColumnType) -> JdbcType:
    """The type in ``sqlType``."""
    if type_.code in _INTEGERS:
        bits, low, high = _INTEGERS[type_.code]
        return JdbcType(low, low, bits, high) if type_.is_unsigned else JdbcType(low, low)
    if type_.code in TEMPORAL_CODES:
        return _always(_TIMES.get(type_.code, _TIMESTAMP))
    match type_.code:
        case TypeCode.NEWDECIMAL:
            return _always(_DECIMAL)
        case TypeCode.FLOAT:
            return _always(_REAL)
        case TypeCode.DOUBLE:
            return _always(_DOUBLE)
        case TypeCode.BIT:
            return _always(_BIT)
        case TypeCode.YEAR:
            return _always(_VARCHAR)
        case TypeCode.ENUM:
            return _always(_INTEGER)
        case TypeCode.SET:
            return JdbcType(_BLOB, _BIT)
        case TypeCode.JSON:
            return JdbcType(_OTHER, _VARCHAR)
    if not type_.is_text:
        return _always(_BLOB)
    if type_.code in (TypeCode.BLOB, TypeCode.BLOB_COMPRESSED):
        return _always(_CLOB)
    return _always(_CHAR if type_.code is TypeCode.STRING else _VARCHAR)


def _always(code: int) -> JdbcType:
    return JdbcType(code, code)
