"""How the kernels of receiver and relay log are compiled; see ``millrace.compiled``."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
from numba.extending import intrinsic

from millrace.compiled import kernel_compiler

int64 = cast(Callable[[Any], int], np.int64)  # in kernels: widen before a shift

compiled = kernel_compiler("relay", Path(__file__).parent, Path(__file__).parents[1] / "packets.py")


def lowered(function: Callable[..., Any]) -> Callable[..., Any]:
    """An intrinsic: LLVM code in the place of a call; only kernels can call it."""
    return cast(Callable[..., Any], intrinsic(function))
