"""Writes one value of a record as JSON: the forms of columns. ``consumer.format.columns`` chooses them.

A column is a line of ``columns``: ``cell form parameter fallback text text_end epoch epoch_end``.

    cell        its place in an image
    parameter   DECIMAL: scale; DATETIME, TIME: microseconds in a unit, or below 0 units in a microsecond; binary: 1 for
                base64 in URLs; an integer in a string: the zeros of 0
    fallback    for a date that no calendar has, or that the form can't hold: null, the text ``epoch`` to ``epoch_end``,
                its own text, or stop
    epoch       ENUM_NUMBER, SET_BITS: the table of labels, see ``json_labels``
    text        what is before the value in ``fixed``: a comma, the name and a colon, constants of the view

A status other than ``OK`` means that the value has no form: the options say to stop.
"""

import numpy as np

from millrace.characters import (
    CLOSING_BRACE,
    CLOSING_BRACKET,
    COMMA,
    OPENING_BRACKET,
    QUOTE,
    ZERO,
)
from millrace.consumer.kernel import json_times
from millrace.consumer.kernel.compiled import Bytes, Hashes, Ints, compiled_plain, int64
from millrace.consumer.kernel.digits import (
    decimal_double,
    put_decimal_with,
    put_number,
    put_signed,
    read_short,
)
from millrace.consumer.kernel.json_doubles import put_double, put_floating
from millrace.consumer.kernel.json_labels import label_number, put_label_array, set_bits
from millrace.consumer.kernel.json_text import (
    BASE64,
    BASE64_URL_SAFE,
    put_base64,
    put_bytes,
    put_document,
    put_hex,
    put_latin1,
    put_plain,
    put_raw_document,
    put_string,
)
from millrace.consumer.kernel.json_wkt import put_wkt
from millrace.consumer.kernel.walk import BYTES, DOUBLE, INT, NULL, read_long

CELL, FORM, PARAMETER, FALLBACK, TEXT, TEXT_END, EPOCH, EPOCH_END = range(8)
COLUMN_WIDTH = 8

# forms
INTEGER, TEXT_FORM, FLOATING, DECIMAL_NUMBER, DECIMAL_STRING, DECIMAL_BYTES = 0, 1, 2, 3, 4, 5
DECIMAL_DOUBLE, UNSIGNED_AS_SIGNED, BOOLEAN, BITS, BITS_NUMBER, BINARY = 6, 7, 8, 9, 10, 11
BINARY_HEX, DOCUMENT, COMPACT_DOCUMENT, PLAIN = 12, 13, 14, 26
TIME_OF_DAY = 27  # milliseconds
# of Maxwell: a SET as an array, JSON as it is, a geometry as WKT
LABELS, RAW_DOCUMENT, WKT = 28, 29, 30
# of Canal: strings; a label as its number or bits, bytes as the characters of Latin-1
INTEGER_STRING, FLOATING_STRING, BITS_STRING = 31, 32, 33
ENUM_NUMBER, SET_BITS, LATIN1 = 34, 35, 36
DATE_DAYS, DATE_ISO, DATE_PLAIN = 15, 16, 17
TIME_UNITS, TIME_ISO = 18, 19
DATETIME_UNITS, DATETIME_ISO, ZONED = 20, 21, 22
GEOMETRY, POINT_GEOMETRY, VECTOR = 23, 24, 25

# fallbacks
AS_NULL, AS_EPOCH, AS_TEXT, STOP = 0, 1, 2, 3

# status
OK, UNDECODABLE, NO_DATE = 0, 1, 2

VALUE_BYTES_MAX = 100  # DECIMAL(65) in quotes, a point's two doubles beside its bytes

_N, _U, _L = 110, 117, 108
_POINT_BYTES = 21
_BIT_BYTES_MAX, _BITS_TEXT_BYTES_MAX = 8, 16
_MS, _INT32_MAX = 1000, 2**31 - 1
_X = np.frombuffer(b'{"x":', np.uint8)
_Y = np.frombuffer(b',"y":', np.uint8)
_WKB_FIRST = np.frombuffer(b'{"wkb":', np.uint8)
_WKB_NEXT = np.frombuffer(b',"wkb":', np.uint8)
_SRID = np.frombuffer(b',"srid":', np.uint8)
_TRUE = np.frombuffer(b"true", np.uint8)
_FALSE = np.frombuffer(b"false", np.uint8)
_ZERO_BYTES = np.frombuffer(b'"AA=="', np.uint8)  # one byte in base64


