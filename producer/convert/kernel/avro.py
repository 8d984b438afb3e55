"""Avro's primitive encodings (specification 1.12, "Binary encoding"): writers at an offset.

long, int   zigzag, then 7 bits per byte, low bits first, high bit: more bytes follow (1 to 10 bytes)
bytes       length as long, then the bytes; a string has the same encoding, in UTF-8
"""

import numpy as np

from millrace.producer.convert.kernel.compiled import compiled
from millrace.producer.convert.kernel.memory import Bytes, copy, signed, store_u8


@compiled
def write_long(out: Bytes, at: int, value: int) -> int:
    """Write an Avro int or long (|value| < 2**63) and return the offset after it."""
    if -64 <= value < 64:
        store_u8(out, at, (value << 1) ^ (value >> 63))
        return at + 1
    rest = np.uint64((value << 1) ^ (value >> 63))
    seven = np.uint64(7)
    while rest >= np.uint64(128):
        store_u8(out, at, signed(rest & np.uint64(127)) | 128)
        rest = rest >> seven
        at += 1
    store_u8(out, at, signed(rest))
    return at + 1


@compiled
def long_size(value: int) -> int:
    """The number of bytes that `write_long` writes for a value >= 0."""
    size = 1
    value >>= 6
    while value > 0:
        size += 1
        value >>= 7
    return size


@compiled
def write_bytes(out: Bytes, at: int, origin: Bytes, start: int, length: int) -> int:
    """Write `length` bytes of `origin` from `start` as Avro bytes or string and return the offset after them."""
    at = write_long(out, at, length)
    copy(out, at, origin, start, length)
    return at + length
