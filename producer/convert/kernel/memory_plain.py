"""``memory`` in plain Python: each access is compared with the array's size. See there."""

from typing import SupportsInt

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]


def _span(array: Bytes, offset: int, length: int) -> Bytes:
    if offset < 0 or length < 0 or offset + length > array.size:
        raise IndexError(f"{length} bytes at {offset} of {array.size}")
    return array[offset : offset + length]


def load_u8(array: Bytes, offset: int) -> int:
    if not 0 <= offset < array.size:
        raise IndexError(f"1 byte at {offset} of {array.size}")
    return int(array[offset])


def load_u16(array: Bytes, offset: int) -> int:
    return int.from_bytes(_span(array, offset, 2).tobytes(), "little")


def load_u32(array: Bytes, offset: int) -> int:
    return int.from_bytes(_span(array, offset, 4).tobytes(), "little")


def load_i64(array: Bytes, offset: int) -> int:
    return int.from_bytes(_span(array, offset, 8).tobytes(), "little", signed=True)


def load_u16be(array: Bytes, offset: int) -> int:
    return int.from_bytes(_span(array, offset, 2).tobytes(), "big")


def load_u32be(array: Bytes, offset: int) -> int:
    return int.from_bytes(_span(array, offset, 4).tobytes(), "big")


def store_u8(array: Bytes, offset: int, value: SupportsInt) -> None:
    """The low byte of `value`."""
    _span(array, offset, 1)[0] = int(value) & 0xFF


def store_i64(array: Bytes, offset: int, value: int) -> None:
    """Eight bytes, little-endian."""
    _span(array, offset, 8)[:] = np.frombuffer(
        (int(value) & (2**64 - 1)).to_bytes(8, "little"), np.uint8
    )


def copy(target: Bytes, to: int, origin: Bytes, start: int, length: int) -> None:
    """Copy `length` bytes between arrays (or between places that do not overlap)."""
    _span(target, to, length)[:] = _span(origin, start, length)


def move(target: Bytes, to: int, start: int, length: int) -> None:
    """Move `length` bytes within an array; the places may overlap."""
    _span(target, to, length)[:] = _span(target, start, length).copy()


def signed(value: SupportsInt) -> int:
    return int(np.int64(value))
