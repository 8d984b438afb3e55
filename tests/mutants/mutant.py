"""A guard that is taken away, and what must be seen then."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest

Patch = pytest.MonkeyPatch


@dataclass(frozen=True, slots=True)
class Mutant:
    """``off`` takes the guard away. ``shows``: tests of a file, each with a pattern of the error that it must raise.

    A name without parameters stands for all of them.
    """

    name: str
    off: Callable[[Patch], None]
    file: str
    shows: Mapping[str, str]
