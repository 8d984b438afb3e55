r"""Converts MySQL's binary JSON to the text of the server's ``CAST(x AS CHAR)``.

Layout (sql-common/json_binary.h): type 1 byte, value. Offsets are from the value's first byte: 2 bytes, large: 4.

    0, 1 object   count | bytes | count x (key offset, key length 2) | count x (type 1, offset or value) | keys | values
    2, 3 array    count | bytes | count x (type 1, offset or value) | values           (odd types are large)
    4 literal 0 null 1 true 2 false   5, 6 (u)int16   7, 8 (u)int32   9, 10 (u)int64   11 double   12 string
    15 opaque     column type 1 | length | bytes      length: 7 bits per byte, low bits first
    in the entry itself: literal, int16, uint16; in large ones int32 and uint32 too

Text: the separators are ``", "`` and ``": "``. Strings escape ``" \ \b \f \n \r \t`` and other control characters as
``\u00xx``. Opaque decimals are numbers. Opaque dates and times are strings with six digits of fraction. All other
opaque values are ``"base64:typeN:…"``; the server writes ``\n`` into base64 after every 76 characters. An empty value
is ``null``.

Types that the text does not show have marks, which no server prints: one blank after an opaque value, three after a
TIMESTAMP, two after an integer that a server would read with the other sign type (as unsigned above 2**32 - 1, else as
signed).

Guarantees: each offset and length is checked against its value. The depth is at most DEPTH_MAX (the server's limit is
100). Nothing is written at or beyond ``limit``. Only the output bounds a forged document with overlapping values.
"""

import numpy as np
from numpy.typing import NDArray

from millrace.characters import BACKSLASH, COLON, COMMA, MINUS, POINT, QUOTE, SPACE, ZERO
from millrace.producer.convert.kernel.compiled import compiled
from millrace.producer.convert.kernel.decimals import (
    DIGITS_MAX,
    GROUP_BYTES,
    POWERS_OF_TEN,
    _group,
    packed_size,
)
from millrace.producer.convert.kernel.doubles import write_json_double
from millrace.producer.convert.kernel.memory import (
    Bytes,
    copy,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    signed,
    store_u8,
)
from millrace.producer.convert.kernel.temporal import (
    write_clock_parts,
    write_date_parts,
    write_fraction,
)

BROKEN, FULL = -1, -2
DEPTH_MAX = 101
FRAME = 6  # numbers per level: base, end, count, next index, large, object
STACK = FRAME * DEPTH_MAX

_ESCAPE = np.zeros(32, np.uint8)
_ESCAPE[[8, 9, 10, 12, 13]] = np.frombuffer(b"btnfr", np.uint8)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8).copy()
_BASE64 = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8
).copy()
_LITERALS = np.frombuffer(b"nulltruefalse", np.uint8).copy()
_BASE64_TYPE = np.frombuffer(b"base64:type", np.uint8).copy()


@compiled
def write_json(
    out: Bytes, at: int, limit: int, buf: Bytes, pos: int, end: int, stack: NDArray[np.int64]
) -> int:
    """Write the document in ``buf[pos:end]`` as text at `at`: the offset after it, BROKEN or FULL. `stack`: STACK
    numbers."""
    if pos == end:
        if at + 4 > limit:
            return FULL
        copy(out, at, _LITERALS, 0, 4)
        return at + 4
    kind = load_u8(buf, pos)
    depth = 0
    base = pos + 1
    if kind > 3:
        return _write_scalar(out, at, limit, buf, base, end, kind)
    at = _open(out, at, limit, buf, base, end, kind, stack, depth)
    if at < 0:
        return at
    depth = 1
    while depth > 0:
        frame = (depth - 1) * FRAME
        base, end = stack[frame], stack[frame + 1]
        count, index = stack[frame + 2], stack[frame + 3]
        large, is_object = stack[frame + 4], stack[frame + 5]
        if at + 8 > limit:
            return FULL
        if index == count:
            store_u8(out, at, 125 if is_object else 93)
            at += 1
            depth -= 1
            continue
        stack[frame + 3] = index + 1
        if index > 0:
            store_u8(out, at, COMMA)
            store_u8(out, at + 1, SPACE)
            at += 2
        width = 4 if large else 2
        entry = base + 2 * width
        if is_object:
            key_entry = entry + index * (width + 2)
            key = base + (load_u32(buf, key_entry) if large else load_u16(buf, key_entry))
            key_length = load_u16(buf, key_entry + width)
            if key + key_length > end:
                return BROKEN
            at = _write_string(out, at, limit, buf, key, key + key_length)
            if at < 0:
                return at
            if at + 2 > limit:
                return FULL
            store_u8(out, at, COLON)
            store_u8(out, at + 1, SPACE)
            at += 2
            entry += count * (width + 2)
        entry += index * (width + 1)
        kind = load_u8(buf, entry)
        if 4 <= kind <= 6 or (large and 7 <= kind <= 8):
            at = _write_scalar(out, at, limit, buf, entry + 1, entry + 1 + width, kind)
        else:
            offset = load_u32(buf, entry + 1) if large else load_u16(buf, entry + 1)
            if offset < 2 * width + count * (width + 1) or base + offset >= end:
                return BROKEN
            if kind > 3:
                at = _write_scalar(out, at, limit, buf, base + offset, end, kind)
            else:
                if depth == DEPTH_MAX:
                    return BROKEN
                at = _open(out, at, limit, buf, base + offset, end, kind, stack, depth)
                depth += 1
        if at < 0:
            return at
    return at


