"""Packs rows of a server's text protocol into row images, as a binlog has them.

    row of a SELECT    the columns of the key as texts, which are skipped | the columns of the table
    row image          null bits, one per column | the values of the columns that are not NULL

``packs`` has a row for each column of the table:

    OP         in the text protocol        in the image, SIZE bytes
    INTEGER    digits                      little-endian
    YEAR       digits                      years since 1900; 0 for 0
    FLOAT      digits of a double          IEEE 754
    DOUBLE     the same                    IEEE 754
    DECIMAL    digits                      packed (``producer.convert.kernel.decimals``), of PRECISION and SCALE
    BYTES      bytes                       the same
    TEXT       bytes                       their number, in SIZE bytes; the same

Guarantees: a value that its column can't hold stops the kernel; it writes no other. ``out`` has room for each row
before it begins.
"""

from millrace.doubles import DIGITS_MAX, as_float, nearest
from millrace.producer.binlog.compiled import int64
from millrace.producer.convert.kernel.decimals import GROUP_BYTES
from millrace.producer.snapshot.kernel.compiled import compiled
from millrace.text_protocol import walk as w
from millrace.text_protocol.walk import Bytes, Ints, next_row, value_at

INTEGER, YEAR, FLOAT, DOUBLE, DECIMAL, BYTES, TEXT = range(7)
OP, SIZE, PRECISION, SCALE = range(4)  # of a row of ``packs``

# state after that of the walk: bytes in out, rows, the key of the last row in data, the column of a wrong value + 1
OUT, ROWS, KEY_AT, KEY_END, WRONG = range(w.OWN, w.OWN + 5)
STATE_WIDTH = w.OWN + 5

# why it stopped, beside the reasons of the walk: out has no room for the row, a value is wrong
FULL, REFUSED = w.DAMAGED + 1, w.DAMAGED + 2

_PLUS, _MINUS, _POINT, _ZERO, _NINE, _EXPONENT = 43, 45, 46, 48, 57, 101
_YEARS_FROM = 1900


@compiled
def put_images(
    state: Ints, data: Bytes, end: int, joined: int, out: Bytes, packs: Ints, keys: int, room: int
) -> int:
    """Write the images of rows from ``data[:end]`` to ``out``; returns why it stopped.

    ``keys``: the columns of the key. ``room``: the bytes of an image beside those of its texts, at most.
    """
    columns = len(packs)
    while True:
        if state[w.ROW_END] == 0:
            found = next_row(state, data, end, joined)
            if found != w.FOUND:
                return found
        at, row_end = state[w.AT], state[w.ROW_END]
        start = state[OUT]
        if start + room + row_end - at > len(out):
            return FULL
        key_at = at
        for _ in range(keys):
            at, size = value_at(data, at, row_end)
            if size == w.NO_VALUE:
                return w.DAMAGED
            at += max(size, 0)
        key_end = at
        put = start + ((columns + 7) >> 3)
        for place in range(start, put):
            out[place] = 0
        for column in range(columns):
            at, size = value_at(data, at, row_end)
            if size == w.NO_VALUE:
                return w.DAMAGED
            if size == w.NULL:
                out[start + (column >> 3)] |= 1 << (column & 7)
                continue
            put = _put_value(out, put, data, at, at + size, packs, column)
            if put < 0:
                state[WRONG] = column + 1
                return REFUSED
            at += size
        if at != row_end:
            return w.DAMAGED
        state[w.AT], state[w.ROW_END], state[OUT] = at, 0, put
        state[KEY_AT], state[KEY_END] = key_at, key_end
        state[ROWS] += 1


