"""How apply's kernel is compiled; see ``millrace.compiled``.

``MILLRACE_KERNEL_CHECKED=1`` adds a bounds check to every array index (for fuzzing). ``NUMBA_DISABLE_JIT=1`` runs plain
Python.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import SupportsInt, TypeAlias, cast

import numpy as np
from numpy.typing import NBitBase, NDArray

from millrace import doubles
from millrace.compiled import kernel_compiler
from millrace.text_protocol import walk

Bytes: TypeAlias = NDArray[np.uint8]
Ints: TypeAlias = NDArray[np.int64]
Hashes: TypeAlias = NDArray[np.uint64]
Letters: TypeAlias = NDArray[np.uint32]  # the tables of ``drivers.mysql.collation``
Words: TypeAlias = NDArray[np.uint32]
Offsets: TypeAlias = NDArray[np.integer[NBitBase]]  # Arrow's: 32 or 64 bits

int64 = cast(Callable[[SupportsInt], int], np.int64)  # in kernels: a number of 64 bits

CHECKED = os.environ.get("MILLRACE_KERNEL_CHECKED", "") == "1"

compiled = kernel_compiler(
    "apply", Path(__file__).parent, doubles.SOURCE, walk.SOURCE, is_checked=CHECKED
)

# for functions that make no array: see ``kernel_compiler``
compiled_plain = kernel_compiler(
    "apply",
    Path(__file__).parent,
    doubles.SOURCE,
    walk.SOURCE,
    is_checked=CHECKED,
    allocates=False,
)