@compiled_plain
def put_null(out: Bytes, at: int) -> int:
    """Write ``null``."""
    out[at] = _N
    out[at + 1] = _U
    out[at + 2] = _L
    out[at + 3] = _L
    return at + 4


@compiled_plain
def _put_decimal_bytes(out: Bytes, at: int, data: Bytes, start: int, end: int) -> int:
    """Write a two's complement number in base64, with as few bytes as it needs."""
    while end - start > 1:
        head, sign = data[start], data[start + 1] & 0x80
        if not ((head == 0 and sign == 0) or (head == 0xFF and sign != 0)):
            break
        start += 1
    if end == start:
        return put_bytes(out, at, _ZERO_BYTES, 0, len(_ZERO_BYTES))
    return put_base64(out, at, data, start, end, BASE64)


@compiled_plain
def _bits_number(data: Bytes, start: int, end: int) -> np.uint64:
    value = np.uint64(0)
    for place in range(start, end):
        value = value << np.uint64(8) | np.uint64(data[place])
    return value


@compiled_plain
def _put_bits(out: Bytes, at: int, data: Bytes, start: int, end: int) -> int:
    """Write a BIT(n) in base64, the lowest byte first."""
    # turned round after the place of the text
    turned = at + _BITS_TEXT_BYTES_MAX
    count = min(end - start, _BIT_BYTES_MAX)
    for place in range(count):
        out[turned + place] = data[end - 1 - place]
    return put_base64(out, at, out, turned, turned + count, BASE64)


@compiled_plain
def signed_int(data: Bytes, start: int) -> int:
    """A number of four bytes, the lowest first; Debezium's SRID is an int32."""
    value = int64(0)
    for place in range(4):
        value |= int64(data[start + place]) << (8 * place)
    return value - (int64(1) << 32) if value >> 31 else value


@compiled_plain
def _put_geometry(out: Bytes, at: int, data: Bytes, start: int, end: int, is_point: bool) -> int:
    """Write ``{wkb, srid}``, of a POINT with x and y; an SRID of 0 as null."""
    srid = int64(0)
    if end - start >= 4:
        srid = signed_int(data, start)
        start += 4
    if is_point:
        at = put_bytes(out, at, _X, 0, len(_X))
        at = put_floating(out, at, data, start + 5, DOUBLE)
        at = put_bytes(out, at, _Y, 0, len(_Y))
        at = put_floating(out, at, data, start + 13, DOUBLE)
        at = put_bytes(out, at, _WKB_NEXT, 0, len(_WKB_NEXT))
    else:
        at = put_bytes(out, at, _WKB_FIRST, 0, len(_WKB_FIRST))
    at = put_base64(out, at, data, start, end, BASE64)
    at = put_bytes(out, at, _SRID, 0, len(_SRID))
    at = put_signed(out, at, srid) if srid else put_null(out, at)
    out[at] = CLOSING_BRACE
    return at + 1


@compiled_plain
def _put_vector(out: Bytes, at: int, data: Bytes, start: int, end: int) -> int:
    out[at] = OPENING_BRACKET
    at += 1
    for place in range(start, end - 3, 4):
        if place > start:
            out[at] = COMMA
            at += 1
        at = put_floating(out, at, data, place, 0)
    out[at] = CLOSING_BRACKET
    return at + 1


@compiled_plain
def units_of(us: int, unit: int, is_floored: bool) -> int:
    """Microseconds in units of ``unit``, or ``-unit`` of them in a microsecond."""
    if unit < 0:
        return us * -unit
    units = us // unit  # rounds down
    if not is_floored and us < 0 and units * unit != us:
        units += 1
    return units


