"""What a lane tells the runner, over a pipe."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Collected:
    """A lane begins a file of so many tests."""

    test_count: int


@dataclass(frozen=True, slots=True)
class Begun:
    """A test begins."""

    test: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A test has ended. ``failures``: the report of each phase that failed; ``skipped``: why it did not run."""

    test: str
    failures: tuple[str, ...]
    skipped: str = ""


@dataclass(frozen=True, slots=True)
class FileDone:
    """The lane wants another file (at first: it has started)."""


Message = Collected | Begun | Ended | FileDone
