"""Writes integers and DECIMAL as decimal digits. Each function returns the position after the text."""

import numpy as np

from millrace.characters import MINUS, POINT, ZERO
from millrace.consumer.kernel.compiled import Bytes, Hashes, compiled, compiled_plain, int64
from millrace.consumer.kernel.walk import DOUBLE, FLOAT
from millrace.doubles import DIGITS_MAX, nearest

NUMBER_BYTES_MAX = 96  # DECIMAL(65) with sign and point, a double with exponent

_PAIRS = np.frombuffer(b"".join(b"%02d" % number for number in range(100)), np.uint8)
_POWERS = np.array([10**exponent for exponent in range(20)], np.uint64)
_1, _2, _20, _100 = np.uint64(1), np.uint64(2), np.uint64(20), np.uint64(100)
_DECIMAL_BYTES_SHORT = 8
_LIMBS_16 = 40
WORK = _LIMBS_16 + NUMBER_BYTES_MAX
_LIMBS = 12  # of 32 bits: 10**65 x 2**90, or 2**54 x 10**30 x 2**163


@compiled_plain
def put_number(out: Bytes, at: int, value: np.uint64) -> int:
    """Write the digits of an unsigned 64-bit number."""
    value = np.uint64(value)
    digits = _1
    while digits < _20 and value >= _POWERS[digits]:
        digits += _1
    # An index that can be negative would add a branch for each byte.
    first = np.uint64(at)
    place = first + digits
    while value >= _100:
        rest = value // _100
        pair = (value - rest * _100) << _1
        value = rest
        place -= _2
        out[place] = _PAIRS[pair]
        out[place + _1] = _PAIRS[pair + _1]
    pair = value << _1
    out[place - _1] = _PAIRS[pair + _1]
    if place - first == _2:
        out[first] = _PAIRS[pair]
    return at + int64(digits)


@compiled_plain
def put_signed(out: Bytes, at: int, value: int) -> int:
    """Write a signed 64-bit number."""
    if value < 0:
        out[at] = MINUS
        return put_number(out, at + 1, np.uint64(0) - np.uint64(value))
    return put_number(out, at, np.uint64(value))


@compiled_plain
def read_short(data: Bytes, start: int, end: int) -> int:
    """A two's complement number of at most 8 bytes."""
    value = int64(-1) if end > start and data[start] >= 128 else int64(0)
    for place in range(start, end):
        value = value << 8 | int64(data[place])
    return value


@compiled
def put_decimal(out: Bytes, at: int, data: Bytes, start: int, end: int, scale: int) -> int:
    """Write a two's complement number with the decimal point that the scale requires."""
    return put_decimal_with(out, at, data, start, end, scale, np.empty(WORK, np.uint64))


@compiled_plain
def put_decimal_with(
    out: Bytes, at: int, data: Bytes, start: int, end: int, scale: int, work: Hashes
) -> int:
    """``put_decimal`` with an array of ``WORK`` numbers to work in."""
    if end - start > _DECIMAL_BYTES_SHORT:
        return _put_long_decimal(out, at, data, start, end, scale, work)
    value = read_short(data, start, end)
    digits = np.uint64(value)
    if value < 0:
        out[at] = MINUS
        at += 1
        digits = np.uint64(0) - digits
    if scale == 0:
        return put_number(out, at, digits)
    if scale > 18:
        return _put_long_decimal(out, at - (1 if value < 0 else 0), data, start, end, scale, work)
    power = _POWERS[scale]
    whole = digits // power
    at = put_number(out, at, whole)
    out[at] = POINT
    fraction = digits - whole * power
    for place in range(at + scale, at, -1):
        rest = fraction // np.uint64(10)
        out[place] = np.uint8(ZERO) + np.uint8(fraction - rest * np.uint64(10))
        fraction = rest
    return at + scale + 1


