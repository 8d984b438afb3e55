"""Where a snapshot is: the part of a capture task's progress that its next owner needs to continue it.

A snapshot publishes the rows that tables have already, table by table, chunk by chunk (``drivers.mysql.chunks``). Its
state is in each ``resolved`` and ``fence`` record while it runs. So a chunk's rows and the state after them are in one
Kafka transaction.

    at is None                  the tables are not listed yet
    at, not open                its table is the next one: no row of it is published
    at, open                    its ``begin`` record is published, and the rows up to the border ``after``
    no state at all             no snapshot runs

The tables are listed in the order of the patterns, and by name within a pattern. A table that two patterns match comes
with the first one. The list is made again by each owner: tables may come and go.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

INITIAL = "initial"  # the id of the snapshot that a new topic begins with

Name = tuple[str, str]  # database, table


@dataclass(frozen=True, slots=True)
class TablePlace:
    """The table under way. ``after``: the last ``drivers.mysql.chunks.chunk.Border``; () before a chunk is published.

    ``chunks`` and ``rows`` count what is published of it.
    """

    name: Name
    is_open: bool = False
    after: tuple[str, ...] = ()
    chunks: int = 0
    rows: int = 0

    def begun(self) -> "TablePlace":
        """With its ``begin`` record published."""
        return replace(self, is_open=True)

    def advanced(self, after: tuple[str, ...], rows: int) -> "TablePlace":
        """After one more chunk."""
        return replace(self, after=after, chunks=self.chunks + 1, rows=self.rows + rows)


@dataclass(frozen=True, slots=True)
class SnapshotState:
    """``id`` is unique in the topic. ``tables``: patterns of ``TableFilter``. ``where``: SQL, "" for all rows."""

    id: str
    tables: tuple[str, ...]
    where: str = ""
    at: TablePlace | None = None

    def moved(self, at: TablePlace) -> "SnapshotState":
        """At this place."""
        return replace(self, at=at)


def initial_state(include: tuple[str, ...]) -> SnapshotState:
    """The state in which a new topic begins under ``snapshot: initial``."""
    return SnapshotState(INITIAL, include)


def in_order(names: Iterable[Name], patterns: tuple[str, ...]) -> list[Name]:
    """The names that a pattern matches, in the order of the module."""
    ranked = ((_rank(name, patterns), name) for name in names)
    return [name for rank, name in sorted(ranked) if rank < len(patterns)]


def remaining(names: Iterable[Name], state: SnapshotState) -> list[Name]:
    """The tables that are not done, in order: from the one that is under way on, if it still exists."""
    listed = in_order(names, state.tables)
    if state.at is None:
        return listed
    here = (_rank(state.at.name, state.tables), state.at.name)
    return [name for name in listed if (_rank(name, state.tables), name) >= here]


def _rank(name: Name, patterns: tuple[str, ...]) -> int:
    """The first pattern that matches; their number if none does."""
    return next(
        (rank for rank, pattern in enumerate(patterns) if _matches(pattern, name)), len(patterns)
    )


def _matches(pattern: str, name: Name) -> bool:
    database, _, table = pattern.partition(".")
    return _same(database, name[0]) and _same(table or "*", name[1])


def _same(pattern: str, name: str) -> bool:
    # the documents' patterns know * and ? only
    return fnmatchcase(name, pattern.replace("[", "[[]"))
