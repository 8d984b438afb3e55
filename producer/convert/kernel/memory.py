"""Loads, stores and copies of bytes at any offset of a uint8 array, as single machine instructions.

Offsets are never negative and never wrap around. Nothing is checked here unless a checked mode of ``compiled`` is on:
before the call, the caller compares lengths with the end of the event (reads) or with the room of the output (writes).
All loads return int64: widths below 64 bits are zero-extended, ``load_i64`` returns the 64 bits unchanged.

    memory_machine    LLVM instructions
    memory_checked    the same after a comparison with the array's size
    memory_plain      plain Python, checked: the reference for the others
"""

import sys
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from millrace.producer.convert.kernel.compiled import CHECKED, INTERPRETED

Bytes = NDArray[np.uint8]

if sys.byteorder != "little":  # pragma: no cover
    raise ImportError("the kernel is written for little-endian machines")

if TYPE_CHECKING or INTERPRETED:
    from millrace.producer.convert.kernel.memory_plain import (
        copy,
        load_i64,
        load_u8,
        load_u16,
        load_u16be,
        load_u32,
        load_u32be,
        move,
        signed,
        store_i64,
        store_u8,
    )
elif CHECKED:
    from millrace.producer.convert.kernel.memory_checked import (
        copy,
        load_i64,
        load_u8,
        load_u16,
        load_u16be,
        load_u32,
        load_u32be,
        move,
        signed,
        store_i64,
        store_u8,
    )
else:
    from millrace.producer.convert.kernel.memory_machine import (
        copy,
        load_i64,
        load_u8,
        load_u16,
        load_u16be,
        load_u32,
        load_u32be,
        move,
        signed,
        store_i64,
        store_u8,
    )

__all__ = [
    "Bytes",
    "copy",
    "load_i64",
    "load_u8",
    "load_u16",
    "load_u16be",
    "load_u32",
    "load_u32be",
    "move",
    "signed",
    "store_i64",
    "store_u8",
]
