"""The messages between the runner and a lane, over a pipe."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Assigned:
    """The next file of a lane. ``needs_sets``: this file or a later one uses the shared source sets."""

    path: str
    needs_sets: bool


@dataclass(frozen=True, slots=True)
class Collected:
    """A lane begins a file with ``test_count`` tests."""

    test_count: int


@dataclass(frozen=True, slots=True)
class Begun:
    """A test begins."""

    test: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A test has ended. ``failures``: the report of each failed phase; ``skipped``: the reason of a skip."""

    test: str
    failures: tuple[str, ...]
    skipped: str = ""


@dataclass(frozen=True, slots=True)
class FileDone:
    """The lane is ready for a file; the first message after its start. ``cpu_s``: used since the last one."""

    cpu_s: float


Message = Collected | Begun | Ended | FileDone
