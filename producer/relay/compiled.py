"""numba's decorators with types, for the kernels of the relay: compiled once, kept on disk, without the GIL.

The cache stands beside the sources (``__pycache__``) and is keyed by the source file of each function alone: after a
change of a function that others call, numba would go on with their old copies. ``tests/unit/test_relay_kernels.py``
compares with a reference, so a stale cache is seen there; remove the ``*.nbi`` files then.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numba.extending import intrinsic

int64 = cast(Callable[[Any], int], np.int64)  # in kernels: widen before a shift
Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile at the first call (seconds; later processes load it from disk)."""
    return cast(Function, njit(nogil=True, cache=True)(function))


def lowered(function: Callable[..., Any]) -> Callable[..., Any]:
    """An intrinsic: LLVM code in the place of a call; only kernels can call it."""
    return cast(Callable[..., Any], intrinsic(function))
