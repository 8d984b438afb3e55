"""The shortest decimal digits that give a double back, and MySQL's text of a double in JSON.

``shortest`` is Schubfach (R. Giulietti, "The Schubfach way to render doubles", 2021): the nearest of the shortest. Its
table of powers of ten, 617 numbers of 126 bits, is computed here with Python's integers.

Text in JSON (observed on MySQL 9.7), for 0.d1d2… x 10**e: plain if -15 < e <= 15 or if digits are on both sides of the
point. A plain text without a digit after the point ends in ``.0``. All others are ``d.ddde[-]n``, without a leading
zero or plus in the exponent.
"""

import numpy as np
from numpy.typing import NDArray

from producer.convert.kernel.compiled import compiled
from producer.convert.kernel.memory import Bytes, signed, store_u8

TEXT_BYTES_MAX = 32
_K_MIN, _K_MAX = -324, 292


def _power(exponent: int) -> int:
    """floor(10**exponent x 2**-r) + 1 with 126 significant bits."""
    if exponent >= 0:
        numerator, denominator = 10**exponent, 1
    else:
        numerator, denominator = 1, 10**-exponent
    shift = 125 - (numerator.bit_length() - denominator.bit_length())
    for candidate in (shift, shift + 1, shift - 1):
        value: int = (
            numerator << candidate if candidate >= 0 else numerator >> -candidate
        ) // denominator
        if value.bit_length() == 126:
            return value + 1
    raise AssertionError(exponent)


# index: k + 324 for 10**-k, k of the value 10**k; words of 63 bits, high and low, as Schubfach's g1 and g0
_TABLE = [_power(-k) for k in range(_K_MIN, _K_MAX + 1)]
POWERS_HIGH = np.array([value >> 63 for value in _TABLE], np.uint64)
POWERS_LOW = np.array([value & (2**63 - 1) for value in _TABLE], np.uint64)
_MASK32 = np.uint64(0xFFFFFFFF)
_MASK63 = np.uint64(2**63 - 1)
_ONE = np.uint64(1)
_32 = np.uint64(32)
_63 = np.uint64(63)


@compiled
def multiply_high(left: np.uint64, right: np.uint64) -> np.uint64:
    """The upper 64 bits of a product of two unsigned 64-bit numbers."""
    left_low, left_high = left & _MASK32, left >> _32
    right_low, right_high = right & _MASK32, right >> _32
    middle = left_high * right_low + ((left_low * right_low) >> _32)
    other = left_low * right_high + (middle & _MASK32)
    return np.uint64(left_high * right_high + (middle >> _32) + (other >> _32))


@compiled
def _round_to_odd(high: np.uint64, low: np.uint64, scaled: np.uint64) -> np.uint64:
    inner = multiply_high(low, scaled)
    product = high * scaled
    outer = multiply_high(high, scaled)
    rest = (product >> _ONE) + inner
    result = outer + (rest >> _63)
    return np.uint64(result | (((rest & _MASK63) + _MASK63) >> _63))


@compiled
def shortest(bits: int, result: NDArray[np.int64]) -> None:
    """The digits of the positive finite double with these bits: result[0] x 10**result[1], without trailing zeros."""
    exponent = (bits >> 52) & 0x7FF
    fraction = bits & 0xFFFFFFFFFFFFF
    if exponent == 0:
        c = fraction
        q = -1074
    else:
        c = fraction | (1 << 52)
        q = exponent - 1075
    out = c & 1
    cb = c << 2
    cbr = cb + 2
    if c != (1 << 52) or exponent <= 1:
        cbl = cb - 2
        k = (q * 661971961083) >> 41
    else:
        cbl = cb - 1
        k = (q * 661971961083 - 274743187321) >> 41
    h = q + ((-k * 913124641741) >> 38) + 2
    high = POWERS_HIGH[k - _K_MIN]
    low = POWERS_LOW[k - _K_MIN]
    shift = np.uint64(h)
    vb = signed(_round_to_odd(high, low, np.uint64(cb) << shift))
    vbl = signed(_round_to_odd(high, low, np.uint64(cbl) << shift)) + out
    vbr = signed(_round_to_odd(high, low, np.uint64(cbr) << shift)) - out
    s = vb >> 2
    digits = 0
    found = False
    if s >= 10:
        lower = s // 10 * 10
        upper = lower + 10
        lower_inside = vbl <= lower << 2
        upper_inside = upper << 2 <= vbr
        if lower_inside != upper_inside:
            digits = lower if lower_inside else upper
            found = True
    if not found:
        t = s + 1
        s_inside = vbl <= s << 2
        t_inside = t << 2 <= vbr
        if s_inside != t_inside:
            digits = s if s_inside else t
        else:
            middle = (s + t) << 1
            digits = s if vb < middle or (vb == middle and (s & 1) == 0) else t
    while digits % 10 == 0:
        digits //= 10
        k += 1
    result[0] = digits
    result[1] = k


@compiled
def write_json_double(out: Bytes, at: int, bits: int, scratch: NDArray[np.int64]) -> int:
    """Write the text of the finite double with these bits as MySQL does in JSON. Returns the offset after it.

    `scratch`: 2 numbers. Writes at most TEXT_BYTES_MAX bytes.
    """
    if bits < 0:
        store_u8(out, at, 45)
        at += 1
        bits &= 0x7FFFFFFFFFFFFFFF
    if bits == 0:
        store_u8(out, at, 48)
        store_u8(out, at + 1, 46)
        store_u8(out, at + 2, 48)
        return at + 3
    shortest(bits, scratch)
    digits = scratch[0]
    length = 0
    rest = digits
    while rest > 0:
        rest //= 10
        length += 1
    point = scratch[1] + length
    if -15 < point <= 15 or 0 < point < length:
        return _write_plain(out, at, digits, length, point)
    for place in range(length):  # leaves a gap for the point
        gap = 1 if length > 1 and length - 1 - place > 0 else 0
        store_u8(out, at + length - 1 - place + gap, 48 + digits % 10)
        digits //= 10
    if length > 1:
        store_u8(out, at + 1, 46)
        at += 1
    at += length
    store_u8(out, at, 101)
    at += 1
    exponent = point - 1
    if exponent < 0:
        store_u8(out, at, 45)
        at += 1
        exponent = -exponent
    unit = 100 if exponent >= 100 else 10 if exponent >= 10 else 1
    while unit > 0:
        store_u8(out, at, 48 + exponent // unit % 10)
        unit //= 10
        at += 1
    return at


@compiled
def _write_plain(out: Bytes, at: int, digits: int, length: int, point: int) -> int:
    if point <= 0:
        store_u8(out, at, 48)
        store_u8(out, at + 1, 46)
        at += 2
        for _ in range(-point):
            store_u8(out, at, 48)
            at += 1
        for place in range(length):
            store_u8(out, at + length - 1 - place, 48 + digits % 10)
            digits //= 10
        return at + length
    for place in range(length):
        index = length - 1 - place
        store_u8(out, at + index + (1 if index >= point else 0), 48 + digits % 10)
        digits //= 10
    if length > point:
        store_u8(out, at + point, 46)
        return at + length + 1
    for place in range(length, point):
        store_u8(out, at + place, 48)
    store_u8(out, at + point, 46)
    store_u8(out, at + point + 1, 48)
    return at + point + 2
