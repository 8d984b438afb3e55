"""How kernels are compiled: numba's ``njit`` without the GIL, and a cache on disk that can not go stale.

    compiled = kernel_compiler("relay", Path(__file__).parent)      # once for a folder of kernels

    @compiled
    def walk(buffer, …): …

Machine code is kept below ``$MILLRACE_HOME/kernels/<name>-<key>``, where the key is a digest of the code (not of the
comments) of every file that the compiler was told of, and of numba's version: numba itself looks at the file of the
outermost function alone, so an edited helper would go unnoticed. ``NUMBA_DISABLE_JIT=1`` leaves plain Python, for a
debugger.
"""

import ast
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

from millrace.home import home

F = TypeVar("F", bound=Callable[..., object])

_CONFIG: Any = numba.config
IS_INTERPRETED = bool(_CONFIG.DISABLE_JIT)


def kernel_compiler(name: str, *sources: Path, is_checked: bool = False) -> Callable[[F], F]:
    """The decorator of the kernels in ``sources`` (files and folders). ``is_checked``: every index is compared."""
    cache_dir = home() / "kernels" / f"{name}-{_key(sources, is_checked=is_checked)}"

    def compiled(function: F) -> F:
        """``function`` as machine code, on its first call or from the cache."""
        if IS_INTERPRETED:
            return function
        _CONFIG.CACHE_DIR = str(cache_dir)
        made: Any = numba.njit(nogil=True, cache=True, boundscheck=is_checked, error_model="numpy")(
            function
        )
        template = made.get_call_template

        def of_plain_types(args: Sequence[Any], kws: Mapping[str, Any]) -> Any:
            """A constant argument is a number like any other: else each constant would make a version of its own."""
            return template(tuple(map(numba.types.unliteral, args)), dict(kws))

        made.get_call_template = of_plain_types
        return cast(F, made)

    return compiled


def _key(sources: Sequence[Path], *, is_checked: bool) -> str:
    digest = hashlib.sha256(f"{numba.__version__}/{is_checked}".encode())
    for path in sorted(file for source in sources for file in _files(source)):
        digest.update(path.name.encode() + ast.dump(ast.parse(path.read_bytes())).encode())
    return digest.hexdigest()[:16]


def _files(source: Path) -> list[Path]:
    return list(source.glob("*.py")) if source.is_dir() else [source]