@compiled
def _open(
    out: Bytes,
    at: int,
    limit: int,
    buf: Bytes,
    base: int,
    end: int,
    kind: int,
    stack: NDArray[np.int64],
    depth: int,
) -> int:
    """Push a frame for the object or array at `base` and write its bracket; its entries are inside it."""
    large = kind & 1
    width = 4 if large else 2
    if base + 2 * width > end:
        return BROKEN
    count = load_u32(buf, base) if large else load_u16(buf, base)
    size = load_u32(buf, base + 4) if large else load_u16(buf, base + 2)
    entries = 2 * width + count * (width + 1 + (width + 2 if kind < 2 else 0))
    if base + size > end or entries > size:
        return BROKEN
    if at + 1 > limit:
        return FULL
    frame = depth * FRAME
    stack[frame], stack[frame + 1] = base, base + size
    stack[frame + 2], stack[frame + 3] = count, 0
    stack[frame + 4], stack[frame + 5] = large, 1 if kind < 2 else 0
    store_u8(out, at, 123 if kind < 2 else 91)
    return at + 1


@compiled
def _write_scalar(
    out: Bytes, at: int, limit: int, buf: Bytes, pos: int, end: int, kind: int
) -> int:
    """Write a value and its mark."""
    at = _write_unmarked(out, at, limit, buf, pos, end, kind)
    if at < 0:
        return at
    blanks = 0
    if kind == 15:
        blanks = 3 if load_u8(buf, pos) == 7 else 1
    elif kind == 6 or kind == 8:
        blanks = 2
    elif kind == 9 or kind == 10:
        is_above = load_i64(buf, pos) > 0xFFFFFFFF or (kind == 10 and load_i64(buf, pos) < 0)
        blanks = 2 if is_above == (kind == 9) else 0
    if at + blanks > limit:
        return FULL
    for place in range(blanks):
        store_u8(out, at + place, SPACE)
    return at + blanks


@compiled
def _write_unmarked(
    out: Bytes,
    at: int,
    limit: int,
    buf: Bytes,
    pos: int,
    end: int,
    kind: int,
) -> int:
    if at + 40 > limit:
        return FULL
    if kind == 4:
        if pos + 1 > end:
            return BROKEN
        literal = load_u8(buf, pos)
        if literal > 2:
            return BROKEN
        copy(out, at, _LITERALS, 4 * literal, 5 if literal == 2 else 4)
        return at + (5 if literal == 2 else 4)
    if kind == 5 or kind == 6:
        if pos + 2 > end:
            return BROKEN
        value = load_u16(buf, pos)
        return write_integer(out, at, value - 65536 if kind == 5 and value >= 32768 else value)
    if kind == 7 or kind == 8:
        if pos + 4 > end:
            return BROKEN
        value = load_u32(buf, pos)
        return write_integer(
            out, at, value - (1 << 32) if kind == 7 and value >= 1 << 31 else value
        )
    if 9 <= kind <= 11:
        if pos + 8 > end:
            return BROKEN
        value = load_i64(buf, pos)
        if kind == 9:
            return write_integer(out, at, value)
        if kind == 10:
            return write_unsigned(out, at, value)
        if (value >> 52) & 0x7FF == 0x7FF:  # JSON has no infinity
            return BROKEN
        return write_json_double(out, at, value)
    if kind == 15:
        if pos + 1 > end:
            return BROKEN
        kind = load_u8(buf, pos)
        pos += 1
        packed = _length(buf, pos, end)
        if packed < 0 or kind == 0:
            return BROKEN
        return _write_opaque(out, at, limit, buf, pos + (packed & 7), packed >> 3, kind)
    if kind == 12:
        packed = _length(buf, pos, end)
        if packed < 0:
            return BROKEN
        pos += packed & 7
        return _write_string(out, at, limit, buf, pos, pos + (packed >> 3))
    return BROKEN


