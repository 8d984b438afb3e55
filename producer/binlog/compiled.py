"""Compiles the kernels of the receiver and the relay log; see ``millrace.compiled``.

``MILLRACE_KERNEL_CHECKED=1`` checks every index against its array (for tests). Checksums and copies work on addresses;
their callers check the lengths. ``NUMBA_DISABLE_JIT=1`` runs everything as plain Python, the LLVM intrinsics included.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
from numba.extending import intrinsic

from millrace.compiled import IS_INTERPRETED, kernel_compiler

int64 = cast(Callable[[Any], int], np.int64)  # in kernels: widen before a shift

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


def lowered(plain: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes an intrinsic, which replaces a call in a kernel with LLVM code. ``plain`` does the same in Python."""

    def made(function: Callable[..., Any]) -> Callable[..., Any]:
        return plain if IS_INTERPRETED else cast(Callable[..., Any], intrinsic(function))

    return made
