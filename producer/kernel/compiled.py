"""How the kernel is compiled: one decorator, one cache that can not go stale, one switch that adds bounds checks.

``compiled`` is numba's ``njit`` without the GIL. Machine code is cached below ``$MILLRACE_HOME/kernel/<key>``, where the key is
a digest of every source file of this folder and of the numba version: numba itself only looks at the file of the outermost
function, so an edited helper would go unnoticed.

Modes (environment):
    (nothing)                    machine code, memory access unchecked: the code checks each length against the event itself
    MILLRACE_KERNEL_CHECKED=1    machine code in which every load, store and copy checks its array (IndexError): for fuzzing
    NUMBA_DISABLE_JIT=1          plain Python, checked as well: slow, for a debugger
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

import numba

from millrace.home import home

F = TypeVar("F", bound=Callable[..., object])

CHECKED = os.environ.get("MILLRACE_KERNEL_CHECKED", "") == "1"
INTERPRETED = bool(numba.config.DISABLE_JIT)


def _cache_key() -> str:
    digest = hashlib.sha256(f"{numba.__version__}/{CHECKED}".encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _cache_dir() -> Path:
    return home() / "kernel" / _cache_key()


def compiled(function: F) -> F:
    """`function` as machine code, on its first call or from the cache."""
    if not INTERPRETED:
        numba.config.CACHE_DIR = str(CACHE_DIR)
    return cast(F, numba.njit(nogil=True, cache=True, boundscheck=CHECKED, error_model="numpy")(function))


CACHE_DIR = _cache_dir()
