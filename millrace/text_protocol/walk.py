"""Finds the rows of a result in its packets, and the values in a row. For kernels.

    packet     length (3 bytes, little endian), sequence number, row      (0xFFFFFF: and the next)
    row        a value for each column
    value      0xFB for NULL, or its length (1 byte, or 0xFC 2 bytes, 0xFD 3 bytes, 0xFE 8 bytes), then its bytes
    end        0xFE in a packet of less than 9 bytes, or 0xFF for an error

The state of a kernel is an array of numbers that begins with those of ``next_row``. A row begins only when ``data`` has
it whole. A packet that continues is put together by the caller, and given as ``joined`` bytes of ``data`` without
packets.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import SupportsInt, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from millrace.compiled import kernel_compiler

SOURCE = Path(__file__)  # for the key of kernels that call these
CHECKED = os.environ.get("MILLRACE_KERNEL_CHECKED", "") == "1"

compiled = kernel_compiler("text-protocol", SOURCE, is_checked=CHECKED)

int64 = cast(Callable[[SupportsInt], int], np.int64)  # in kernels: a number of 64 bits

Bytes: TypeAlias = npt.NDArray[np.uint8]
Ints: TypeAlias = npt.NDArray[np.int64]

# state: position in data, end of the row there (0: no row has begun), sequence number of the next packet
AT, ROW_END, SEQUENCE = range(3)
OWN = 3  # the first number of the kernel that calls

# what it found: a row; data ends; a packet continues; the result ends; the bytes are no rows
FOUND, MORE, CONTINUES, END, DAMAGED = range(5)

# sizes of a value that is none
NULL, NO_VALUE = -1, -2

PACKET_MAX = 0xFFFFFF
HEAD_BYTES = 4
_NULL, _TWO, _THREE, _EIGHT, _ERROR = 0xFB, 0xFC, 0xFD, 0xFE, 0xFF


@compiled
def little_number(data: Bytes, at: int, size: int) -> int:
    value = int64(0)
    for place in range(size):
        value |= int64(data[at + place]) << int64(8 * place)
    return value


@compiled
def next_row(state: Ints, data: Bytes, end: int, joined: int) -> int:
    """Step into the next row of ``data[:end]``: AT is its first byte, ROW_END the offset after it."""
    at = state[AT]
    if joined > 0:
        if at >= joined:
            return MORE
        state[ROW_END] = joined
        return FOUND
    if at + HEAD_BYTES >= end:
        return MORE
    size = little_number(data, at, 3)
    if size == PACKET_MAX:
        return CONTINUES
    first = data[at + HEAD_BYTES]
    if size == 0 or int64(data[at + 3]) != state[SEQUENCE]:
        return DAMAGED
    if first == _ERROR or (first == _EIGHT and size < 9):
        return END
    if at + HEAD_BYTES + size > end:
        return MORE
    state[AT] = at + HEAD_BYTES
    state[ROW_END] = at + HEAD_BYTES + size
    state[SEQUENCE] = (state[SEQUENCE] + 1) & 0xFF
    return FOUND


@compiled
def value_at(data: Bytes, at: int, row_end: int) -> tuple[int, int]:
    """The offset of a value's bytes, and their number: NULL, or NO_VALUE if the row is damaged here."""
    if at >= row_end:
        return at, NO_VALUE
    first = int64(data[at])
    if first == _NULL:
        return at + 1, NULL
    if first == _ERROR:
        return at, NO_VALUE
    size, head = first, 1
    if first >= _TWO:
        head = 3 if first == _TWO else 4 if first == _THREE else 9
        if at + head > row_end:
            return at, NO_VALUE
        size = little_number(data, at + 1, head - 1)
    at += head
    if size < 0 or size > row_end - at:
        return at, NO_VALUE
    return at, size
