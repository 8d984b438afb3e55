"""A guard that is removed, and the failure that must follow."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest

Patch = pytest.MonkeyPatch


@dataclass(frozen=True, slots=True)
class Mutant:
    """``off`` removes the guard. ``shows``: tests of the file, each with a pattern of its error.

    A test name without parameters means all parameters.
    """

    name: str
    off: Callable[[Patch], None]
    file: str
    shows: Mapping[str, str]
