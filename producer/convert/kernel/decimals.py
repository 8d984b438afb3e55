"""Converts NEWDECIMAL, the servers' packed decimal, to the unscaled number of Avro's ``decimal``.

Layout (``decimal2bin`` of strings/decimal.cc; precision p, scale s, i = p - s digits before the point):

    i % 9 digits in 0 1 1 2 2 3 3 4 4 bytes | i / 9 groups of 9 digits, 4 bytes each |
    s / 9 groups of 4 bytes | s % 9 digits in 0 1 1 2 2 3 3 4 4 bytes

All groups are big-endian. The first bit is inverted; in a negative number all bits are inverted as well. The last,
short group holds only its own digits: .5 with s = 2 is the number 50. Output: big-endian two's complement, in as few
bytes as hold the sign, at least one.
"""

import numpy as np
from numpy.typing import NDArray

from millrace.producer.convert.kernel.avro import write_long
from millrace.producer.convert.kernel.compiled import compiled
from millrace.producer.convert.kernel.memory import Bytes, load_u8, store_u8

DIGITS_MAX = 65
LIMBS = 8  # of 32 bits: 10**65 needs 216 bits
BYTES_MAX = 30  # length byte and 28 bytes of two's complement

GROUP_BYTES = np.array([0, 1, 1, 2, 2, 3, 3, 4, 4, 4], np.int64)
POWERS_OF_TEN = np.array([10**n for n in range(19)], np.int64)


@compiled
def packed_size(precision: int, scale: int) -> int:
    front = precision - scale
    size: int = (
        (front // 9) * 4 + GROUP_BYTES[front % 9] + (scale // 9) * 4 + GROUP_BYTES[scale % 9]
    )
    return size


@compiled
def write_integer_bytes(out: Bytes, at: int, value: int) -> int:
    """Write a signed 64-bit number as Avro decimal bytes and return the offset after it."""
    size = 1
    while size < 8 and (value >> (8 * size - 1)) != 0 and (value >> (8 * size - 1)) != -1:
        size += 1
    at = write_long(out, at, size)
    for place in range(size):
        store_u8(out, at + place, (value >> (8 * (size - 1 - place))) & 255)
    return at + size


@compiled
def write_unsigned_bytes(out: Bytes, at: int, bits: int) -> int:
    """Write an unsigned 64-bit number, passed as a signed one with the same bits, as Avro decimal bytes. Returns
    the offset after it."""
    if bits >= 0:
        return write_integer_bytes(out, at, bits)
    at = write_long(out, at, 9)
    store_u8(out, at, 0)
    for place in range(8):
        store_u8(out, at + 1 + place, (bits >> (8 * (7 - place))) & 255)
    return at + 9


@compiled
def _group(buf: Bytes, at: int, size: int, first: int, inverted: int) -> int:
    """One big-endian group. The sign bit is inverted back if the group is the value's first, at offset `first`."""
    value = 0
    for place in range(size):
        byte = load_u8(buf, at + place) ^ inverted
        if at + place == first:
            byte ^= 128
        value = (value << 8) | byte
    return value


@compiled
def write_decimal(
    out: Bytes,
    at: int,
    buf: Bytes,
    pos: int,
    precision: int,
    scale: int,
    limbs: NDArray[np.int64],
) -> int:
    """Write the packed decimal at `pos` as Avro decimal bytes. Returns the offset after it; -1 if a group is not
    digits.

    `limbs`: scratch, LIMBS numbers. Writes at most BYTES_MAX bytes.
    """
    front = precision - scale
    first = pos
    inverted = 0 if load_u8(buf, pos) & 128 else 255
    short = precision <= 18
    value = 0
    if not short:
        for place in range(LIMBS):
            limbs[place] = 0
    # four runs of groups: short front, whole front, whole back, short back
    whole = 0
    for run in range(4):
        if run == 0:
            count, digits = (1 if front % 9 else 0), front % 9
        elif run == 1:
            count, digits = front // 9, 9
        elif run == 2:
            count, digits = scale // 9, 9
        else:
            count, digits = (1 if scale % 9 else 0), scale % 9
        size = GROUP_BYTES[digits]
        for _ in range(count):
            whole = _group(buf, pos, size, first, inverted)
            if whole >= POWERS_OF_TEN[digits]:
                return -1
            pos += size
            if short:
                value = value * POWERS_OF_TEN[digits] + whole
                continue
            carry = whole
            for place in range(LIMBS):
                carry += limbs[place] * POWERS_OF_TEN[digits]
                limbs[place] = carry & 0xFFFFFFFF
                carry >>= 32
    if short:
        return write_integer_bytes(out, at, -value if inverted else value)
    return _write_limbs(out, at, limbs, inverted != 0)


@compiled
def _write_limbs(out: Bytes, at: int, limbs: NDArray[np.int64], negative: bool) -> int:
    if negative:
        carry = 1
        for place in range(LIMBS):
            carry += limbs[place] ^ 0xFFFFFFFF
            limbs[place] = carry & 0xFFFFFFFF
            carry >>= 32
    # the sign is in the top bit of limb 7: drop leading bytes that only repeat it
    size = 4 * LIMBS
    sign = (limbs[LIMBS - 1] >> 31) & 1
    fill = 255 if sign else 0
    while size > 1:
        top = (limbs[(size - 1) >> 2] >> (8 * ((size - 1) & 3))) & 255
        below = (limbs[(size - 2) >> 2] >> (8 * ((size - 2) & 3))) & 255
        if top != fill or (below >> 7) != sign:
            break
        size -= 1
    at = write_long(out, at, size)
    for place in range(size):
        byte = size - 1 - place
        store_u8(out, at + place, (limbs[byte >> 2] >> (8 * (byte & 3))) & 255)
    return at + size