@compiled_plain
def read_time(data: Bytes, start: int, end: int, form: int, unit: int) -> tuple[int, bool]:
    """Microseconds of a TIME, 0 in ISO 8601, and whether the form holds it.

    Milliseconds have 32 bits; microseconds and nanoseconds are any time that MySQL has.
    """
    if form == TIME_UNITS:
        has_value = json_times.is_time(data, start, end)
    else:
        has_value = json_times.is_time_of_day(data, start, end)
    us = int64(0)
    if has_value and form != TIME_ISO:
        us = json_times.time_us(data, start, end)
        has_value = unit < _MS or abs(us) <= _INT32_MAX * _MS
    return us, has_value


@compiled_plain
def read_date(data: Bytes, start: int, end: int, form: int, unit: int) -> tuple[int, bool]:
    """Microseconds of a DATETIME in units, else 0, and whether the form holds the date."""
    us = int64(0)
    has_value = json_times.is_date(data, start, end, form == DATETIME_UNITS)
    if has_value and form == DATETIME_UNITS:
        us = json_times.datetime_us(data, start, end)
        has_value = unit > 0 or abs(us) <= json_times.NANOSECONDS_US_MAX
    return us, has_value


@compiled_plain
def _put_fallback(
    out: Bytes,
    at: int,
    data: Bytes,
    start: int,
    end: int,
    columns: Ints,
    number: int,
    fixed: Bytes,
) -> tuple[int, int]:
    """For a date that no calendar has, and for a date or time that the form can't hold."""
    fallback = columns[number, FALLBACK]
    if fallback == STOP:
        return at, NO_DATE
    if fallback == AS_NULL:
        return put_null(out, at), OK
    if fallback == AS_EPOCH:
        return put_bytes(out, at, fixed, columns[number, EPOCH], columns[number, EPOCH_END]), OK
    return put_plain(out, at, data, start, end), OK


@compiled_plain
def _put_time(
    out: Bytes,
    at: int,
    data: Bytes,
    start: int,
    end: int,
    columns: Ints,
    number: int,
    fixed: Bytes,
) -> tuple[int, int]:
    form, unit = columns[number, FORM], columns[number, PARAMETER]
    us, has_value = read_time(data, start, end, form, unit)
    if not has_value:
        return _put_fallback(out, at, data, start, end, columns, number, fixed)
    if form == TIME_ISO:
        return json_times.put_iso(out, at, data, start, end, True), OK
    return put_signed(out, at, units_of(us, unit, False)), OK


@compiled_plain
def _put_date(
    out: Bytes,
    at: int,
    data: Bytes,
    start: int,
    end: int,
    columns: Ints,
    number: int,
    fixed: Bytes,
) -> tuple[int, int]:
    form, unit = columns[number, FORM], columns[number, PARAMETER]
    us, has_value = read_date(data, start, end, form, unit)
    if not has_value:
        return _put_fallback(out, at, data, start, end, columns, number, fixed)
    if form == DATE_PLAIN:
        return put_plain(out, at, data, start, end), OK
    if form == DATE_DAYS:
        return put_signed(out, at, json_times.days_of(data, start)), OK
    if form == DATETIME_UNITS:
        return put_signed(out, at, units_of(us, unit, True)), OK
    return json_times.put_iso(out, at, data, start, end, form == DATETIME_ISO), OK


@compiled_plain
def _put_decimal_or_bits(
    out: Bytes,
    at: int,
    data: Bytes,
    start: int,
    end: int,
    form: int,
    scale: int,
    work: Hashes,
) -> int:
    if form == DECIMAL_NUMBER:
        return put_decimal_with(out, at, data, start, end, scale, work)
    if form == DECIMAL_STRING:
        out[at] = QUOTE
        at = put_decimal_with(out, at + 1, data, start, end, scale, work)
        out[at] = QUOTE
        return at + 1
    if form == DECIMAL_BYTES:
        return _put_decimal_bytes(out, at, data, start, end)
    if form == DECIMAL_DOUBLE:
        return put_double(out, at, decimal_double(out, at, data, start, end, scale, work))
    if form == UNSIGNED_AS_SIGNED:
        return put_signed(out, at, read_short(data, max(start, end - 8), end))
    if form == BITS_NUMBER:
        return put_number(out, at, _bits_number(data, start, end))
    if form == BITS:
        return _put_bits(out, at, data, start, end)
    if _bits_number(data, start, end) != 0:  # BOOLEAN
        return put_bytes(out, at, _TRUE, 0, len(_TRUE))
    return put_bytes(out, at, _FALSE, 0, len(_FALSE))


