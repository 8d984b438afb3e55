"""Writes one value of a record in Avro's binary encoding. ``consumer.format.avro_format`` makes the columns.

A column is a line as in ``kernel.json_values``, and ``NULLABLE``: 1 if its type is a union with null first. ``TEXT``
is what is before the value in ``fixed``: constants of the view. ``EPOCH`` is a value in Avro's encoding.

Numbers are zigzag varints. A text or bytes have their length before them.
"""

import numpy as np

from millrace.characters import BACKSLASH, COLON, COMMA, QUOTE, SPACE
from millrace.consumer.kernel import json_times
from millrace.consumer.kernel.compiled import Bytes, Hashes, Ints, compiled_plain, int64
from millrace.consumer.kernel.digits import decimal_double, put_decimal_with, read_short
from millrace.consumer.kernel.json_text import (
    BASE64,
    BASE64_URL_SAFE,
    put_base64,
    put_bytes,
    put_hex,
)
from millrace.consumer.kernel.json_values import (
    AS_EPOCH,
    AS_NULL,
    BINARY,
    BINARY_HEX,
    BITS,
    BOOLEAN,
    COLUMN_WIDTH,
    COMPACT_DOCUMENT,
    DATE_DAYS,
    DATE_PLAIN,
    DATETIME_ISO,
    DATETIME_UNITS,
    DECIMAL_BYTES,
    DECIMAL_DOUBLE,
    DECIMAL_STRING,
    DOCUMENT,
    EPOCH,
    EPOCH_END,
    FALLBACK,
    FLOATING,
    FORM,
    INTEGER,
    NO_DATE,
    OK,
    PARAMETER,
    PLAIN,
    POINT_GEOMETRY,
    STOP,
    TEXT_FORM,
    TIME_ISO,
    TIME_OF_DAY,
    TIME_UNITS,
    UNDECODABLE,
    UNSIGNED_AS_SIGNED,
    VECTOR,
    ZONED,
    read_date,
    read_time,
    signed_int,
    units_of,
)
from millrace.consumer.kernel.walk import BYTES, NULL

NULLABLE = COLUMN_WIDTH
AVRO_COLUMN_WIDTH = COLUMN_WIDTH + 1

RAW = 37  # a form beside those of ``json_values``: bytes as they are

_POINT_BYTES = 25  # SRID and WKB
_X, _Y = 9, 17  # of a point
_NAN = np.frombuffer(np.float64("nan").tobytes(), np.uint8)
_LENGTH_BYTES_MAX = 5
_MORE = np.uint64(0x80)


@compiled_plain
def put_long(out: Bytes, at: int, value: int) -> int:
    """Write a number."""
    signed = int64(value)
    rest = np.uint64(signed << 1) ^ np.uint64(signed >> 63)
    while rest >= _MORE:
        out[at] = np.uint8(rest & np.uint64(0x7F)) | np.uint8(0x80)
        rest >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(rest)
    return at + 1


@compiled_plain
def put_text(out: Bytes, at: int, data: Bytes, start: int, end: int) -> int:
    """Write bytes with their length."""
    return put_bytes(out, put_long(out, at, end - start), data, start, end)


@compiled_plain
def _put_length(out: Bytes, at: int, begin: int, end: int) -> int:
    """Put the length of ``out[begin:end]`` at ``at``, and move the bytes after it."""
    place = put_long(out, at, end - begin)
    if place != begin:
        for offset in range(end - begin):
            out[place + offset] = out[begin + offset]
    return place + end - begin


