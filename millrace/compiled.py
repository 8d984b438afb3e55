"""Compiles kernels: numba's ``njit`` without the GIL, with a cache on disk that cannot go stale.

    compiled = kernel_compiler("relay", Path(__file__).parent)      # once per folder of kernels

    @compiled
    def walk(buffer, …): …

Machine code is kept in ``$MILLRACE_HOME/kernels/<name>-<key>``. The key is a digest of numba's version and of the code
(without comments) of every source file. numba itself checks only the file of the outermost function, and would miss an
edited helper. ``NUMBA_DISABLE_JIT=1`` runs plain Python, for a debugger.

``compiling`` knows whether this process compiles now, for its status.
"""

import ast
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import event

from millrace.home_folder import home

# by name, the folder of the machine code of each group of kernels that this process has imported
cache_folders: dict[str, Path] = {}

GAP_S = 1.5  # between two functions of a kernel


class _Compiling(event.Listener):
    """Listens to numba, which compiles one function at a time, and within it those that it calls."""

    def __init__(self) -> None:
        self._depth = 0
        self._ended_at_s = float("-inf")

    def on_start(self, _event: object) -> None:
        self._depth += 1

    def on_end(self, _event: object) -> None:
        self._depth -= 1
        self._ended_at_s = time.monotonic()

    def is_now(self) -> bool:
        """Whether this process compiles, and does not only read machine code from the cache."""
        return self._depth > 0 or time.monotonic() - self._ended_at_s < GAP_S


compiling = _Compiling()
event.register("numba:compile", compiling)

F = TypeVar("F", bound=Callable[..., object])

_CONFIG: Any = numba.config
IS_INTERPRETED = bool(_CONFIG.DISABLE_JIT)


def kernel_compiler(
    name: str, *sources: Path, is_checked: bool = False, allocates: bool = True
) -> Callable[[F], F]:
    """A decorator for the kernels in ``sources`` (files and folders). ``is_checked`` adds bounds checks.

    ``allocates``: False for functions that make no array. They count no references: a call takes two atomic
    instructions for each array that it passes, which is most of the time of a small function.
    """
    if IS_INTERPRETED:  # the key takes a third of a second
        return lambda function: function
    cache_dir = home() / "kernels" / f"{name}-{_key(sources, is_checked=is_checked)}"

    cache_folders[name] = cache_dir

    def compiled(function: F) -> F:
        """``function`` as machine code, compiled at its first call or read from the cache."""
        _CONFIG.CACHE_DIR = str(cache_dir)
        options: dict[str, Any] = {"boundscheck": is_checked, "error_model": "numpy"}
        if not allocates:
            options["_nrt"] = False
        made: Any = numba.njit(nogil=True, cache=True, **options)(function)
        template = made.get_call_template

        def of_plain_types(args: Sequence[Any], kws: Mapping[str, Any]) -> Any:
            """Treat a constant argument as a plain number: otherwise each constant compiles its own version."""
            return template(tuple(map(numba.types.unliteral, args)), dict(kws))

        made.get_call_template = of_plain_types
        return cast(F, made)

    return compiled


def _key(sources: Sequence[Path], *, is_checked: bool) -> str:
    digest = hashlib.sha256(f"{numba.__version__}/{is_checked}".encode())
    for path in sorted(file for source in sources for file in _files(source)):
        digest.update(path.name.encode() + _code(path))
    return digest.hexdigest()[:16]


@cache  # a file belongs to several groups of kernels
def _code(path: Path) -> bytes:
    return ast.dump(ast.parse(path.read_bytes())).encode()


def _files(source: Path) -> list[Path]:
    return list(source.glob("*.py")) if source.is_dir() else [source]
