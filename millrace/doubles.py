"""Doubles and decimal digits: the shortest digits of a double, and the double that is nearest to digits.

``shortest`` is Schubfach (R. Giulietti, "The Schubfach way to render doubles", 2021): the nearest of the shortest. Its
table of powers of ten, 617 numbers of 126 bits, is computed here with Python's integers.

``nearest`` is Eisel-Lemire (D. Lemire, "Number parsing at a gigabyte per second", 2021). Two products with a power of
five of 128 bits always suffice for 19 digits (N. Mushtak, D. Lemire, "Fast number parsing without fallback", 2022).
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import SupportsInt, cast

import numpy as np

from millrace.compiled import kernel_compiler

SOURCE = Path(__file__)  # for the key of kernels that call these

compiled = kernel_compiler(
    "doubles", SOURCE, is_checked=os.environ.get("MILLRACE_KERNEL_CHECKED", "") == "1"
)

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
_int64 = cast(Callable[[SupportsInt], int], np.int64)
_MASK32 = np.uint64(0xFFFFFFFF)
_MASK63 = np.uint64(2**63 - 1)
_ONE = np.uint64(1)
_32 = np.uint64(32)
_63 = np.uint64(63)
_31 = np.uint64(31)
_MASK31 = np.uint64(2**31 - 1)


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
def _bounds(c: int, q: int, is_regular: bool) -> tuple[int, int, int]:
    """The bounds of the numbers that round to ``c`` x 2**``q``, times 4, and the exponent of the digits.

    ``is_regular``: the number below is as near as the one above.
    """
    cb = c << 2
    if is_regular:
        return cb - 2, cb + 2, (q * 661971961083) >> 41
    return cb - 1, cb + 2, (q * 661971961083 - 274743187321) >> 41


@compiled
def shortest(bits: int) -> tuple[int, int]:
    """The positive finite double with these bits as ``digits`` x 10**``exponent``, without trailing zeros."""
    exponent = (bits >> 52) & 0x7FF
    fraction = bits & 0xFFFFFFFFFFFFF
    if exponent == 0:
        c = fraction
        q = -1074
    else:
        c = fraction | (1 << 52)
        q = exponent - 1075
    out, cb = c & 1, c << 2
    cbl, cbr, k = _bounds(c, q, c != (1 << 52) or exponent <= 1)
    h = q + ((-k * 913124641741) >> 38) + 2
    high = POWERS_HIGH[k - _K_MIN]
    low = POWERS_LOW[k - _K_MIN]
    shift = np.uint64(h)
    vb = _int64(_round_to_odd(high, low, np.uint64(cb) << shift))
    vbl = _int64(_round_to_odd(high, low, np.uint64(cbl) << shift)) + out
    vbr = _int64(_round_to_odd(high, low, np.uint64(cbr) << shift)) - out
    return _nearest_of_shortest(vb, vbl, vbr, k)


@compiled
def _nearest_of_shortest(vb: int, vbl: int, vbr: int, k: int) -> tuple[int, int]:
    """The nearest of the shortest digits between the bounds; their exponent is ``k`` or above."""
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
    return digits, k


@compiled
def _round_float_to_odd(high: np.uint64, scaled: np.uint64) -> int:
    product = multiply_high(high, scaled)
    return _int64((product >> _31) | (((product & _MASK31) + _MASK31) >> _31))


@compiled
def shortest_float(bits: int) -> tuple[int, int]:
    """The positive finite 4-byte float with these bits, as ``shortest`` for a double."""
    exponent = (bits >> 23) & 0xFF
    fraction = bits & 0x7FFFFF
    if exponent == 0:
        c = fraction
        q = -149
    else:
        c = fraction | (1 << 23)
        q = exponent - 150
    out, cb = c & 1, c << 2
    cbl, cbr, k = _bounds(c, q, c != (1 << 23) or exponent <= 1)
    shift = np.uint64(q + ((-k * 913124641741) >> 38) + 33)
    high = POWERS_HIGH[k - _K_MIN] + _ONE
    vb = _round_float_to_odd(high, np.uint64(cb) << shift)
    vbl = _round_float_to_odd(high, np.uint64(cbl) << shift) + out
    vbr = _round_float_to_odd(high, np.uint64(cbr) << shift) - out
    return _nearest_of_shortest(vb, vbl, vbr, k)


DIGITS_MAX = 19  # of ``nearest``
_FIVE_MIN, _FIVE_MAX = -342, 308


def _five(exponent: int) -> int:
    """5**exponent as 128 significant bits: truncated, or, below 0, as the next larger number."""
    if exponent >= 0:
        power = 5**exponent << 128
        return int(power >> (power.bit_length() - 128))
    divisor = 5**-exponent
    size = (divisor - 1).bit_length()
    quotient: int = (1 << (2 * size + 128)) // divisor + 1
    if exponent >= -27:
        return int((1 << (size + 127)) // divisor + 1)
    return quotient >> (quotient.bit_length() - 128)


_FIVES = [_five(exponent) for exponent in range(_FIVE_MIN, _FIVE_MAX + 1)]
FIVES_HIGH = np.array([value >> 64 for value in _FIVES], np.uint64)
FIVES_LOW = np.array([value & (2**64 - 1) for value in _FIVES], np.uint64)
_MASK9 = np.uint64(0x1FF)  # the bits of a product beyond those of a double and three more
_TOP = np.uint64(1 << 63)


@compiled
def nearest(digits: int, exponent: int) -> int:
    """The bits of the double that is nearest to ``digits`` x 10**``exponent``; infinity if it is too large.

    ``digits``: the 64 bits of an unsigned number below 10**``DIGITS_MAX``.
    """
    if digits == 0 or exponent < _FIVE_MIN:
        return 0
    if exponent > _FIVE_MAX:
        return 0x7FF << 52
    scaled = np.uint64(digits)
    zeros = 0
    while scaled & _TOP == 0:
        scaled <<= _ONE
        zeros += 1
    five = exponent - _FIVE_MIN
    high = multiply_high(scaled, FIVES_HIGH[five])
    low = scaled * FIVES_HIGH[five]
    if high & _MASK9 == _MASK9:
        more = multiply_high(scaled, FIVES_LOW[five])
        low += more
        if more > low:
            high += _ONE
    upper = _int64(high >> _63)
    shift = upper + 9
    mantissa = _int64(high >> np.uint64(shift))
    power = ((217706 * exponent) >> 16) + 63 + upper - zeros + 1023
    if power <= 0:
        if power < -62:
            return 0
        mantissa >>= 1 - power
        return (mantissa + (mantissa & 1)) >> 1  # 1 << 52 is the smallest normal number
    is_tie = low <= _ONE and -4 <= exponent <= 23 and mantissa & 3 == 1
    if is_tie and np.uint64(mantissa) << np.uint64(shift) == high:
        mantissa &= ~1
    mantissa = (mantissa + (mantissa & 1)) >> 1
    if mantissa >= 1 << 53:
        mantissa = 1 << 52
        power += 1
    if power >= 0x7FF:
        return 0x7FF << 52
    return (power << 52) | (mantissa & ((1 << 52) - 1))


@compiled
def as_float(bits: int) -> int:
    """The bits of the 4-byte float that is nearest to a positive finite double with these bits."""
    exponent = ((bits >> 52) & 0x7FF) - 896  # the biased exponent of the float
    mantissa = bits & 0xFFFFFFFFFFFFF
    shift = 29
    if exponent <= 0:
        if exponent < -23:
            return 0
        mantissa |= 1 << 52
        shift += 1 - exponent
        exponent = 0
    half = 1 << (shift - 1)
    rest = mantissa & ((1 << shift) - 1)
    rounded = (exponent << 23) + (mantissa >> shift)
    if rest > half or (rest == half and rounded & 1):
        rounded += 1
    return min(rounded, 0xFF << 23)