@compiled
def _put_value(
    out: Bytes, put: int, data: Bytes, at: int, end: int, packs: Ints, column: int
) -> int:
    """Write one value; returns the offset after it, -1 if it is wrong."""
    op: int = packs[column, OP]
    size: int = packs[column, SIZE]
    if op == TEXT:
        length = end - at
        put = _put_little(out, put, length, size)
        for place in range(length):
            out[put + place] = data[at + place]
        return put + length
    if op == BYTES:
        if end - at != size:
            return -1
        for place in range(size):
            out[put + place] = data[at + place]
        return put + size
    if op == DECIMAL:
        return _put_decimal(out, put, data, at, end, packs[column, PRECISION], packs[column, SCALE])
    if op in (FLOAT, DOUBLE):
        return _put_double(out, put, data, at, end, op == FLOAT)
    is_negative = at < end and data[at] == _MINUS
    at += is_negative
    if at == end:
        return -1
    value = int64(0)
    for place in range(at, end):
        if data[place] < _ZERO or data[place] > _NINE:
            return -1
        value = value * 10 + (int64(data[place]) - _ZERO)  # an unsigned number keeps its 64 bits
    if op == YEAR:
        value = max(value - _YEARS_FROM, 0)
    return _put_little(out, put, -value if is_negative else value, size)


@compiled
def _put_little(out: Bytes, put: int, value: int, size: int) -> int:
    for place in range(size):
        out[put + place] = (value >> int64(8 * place)) & 255
    return put + size


@compiled
def _put_double(out: Bytes, put: int, data: Bytes, at: int, end: int, is_float: bool) -> int:
    """Write digits with a point and an exponent."""
    is_negative = at < end and data[at] == _MINUS
    at += is_negative
    digits, count, exponent = int64(0), 0, 0
    begun, is_after_point = at, False
    while at < end and data[at] != _EXPONENT:
        byte = int64(data[at])
        if byte == _POINT and not is_after_point:
            is_after_point = True
        elif byte < _ZERO or byte > _NINE or (count == DIGITS_MAX and byte != _ZERO):
            return -1
        else:
            if count < DIGITS_MAX:
                digits = digits * 10 + (byte - _ZERO)
                count += digits != 0
                exponent -= is_after_point
            else:
                exponent += not is_after_point
        at += 1
    if at == begun:
        return -1
    if at < end:
        at += 1
        is_below = at < end and data[at] == _MINUS
        at += is_below or (at < end and data[at] == _PLUS)
        power = 0
        if at == end or end - at > 4:
            return -1
        while at < end:
            if data[at] < _ZERO or data[at] > _NINE:
                return -1
            power = power * 10 + (int64(data[at]) - _ZERO)
            at += 1
        exponent += -power if is_below else power
    bits = nearest(digits, exponent)
    if is_float:
        return _put_little(out, put, as_float(bits) | (int64(is_negative) << 31), 4)
    return _put_little(out, put, bits | (int64(is_negative) << 63), 8)


@compiled
def _put_decimal(
    out: Bytes, put: int, data: Bytes, at: int, end: int, precision: int, scale: int
) -> int:
    """Write digits with `scale` digits after the point, in groups of nine from the point."""
    is_negative = at < end and data[at] == _MINUS
    at += is_negative
    point = at
    while point < end and data[point] != _POINT:
        point += 1
    front = precision - scale
    while at < point and point - at > front:
        if data[at] != _ZERO:
            return -1
        at += 1
    if end - point != (scale + 1 if scale else 0) or end == at:
        return -1
    first, inverted = put, 255 if is_negative else 0
    put = _put_groups(out, put, data, point - front, at, point, front % 9, inverted)
    if put >= 0:
        put = _put_groups(out, put, data, point + 1, point + 1, end, 0, inverted)
    if put >= 0:
        out[first] ^= 128
    return put


@compiled
def _put_groups(
    out: Bytes, put: int, data: Bytes, at: int, known: int, end: int, short: int, inverted: int
) -> int:
    """Write the digits up to `end` in groups; the first has `short` digits if any. Those before `known` are zeros."""
    while at < end:
        size = short if short > 0 else min(end - at, 9)
        short = 0
        value = int64(0)
        for place in range(at, at + size):
            byte = int64(data[place]) if place >= known else _ZERO
            if byte < _ZERO or byte > _NINE:
                return -1
            value = value * 10 + (byte - _ZERO)
        width = GROUP_BYTES[size]
        for place in range(width):
            out[put + place] = ((value >> (8 * (width - 1 - place))) & 255) ^ inverted
        put += width
        at += size
    return put