@compiled_plain
def _put_long_decimal(
    out: Bytes, at: int, data: Bytes, start: int, end: int, scale: int, work: Hashes
) -> int:
    """Divide the number by 10**9; 40 limbs of 16 bits are enough for DECIMAL(65)."""
    limbs, digits = work[:_LIMBS_16], work[_LIMBS_16:WORK]
    limbs[:] = 0
    size = end - start
    negative = size > 0 and data[start] >= 128
    carry = np.uint64(1)
    for place in range(size):
        byte = np.uint64(data[end - 1 - place])
        if negative:
            byte = (byte ^ np.uint64(0xFF)) + carry
            carry = byte >> np.uint64(8)
            byte &= np.uint64(0xFF)
        limbs[place >> 1] |= byte << np.uint64(8 * (place & 1))
    if negative:
        out[at] = MINUS
        at += 1
    used = (size + 1) >> 1
    count = 0
    while used > 0 or count <= scale:
        rest = np.uint64(0)
        for place in range(used - 1, -1, -1):
            rest = (rest << np.uint64(16)) | limbs[place]
            limbs[place] = rest // np.uint64(1000000000)
            rest %= np.uint64(1000000000)
        while used > 0 and limbs[used - 1] == 0:
            used -= 1
        for _ in range(9):
            digits[count] = np.uint64(ZERO) + rest % np.uint64(10)
            rest //= np.uint64(10)
            count += 1
    while count > scale + 1 and digits[count - 1] == ZERO:
        count -= 1
    for place in range(count - 1, -1, -1):
        out[at] = digits[place]
        at += 1
        if place == scale and scale > 0:
            out[at] = POINT
            at += 1
    return at


@compiled_plain
def decimal_double(
    text: Bytes, at: int, data: Bytes, start: int, end: int, scale: int, work: Hashes
) -> int:
    """The bits of the double that is nearest to a DECIMAL. Its digits are written to ``text[at:]``."""
    last = put_decimal_with(text, at, data, start, end, 0, work)
    first = at + 1 if text[at] == MINUS else at
    sign = int64(-(2**63)) if first > at else int64(0)
    digits = np.uint64(0)
    kept = min(last, first + DIGITS_MAX)
    for place in range(first, kept):
        digits = digits * np.uint64(10) + np.uint64(text[place] - ZERO)
    exponent = last - kept - scale
    bits = nearest(int64(digits), exponent)
    if kept < last:
        other = nearest(int64(digits + np.uint64(1)), exponent)
        if other != bits and _is_above_middle(text, first, last, scale, bits, work):
            bits = other
    return int64(bits) | sign if digits else int64(0)


@compiled_plain
def _is_above_middle(
    text: Bytes, first: int, last: int, scale: int, bits: int, work: Hashes
) -> bool:
    """Whether the digits x 10**-scale are nearer to the next double than to the one with these bits."""
    exponent = (bits >> 52) - 1075 - 1  # of a DECIMAL above 10**19 x 10**-30: no subnormal number
    middle = ((bits & 0xFFFFFFFFFFFFF) | (1 << 52)) * 2 + 1
    left, right = work[:_LIMBS], work[_LIMBS : 2 * _LIMBS]
    left[:] = 0
    right[:] = 0
    for place in range(first, last):
        _multiply(left, 10, int64(text[place]) - ZERO)
    right[0] = np.uint64(middle & 0xFFFFFFFF)
    right[1] = np.uint64(middle >> 32)
    for _ in range(scale):
        _multiply(right, 10, 0)
    for _ in range(abs(exponent)):
        _multiply(right if exponent > 0 else left, 2, 0)
    for place in range(_LIMBS - 1, -1, -1):
        if left[place] != right[place]:
            return bool(left[place] > right[place])
    return bits & 1 == 1  # a tie: the even one


@compiled_plain
def _multiply(limbs: Hashes, factor: int, carry: int) -> None:
    """Multiply a number of 32-bit limbs and add the carry."""
    rest = np.uint64(carry)
    for place in range(len(limbs)):
        rest += limbs[place] * np.uint64(factor)
        limbs[place] = rest & np.uint64(0xFFFFFFFF)
        rest >>= np.uint64(32)


@compiled_plain
def double_bits(data: Bytes, start: int, kind: int) -> int:
    """The bits of a FLOAT or DOUBLE as those of a double."""
    bits = stored_bits(data, start, kind)
    if kind == FLOAT:
        return int64(np.float64(np.uint32(bits).view(np.float32)).view(np.int64))
    return bits


@compiled_plain
def stored_bits(data: Bytes, start: int, kind: int) -> int:
    """The 4 bytes of a FLOAT, or the 8 of a DOUBLE, as a number."""
    bits = int64(0)
    for byte in range(8 if kind == DOUBLE else 4):
        bits |= int64(data[start + byte]) << int64(8 * byte)
    return bits


@compiled_plain
def put_text(out: Bytes, at: int, text: Bytes) -> int:
    """Copy a text."""
    for place in range(len(text)):
        out[at + place] = text[place]
    return at + len(text)
