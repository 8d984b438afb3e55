"""How the kernels of receiver and relay log are compiled; see ``millrace.compiled``.

``MILLRACE_KERNEL_CHECKED=1``: every index is compared with its array (for tests); sums and copies take addresses, whose
lengths their callers compare. ``NUMBA_DISABLE_JIT=1``: plain Python, also where there is LLVM code else.
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
# Every file with a kernel, and what kernels use of others; the rest of the folder may change without a new compilation.
SOURCES = tuple(
    HERE / f"{name}.py"
    for name in (
        "compiled",
        "crc",
        "events",
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
    """An intrinsic: LLVM code in the place of a call; only kernels can call it. ``plain``: the same in Python."""

    def made(function: Callable[..., Any]) -> Callable[..., Any]:
        return plain if IS_INTERPRETED else cast(Callable[..., Any], intrinsic(function))

    return made
