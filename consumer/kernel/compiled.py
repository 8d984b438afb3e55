"""How the kernel is compiled: numba without the GIL, machine code kept below ``$MILLRACE_HOME/apply-kernel/<key>``.

The key is a digest of every source file of this folder and of the numba version: numba itself looks only at the file
of the outermost function, so an edited helper would go unnoticed. ``NUMBA_DISABLE_JIT=1`` runs it as plain Python.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

import numba

from millrace.home import home

F = TypeVar("F", bound=Callable[..., object])


def _cache_key() -> str:
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


CACHE_DIR = home() / "apply-kernel" / _cache_key()


def compiled(function: F) -> F:
    """``function`` as machine code, on its first call or from the cache."""
    numba.config.CACHE_DIR = str(CACHE_DIR)  # type: ignore[attr-defined]
    return cast(F, numba.njit(nogil=True, cache=True, error_model="numpy")(function))