@compiled_plain
def _put_in_quotes(
    out: Bytes,
    at: int,
    data: Bytes,
    kind: int,
    start: int,
    end: int,
    columns: Ints,
    number: int,
    fixed: Bytes,
) -> int:
    """A number as a string."""
    form = columns[number, FORM]
    out[at] = QUOTE
    at += 1
    if form == INTEGER_STRING:
        value, _ = read_long(data, start, end)
        if value == 0:
            for _ in range(columns[number, PARAMETER]):
                out[at] = ZERO
                at += 1
        else:
            at = put_signed(out, at, value)
    elif form == FLOATING_STRING:
        at = put_floating(out, at, data, start, kind)
    elif form == BITS_STRING:
        at = put_number(out, at, _bits_number(data, start, end))
    elif kind == INT:  # of a label that is not text
        value, _ = read_long(data, start, end)
        at = put_number(out, at, np.uint64(value))
    elif form == ENUM_NUMBER:
        at = put_signed(out, at, label_number(data, start, end, fixed, columns[number, EPOCH]))
    else:
        at = put_number(out, at, set_bits(data, start, end, fixed, columns[number, EPOCH]))
    out[at] = QUOTE
    return at + 1


@compiled_plain
def put_value(
    out: Bytes,
    at: int,
    data: Bytes,
    kind: int,
    start: int,
    end: int,
    columns: Ints,
    number: int,
    fixed: Bytes,
    work: Hashes,
) -> tuple[int, int]:
    """Write the value of a cell in the column ``number``: (position after it, status)."""
    form = columns[number, FORM]
    if kind == NULL:
        return put_null(out, at), OK
    if form == INTEGER:
        value, _ = read_long(data, start, end)
        return put_signed(out, at, value), OK
    if form == TEXT_FORM:
        if kind == BYTES:
            if columns[number, FALLBACK] == STOP:
                return at, UNDECODABLE
            return put_base64(out, at, data, start, end, BASE64), OK
        return put_string(out, at, data, start, end), OK
    if form == FLOATING:
        return put_floating(out, at, data, start, kind), OK
    if DECIMAL_NUMBER <= form <= BITS_NUMBER:
        return _put_decimal_or_bits(
            out, at, data, start, end, form, columns[number, PARAMETER], work
        ), OK
    if form >= DATE_DAYS and form <= ZONED and form != TIME_UNITS and form != TIME_ISO:
        return _put_date(out, at, data, start, end, columns, number, fixed)
    if form in (TIME_ISO, TIME_UNITS, TIME_OF_DAY):
        return _put_time(out, at, data, start, end, columns, number, fixed)
    if form == PLAIN:
        return put_plain(out, at, data, start, end), OK
    if form == BINARY:
        letters = BASE64_URL_SAFE if columns[number, PARAMETER] else BASE64
        return put_base64(out, at, data, start, end, letters), OK
    if form == BINARY_HEX:
        return put_hex(out, at, data, start, end), OK
    if form in (DOCUMENT, COMPACT_DOCUMENT):
        return put_document(out, at, data, start, end, form == COMPACT_DOCUMENT), OK
    if form == VECTOR:
        return _put_vector(out, at, data, start, end), OK
    if form == LABELS:
        if kind == BYTES:
            return at, UNDECODABLE
        return put_label_array(out, at, data, start, end), OK
    if form == RAW_DOCUMENT:
        return put_raw_document(out, at, data, start, end), OK
    if form == WKT:
        return put_wkt(out, at, data, start, end, work), OK
    if form == LATIN1:
        return put_latin1(out, at, data, start, end), OK
    if form >= INTEGER_STRING:
        return _put_in_quotes(out, at, data, kind, start, end, columns, number, fixed), OK
    is_point = form == POINT_GEOMETRY and end - start == _POINT_BYTES + 4
    return _put_geometry(out, at, data, start, end, is_point), OK