@compiled
def _length(buf: Bytes, pos: int, end: int) -> int:
    """length << 3 | its size in bytes; -1 if it or its content reaches beyond `end`."""
    value = 0
    for place in range(5):
        if pos + place >= end:
            return -1
        byte = load_u8(buf, pos + place)
        value |= (byte & 127) << (7 * place)
        if byte < 128:
            return (value << 3) | (place + 1) if pos + place + 1 + value <= end else -1
    return -1


@compiled
def write_unsigned(out: Bytes, at: int, bits: int) -> int:
    """Write an unsigned 64-bit number, passed as a signed one with the same bits, in decimal."""
    if bits >= 0:
        return write_integer(out, at, bits)
    half = ((bits >> 1) & 0x7FFFFFFFFFFFFFFF) // 5
    at = write_integer(out, at, half)
    store_u8(out, at, ZERO + (bits - half * 10))
    return at + 1


@compiled
def write_integer(out: Bytes, at: int, value: int) -> int:
    """Write a signed 64-bit number in decimal (20 bytes at most)."""
    last = -1
    if value < 0:
        store_u8(out, at, MINUS)
        at += 1
        if value == -value:  # the smallest number has no positive counterpart
            last = 8
            value = 922337203685477580
        else:
            value = -value
    length = 1
    rest = value // 10
    while rest > 0:
        length += 1
        rest //= 10
    for place in range(length):
        store_u8(out, at + length - 1 - place, ZERO + value % 10)
        value //= 10
    at += length
    if last >= 0:
        store_u8(out, at, ZERO + last)
        at += 1
    return at


@compiled
def _write_string(out: Bytes, at: int, limit: int, buf: Bytes, pos: int, end: int) -> int:
    if at + (end - pos) + 2 > limit:
        return FULL
    store_u8(out, at, QUOTE)
    at += 1
    run = pos
    while pos < end:
        byte = load_u8(buf, pos)
        if byte >= SPACE and byte != QUOTE and byte != BACKSLASH:
            pos += 1
            continue
        if at + (end - run) + 8 > limit:
            return FULL
        copy(out, at, buf, run, pos - run)
        at += pos - run
        store_u8(out, at, BACKSLASH)
        short = 0
        if byte >= SPACE:
            short = byte
        else:
            short = signed(_ESCAPE[byte])
        if short != 0:
            store_u8(out, at + 1, short)
            at += 2
        else:
            store_u8(out, at + 1, 117)
            store_u8(out, at + 2, ZERO)
            store_u8(out, at + 3, ZERO)
            store_u8(out, at + 4, signed(_HEX[byte >> 4]))
            store_u8(out, at + 5, signed(_HEX[byte & 15]))
            at += 6
        pos += 1
        run = pos
    if at + (end - run) + 1 > limit:
        return FULL
    copy(out, at, buf, run, end - run)
    at += end - run
    store_u8(out, at, QUOTE)
    return at + 1