@compiled_plain
def _put_base64(out: Bytes, at: int, data: Bytes, start: int, end: int, letters: Bytes) -> int:
    place = put_long(out, at, (end - start + 2) // 3 * 4)
    last = out[place - 1]
    end = put_base64(out, place - 1, data, start, end, letters)  # with quotes
    out[place - 1] = last
    return end - 1


@compiled_plain
def _put_hex(out: Bytes, at: int, data: Bytes, start: int, end: int) -> int:
    place = put_long(out, at, (end - start) * 2)
    last = out[place - 1]
    end = put_hex(out, place - 1, data, start, end)  # with quotes
    out[place - 1] = last
    return end - 1


@compiled_plain
def _put_iso(out: Bytes, at: int, data: Bytes, start: int, end: int, is_trimmed: bool) -> int:
    """A time in ISO 8601 has less than 64 characters, so its length takes the place of a quote."""
    end = json_times.put_iso(out, at, data, start, end, is_trimmed)
    out[at] = (end - at - 2) << 1
    return end - 1


@compiled_plain
def _put_document(out: Bytes, at: int, data: Bytes, start: int, end: int, is_compact: bool) -> int:
    """A document of MySQL's JSON without the marks of its types, as ``json_text.put_document`` does in quotes."""
    begin = place = at + _LENGTH_BYTES_MAX
    is_inside = is_escaped = False
    for source in range(start, end):
        byte = data[source]
        if is_inside:
            is_inside = byte != QUOTE or is_escaped
            is_escaped = byte == BACKSLASH and not is_escaped
        elif byte == QUOTE:
            is_inside = True
        elif byte == SPACE:
            before = data[source - 1] if source > start else np.uint8(0)
            if is_compact or (before != COMMA and before != COLON):
                continue
        out[place] = byte
        place += 1
    return _put_length(out, at, begin, place)


@compiled_plain
def _put_decimal_bytes(out: Bytes, at: int, data: Bytes, start: int, end: int) -> int:
    """A two's complement number with as few bytes as it needs."""
    while end - start > 1:
        head, sign = data[start], data[start + 1] & 0x80
        if not ((head == 0 and sign == 0) or (head == 0xFF and sign != 0)):
            break
        start += 1
    if end == start:
        out[at] = 2
        out[at + 1] = 0
        return at + 2
    return put_text(out, at, data, start, end)


@compiled_plain
def put_eight(out: Bytes, at: int, bits: int) -> int:
    """Write the bits of a double, the lowest byte first."""
    for place in range(8):
        out[at + place] = np.uint8(bits >> (8 * place) & 0xFF)
    return at + 8


@compiled_plain
def _put_bits(out: Bytes, at: int, data: Bytes, start: int, end: int) -> int:
    """A BIT(n), the lowest byte first."""
    at = put_long(out, at, end - start)
    for place in range(end - start):
        out[at + place] = data[end - 1 - place]
    return at + end - start


@compiled_plain
def _is_set(data: Bytes, start: int, end: int) -> bool:
    bits = np.uint8(0)
    for place in range(start, end):
        bits |= data[place]
    return bool(bits != 0)


@compiled_plain
def _put_geometry(out: Bytes, at: int, data: Bytes, start: int, end: int, is_point: bool) -> int:
    """A record ``wkb, srid``, of a POINT ``x, y, wkb, srid``; an SRID of 0 is null. ``wkb`` of a POINT is a union."""
    size = end - start
    srid = int64(0)
    if size >= 4:
        srid = signed_int(data, start)
    if is_point:
        if size == _POINT_BYTES:
            at = put_bytes(out, at, data, start + _X, start + _X + 8)
            at = put_bytes(out, at, data, start + _Y, start + _Y + 8)
        else:  # no point has another size
            at = put_bytes(out, at, _NAN, 0, 8)
            at = put_bytes(out, at, _NAN, 0, 8)
        out[at] = 2
        at += 1
    at = put_text(out, at, data, start + min(size, 4), end)
    if srid == 0:
        out[at] = 0
        return at + 1
    out[at] = 2
    return put_long(out, at + 1, srid)


@compiled_plain
def _put_vector(out: Bytes, at: int, data: Bytes, start: int, end: int) -> int:
    """An array: one block, unless it is empty, and its end."""
    count = (end - start) // 4
    if count > 0:
        at = put_long(out, at, count)
        at = put_bytes(out, at, data, start, start + 4 * count)
    out[at] = 0
    return at + 1


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
    """For a date that no calendar has, and for a date or time that the form can't hold. ``at``: after the branch."""
    fallback = columns[number, FALLBACK]
    if fallback == STOP:
        return at, NO_DATE
    if fallback == AS_NULL and columns[number, NULLABLE] == 1:
        out[at - 1] = 0
        return at, OK
    if fallback in (AS_EPOCH, AS_NULL):
        return put_bytes(out, at, fixed, columns[number, EPOCH], columns[number, EPOCH_END]), OK
    return put_text(out, at, data, start, end), OK


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
        return _put_iso(out, at, data, start, end, True), OK
    return put_long(out, at, units_of(us, unit, False)), OK


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
        return put_text(out, at, data, start, end), OK
    if form == DATE_DAYS:
        return put_long(out, at, json_times.days_of(data, start)), OK
    if form == DATETIME_UNITS:
        return put_long(out, at, units_of(us, unit, True)), OK
    return _put_iso(out, at, data, start, end, form == DATETIME_ISO), OK


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
    if form == DECIMAL_BYTES:
        return _put_decimal_bytes(out, at, data, start, end)
    if form == DECIMAL_STRING:
        begin = at + _LENGTH_BYTES_MAX
        place = put_decimal_with(out, begin, data, start, end, scale, work)
        return _put_length(out, at, begin, place)
    if form == DECIMAL_DOUBLE:
        return put_eight(out, at, decimal_double(out, at, data, start, end, scale, work))
    if form == UNSIGNED_AS_SIGNED:
        return put_long(out, at, read_short(data, max(start, end - 8), end))
    if form == BITS:
        return _put_bits(out, at, data, start, end)
    out[at] = 1 if _is_set(data, start, end) else 0  # BOOLEAN
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
    if columns[number, NULLABLE] == 1:
        if kind == NULL:
            out[at] = 0
            return at + 1, OK
        out[at] = 2
        at += 1
    if form in (INTEGER, FLOATING):
        return put_bytes(out, at, data, start, end), OK
    if form == TEXT_FORM:
        if kind == BYTES:
            if columns[number, FALLBACK] == STOP:
                return at, UNDECODABLE
            return _put_base64(out, at, data, start, end, BASE64), OK
        return put_text(out, at, data, start, end), OK
    if form in (RAW, PLAIN):
        return put_text(out, at, data, start, end), OK
    if form in (DECIMAL_BYTES, DECIMAL_STRING, DECIMAL_DOUBLE, UNSIGNED_AS_SIGNED, BITS, BOOLEAN):
        return _put_decimal_or_bits(
            out, at, data, start, end, form, columns[number, PARAMETER], work
        ), OK
    if form in (TIME_ISO, TIME_UNITS, TIME_OF_DAY):
        return _put_time(out, at, data, start, end, columns, number, fixed)
    if form >= DATE_DAYS and form <= ZONED:
        return _put_date(out, at, data, start, end, columns, number, fixed)
    if form == BINARY:
        letters = BASE64_URL_SAFE if columns[number, PARAMETER] else BASE64
        return _put_base64(out, at, data, start, end, letters), OK
    if form == BINARY_HEX:
        return _put_hex(out, at, data, start, end), OK
    if form in (DOCUMENT, COMPACT_DOCUMENT):
        return _put_document(out, at, data, start, end, form == COMPACT_DOCUMENT), OK
    if form == VECTOR:
        return _put_vector(out, at, data, start, end), OK
    return _put_geometry(out, at, data, start, end, form == POINT_GEOMETRY), OK
