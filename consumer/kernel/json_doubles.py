"""Writes FLOAT and DOUBLE as Java prints them: the shortest digits that are read as the same number."""

import numpy as np

from millrace.characters import MINUS, POINT, ZERO
from millrace.consumer.kernel.compiled import Bytes, compiled_plain, int64
from millrace.consumer.kernel.digits import put_number, put_signed, stored_bits
from millrace.consumer.kernel.walk import DOUBLE
from millrace.doubles import shortest, shortest_float

_E = 69
_SCALE_MAX_PLAIN, _SCALE_MIN_PLAIN = 7, -3  # Java prints 1.0E7 and 9.99E-4 with an exponent


@compiled_plain
def _put_java_digits(out: Bytes, at: int, digits: int, exponent: int) -> int:
    """Write digits x 10**exponent as Java prints a double: ``1.5``, ``1.0E10``."""
    first = at + 1
    end = put_number(out, first, np.uint64(digits))  # moved from there
    count = end - first
    power = count - 1 + exponent
    if digits == 0:
        power = int64(0)
    if power < _SCALE_MIN_PLAIN or power >= _SCALE_MAX_PLAIN:
        out[at] = out[first]
        out[first] = POINT
        if count == 1:
            out[end] = ZERO
            end += 1
        out[end] = _E
        return put_signed(out, end + 1, int64(power))
    if power < 0:
        zeros = -power
        for place in range(end - 1, first - 1, -1):
            out[place + zeros] = out[place]
        for place in range(at, first + zeros):
            out[place] = ZERO
        out[at + 1] = POINT
        return end + zeros
    for place in range(min(count, power + 1)):
        out[at + place] = out[first + place]
    for place in range(count, power + 1):
        out[at + place] = ZERO
    point = at + power + 1
    out[point] = POINT
    if count <= power + 1:
        out[point + 1] = ZERO
        return point + 2
    return end


@compiled_plain
def put_floating(out: Bytes, at: int, data: Bytes, start: int, kind: int) -> int:
    """Write a FLOAT or DOUBLE with the shortest digits that are read as the same number."""
    bits = stored_bits(data, start, kind)
    if kind == DOUBLE:
        return put_double(out, at, bits)
    if bits >> 31 & 1:
        out[at] = MINUS
        at += 1
        bits &= int64(0x7FFFFFFF)
    digits, exponent = shortest_float(bits) if bits else (0, 0)
    return _put_java_digits(out, at, int64(digits), int64(exponent))


@compiled_plain
def put_double(out: Bytes, at: int, bits: int) -> int:
    """Write the double with these bits."""
    if bits < 0:
        out[at] = MINUS
        at += 1
        bits &= int64(0x7FFFFFFFFFFFFFFF)
    digits, exponent = shortest(bits) if bits else (0, 0)
    return _put_java_digits(out, at, int64(digits), int64(exponent))