@compiled
def _write_opaque(
    out: Bytes, at: int, limit: int, buf: Bytes, pos: int, size: int, kind: int
) -> int:
    if at + 96 > limit:
        return FULL
    if kind == 246:
        return _write_decimal_text(out, at, buf, pos, size)
    if kind == 7 or 10 <= kind <= 12:
        if size != 8:
            return BROKEN
        return _write_packed_time(out, at, load_i64(buf, pos), kind)
    need = (size + 2) // 3 * 4
    if at + 32 + need + 2 * (need // 76 + 1) > limit:
        return FULL
    store_u8(out, at, QUOTE)
    copy(out, at + 1, _BASE64_TYPE, 0, _BASE64_TYPE.size)
    at = write_integer(out, at + 1 + _BASE64_TYPE.size, kind)
    store_u8(out, at, COLON)
    at += 1
    end = pos + size
    column = 0
    while pos < end:
        if column == 76:
            store_u8(out, at, BACKSLASH)
            store_u8(out, at + 1, 110)
            at += 2
            column = 0
        rest = end - pos
        bits = load_u8(buf, pos) << 16
        if rest > 1:
            bits |= load_u8(buf, pos + 1) << 8
        if rest > 2:
            bits |= load_u8(buf, pos + 2)
        store_u8(out, at, signed(_BASE64[bits >> 18]))
        store_u8(out, at + 1, signed(_BASE64[(bits >> 12) & 63]))
        store_u8(out, at + 2, signed(_BASE64[(bits >> 6) & 63]) if rest > 1 else 61)
        store_u8(out, at + 3, signed(_BASE64[bits & 63]) if rest > 2 else 61)
        at += 4
        column += 4
        pos += 3
    store_u8(out, at, QUOTE)
    return at + 1


@compiled
def _write_packed_time(out: Bytes, at: int, packed: int, kind: int) -> int:
    """Write a DATE (10), TIME (11), DATETIME (12) or TIMESTAMP (7), which the server packs into 8 bytes: bits <<
    24 | microseconds."""
    store_u8(out, at, QUOTE)
    at += 1
    if packed < 0:
        store_u8(out, at, MINUS)
        at += 1
        packed = -packed
    micros = packed & 0xFFFFFF
    bits = packed >> 24
    if kind == 11:
        at = write_clock_parts(out, at, (bits >> 12) & 0x3FF, (bits >> 6) & 63, bits & 63)
        at = write_fraction(out, at, micros, 6)
    else:
        months = (bits >> 22) & 0x1FFFF
        at = write_date_parts(out, at, months // 13, months % 13, (bits >> 17) & 31)
        if kind != 10:
            store_u8(out, at, SPACE)
            at = write_clock_parts(out, at + 1, (bits >> 12) & 31, (bits >> 6) & 63, bits & 63)
            at = write_fraction(out, at, micros, 6)
    store_u8(out, at, QUOTE)
    return at + 1


@compiled
def _write_decimal_text(out: Bytes, at: int, buf: Bytes, pos: int, size: int) -> int:
    """Write a decimal (precision 1 | scale 1 | packed decimal) as text, without leading zeros, with exactly
    `scale` digits after the point."""
    if size < 2:
        return BROKEN
    precision, scale = load_u8(buf, pos), load_u8(buf, pos + 1)
    if (
        precision < 1
        or precision > DIGITS_MAX
        or scale > precision
        or packed_size(precision, scale) != size - 2
    ):
        return BROKEN
    pos += 2
    first = pos
    inverted = 0 if load_u8(buf, pos) & 128 else 255
    if inverted:
        store_u8(out, at, MINUS)
        at += 1
    front = precision - scale
    started = False
    for run in range(4):
        if run == 0:
            count, digits = (1 if front % 9 else 0), front % 9
        elif run == 1:
            count, digits = front // 9, 9
        elif run == 2:
            count, digits = scale // 9, 9
        else:
            count, digits = (1 if scale % 9 else 0), scale % 9
        if run == 2:
            if not started:
                store_u8(out, at, ZERO)
                at += 1
                started = True
            if scale > 0:
                store_u8(out, at, POINT)
                at += 1
        for _ in range(count):
            whole = _group(buf, pos, GROUP_BYTES[digits], first, inverted)
            if whole >= POWERS_OF_TEN[digits]:
                return BROKEN
            pos += GROUP_BYTES[digits]
            for place in range(digits):
                digit = whole // POWERS_OF_TEN[digits - 1 - place] % 10
                if digit > 0 or started:
                    started = True
                    store_u8(out, at, ZERO + digit)
                    at += 1
    return at
