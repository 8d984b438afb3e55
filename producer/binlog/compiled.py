"""Compiles the kernels of the receiver and the relay log; see ``millrace.compiled``.

``MILLRACE_KERNEL_CHECKED=1`` checks every index against its array (for tests). Checksums and copies work on addresses;
their callers check the lengths. ``NUMBA_DISABLE_JIT=1`` runs everything as plain Python, the LLVM intrinsics included.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ParamSpec, SupportsInt, TypeAlias, TypeVar, cast

import numpy as np
from llvmlite import ir
from numba.core.base import BaseContext
from numba.core.typing.templates import Signature
from numba.extending import intrinsic
from numpy.typing import NDArray

from millrace.compiled import IS_INTERPRETED, kernel_compiler

int64 = cast(Callable[[SupportsInt], int], np.int64)  # in kernels: widen before a shift

Bytes: TypeAlias = NDArray[np.uint8]
Words: TypeAlias = NDArray[np.int64]
Sums: TypeAlias = NDArray[np.uint32]  # CRC-32
# What an intrinsic returns: its signature, and the function that builds its LLVM code from the arguments.
Build: TypeAlias = Callable[[BaseContext, ir.IRBuilder, object, Sequence[ir.Value]], ir.Value]
Lowering: TypeAlias = tuple[Signature, Build]

HERE = Path(__file__).parent
# Every file with a kernel, and every file that kernels import. Changes to other files cause no recompilation.
SOURCES = tuple(
    HERE / f"{name}.py"
    for name in (
        "compiled",
        "crc",
        "events",
        "framing",
        "gtid_events",
        "loads",
        "packets",
        "transactions",
        "walk",
    )
)

CHECKED = os.environ.get("MILLRACE_KERNEL_CHECKED", "") == "1"

compiled = kernel_compiler("relay", *SOURCES, is_checked=CHECKED)


P = ParamSpec("P")
R = TypeVar("R")


def lowered(plain: Callable[P, R]) -> Callable[[Callable[..., Lowering]], Callable[P, R]]:
    """Makes an intrinsic, which replaces a call in a kernel with LLVM code. ``plain`` does the same in Python."""

    def made(build: Callable[..., Lowering]) -> Callable[P, R]:
        return plain if IS_INTERPRETED else cast(Callable[P, R], intrinsic(build))

    return made
