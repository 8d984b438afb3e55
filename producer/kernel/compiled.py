"""How the kernel is compiled: one decorator, one cache that can not go stale, one switch that adds bounds checks.

``compiled`` is numba's ``njit`` without the GIL. Machine code is cached below ``$MILLRACE_HOME/kernel/<key>``, where
the key is a digest of this folder's code and of numba's version: numba itself only looks at the file of the outermost
function, so an edited helper would go unnoticed. Compiling takes half a minute, once (``producer.kernel.warm``).

Modes (environment):
    (nothing)                    machine code, memory unchecked: the code compares each length with its event itself
    MILLRACE_KERNEL_CHECKED=1    machine code that checks the array at every load, store and copy: for fuzzing
    NUMBA_DISABLE_JIT=1          plain Python, checked as well: slow, for a debugger
"""

import ast
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

from millrace.home import home

F = TypeVar("F", bound=Callable[..., object])

CHECKED = os.environ.get("MILLRACE_KERNEL_CHECKED", "") == "1"
_CONFIG: Any = numba.config
INTERPRETED = bool(_CONFIG.DISABLE_JIT)


def _cache_key() -> str:
    digest = hashlib.sha256(f"{numba.__version__}/{CHECKED}".encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + ast.dump(ast.parse(path.read_bytes())).encode())
    return digest.hexdigest()[:16]


def _cache_dir() -> Path:
    return home() / "kernel" / _cache_key()


def compiled(function: F) -> F:
    """`function` as machine code, on its first call or from the cache."""
    if INTERPRETED:
        return function
    _CONFIG.CACHE_DIR = str(CACHE_DIR)
    made: Any = numba.njit(nogil=True, cache=True, boundscheck=CHECKED, error_model="numpy")(
        function
    )
    template = made.get_call_template

    def of_plain_types(args: Sequence[Any], kws: Mapping[str, Any]) -> Any:
        """A constant argument is a number like any other: else each constant would make a version of its own."""
        return template(tuple(map(numba.types.unliteral, args)), dict(kws))

    made.get_call_template = of_plain_types
    return cast(F, made)


CACHE_DIR = _cache_dir()
