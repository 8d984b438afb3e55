"""MySQL's text of a double in JSON.

Observed on MySQL 9.7, for 0.d1d2… x 10**e: plain if -15 < e <= 15 or if digits are on both sides of the point. A plain
text without a digit after the point ends in ``.0``. All others are ``d.ddde[-]n``, without a leading zero or plus in
the exponent.
"""

from millrace.characters import MINUS, POINT, ZERO
from millrace.doubles import shortest
from millrace.producer.convert.kernel.compiled import compiled
from millrace.producer.convert.kernel.memory import Bytes, store_u8

TEXT_BYTES_MAX = 32


@compiled
def write_json_double(out: Bytes, at: int, bits: int) -> int:
    """Write the text of the finite double with these bits as MySQL does in JSON. Returns the offset after it.

    Writes at most TEXT_BYTES_MAX bytes.
    """
    if bits < 0:
        store_u8(out, at, MINUS)
        at += 1
        bits &= 0x7FFFFFFFFFFFFFFF
    if bits == 0:
        store_u8(out, at, ZERO)
        store_u8(out, at + 1, POINT)
        store_u8(out, at + 2, ZERO)
        return at + 3
    digits, scale = shortest(bits)
    length = 0
    rest = digits
    while rest > 0:
        rest //= 10
        length += 1
    point = scale + length
    if -15 < point <= 15 or 0 < point < length:
        return _write_plain(out, at, digits, length, point)
    for place in range(length):  # leaves a gap for the point
        gap = 1 if length > 1 and length - 1 - place > 0 else 0
        store_u8(out, at + length - 1 - place + gap, ZERO + digits % 10)
        digits //= 10
    if length > 1:
        store_u8(out, at + 1, POINT)
        at += 1
    at += length
    store_u8(out, at, 101)
    at += 1
    exponent = point - 1
    if exponent < 0:
        store_u8(out, at, MINUS)
        at += 1
        exponent = -exponent
    unit = 100 if exponent >= 100 else 10 if exponent >= 10 else 1
    while unit > 0:
        store_u8(out, at, ZERO + exponent // unit % 10)
        unit //= 10
        at += 1
    return at


@compiled
def _write_plain(out: Bytes, at: int, digits: int, length: int, point: int) -> int:
    if point <= 0:
        store_u8(out, at, ZERO)
        store_u8(out, at + 1, POINT)
        at += 2
        for _ in range(-point):
            store_u8(out, at, ZERO)
            at += 1
        for place in range(length):
            store_u8(out, at + length - 1 - place, ZERO + digits % 10)
            digits //= 10
        return at + length
    for place in range(length):
        index = length - 1 - place
        store_u8(out, at + index + (1 if index >= point else 0), ZERO + digits % 10)
        digits //= 10
    if length > point:
        store_u8(out, at + point, POINT)
        return at + length + 1
    for place in range(length, point):
        store_u8(out, at + place, ZERO)
    store_u8(out, at + point, POINT)
    store_u8(out, at + point + 1, ZERO)
    return at + point + 2
