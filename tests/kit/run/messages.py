"""The messages from a lane to the runner, over a pipe."""

from dataclasses import dataclass


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
    """The lane is ready for a file; the first message after its start.

    ``uses_servers``: the file that is done used shared servers.
    """

    uses_servers: bool = False


Message = Collected | Begun | Ended | FileDone
