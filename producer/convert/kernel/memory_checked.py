"""``memory`` as machine code that first compares each access with the array's size, and raises IndexError. See
there.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from millrace.producer.convert.kernel import memory_machine
from millrace.producer.convert.kernel.compiled import compiled

Bytes = NDArray[np.uint8]

machine: Any = memory_machine
signed: Any = memory_machine.signed


@compiled
def _check(array: Bytes, offset: int, length: int) -> None:
    if offset < 0 or length < 0 or offset + length > array.size:
        raise IndexError("kernel: bytes outside the array")


@compiled
def load_u8(array: Bytes, offset: int) -> int:
    _check(array, offset, 1)
    return machine.load_u8(array, offset)  # type: ignore[no-any-return]


@compiled
def load_u16(array: Bytes, offset: int) -> int:
    _check(array, offset, 2)
    return machine.load_u16(array, offset)  # type: ignore[no-any-return]


@compiled
def load_u32(array: Bytes, offset: int) -> int:
    _check(array, offset, 4)
    return machine.load_u32(array, offset)  # type: ignore[no-any-return]


@compiled
def load_i64(array: Bytes, offset: int) -> int:
    _check(array, offset, 8)
    return machine.load_i64(array, offset)  # type: ignore[no-any-return]


@compiled
def load_u16be(array: Bytes, offset: int) -> int:
    _check(array, offset, 2)
    return machine.load_u16be(array, offset)  # type: ignore[no-any-return]


@compiled
def load_u32be(array: Bytes, offset: int) -> int:
    _check(array, offset, 4)
    return machine.load_u32be(array, offset)  # type: ignore[no-any-return]


@compiled
def store_u8(array: Bytes, offset: int, value: int) -> None:
    """The low byte of `value`."""
    _check(array, offset, 1)
    machine.store_u8(array, offset, value)


@compiled
def store_i64(array: Bytes, offset: int, value: int) -> None:
    """Eight bytes, little-endian."""
    _check(array, offset, 8)
    machine.store_i64(array, offset, value)


@compiled
def copy(target: Bytes, to: int, origin: Bytes, start: int, length: int) -> None:
    """Copy `length` bytes between arrays (or between places that do not overlap)."""
    _check(target, to, length)
    _check(origin, start, length)
    machine.copy(target, to, origin, start, length)


@compiled
def move(target: Bytes, to: int, start: int, length: int) -> None:
    """Move `length` bytes within an array; the places may overlap."""
    _check(target, to, length)
    _check(target, start, length)
    machine.move(target, to, start, length)
