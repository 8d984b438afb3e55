"""The tables of a stream, and its range, from the rows that a task's loads have on the target.

    state of a table                                    its rows are applied by
    waits, copies, copied                               no stream
    follows, of the first load (batch ``FIRST``)        main
    follows, of a later load                            the side stream
    no row                                              main

A task's side stream has the name ``TASK#load`` wherever the target names a task: its progress, fence and sessions are
its own. Pure.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from consumer.load.state import FIRST, FOLLOWS, SIDE, LoadStream
from consumer.streams.range import Copied, Range
from consumer.target.inventory import TableKey
from schemas.gtid import parse_gtid_set


@dataclass(frozen=True, slots=True)
class StreamTable:
    """The part of a table's load that a stream must know. ``state``: see ``consumer.load.state``.

    ``begin``, ``exact``: GTID sets. ``is_exact``: it was read in one snapshot, at ``exact``. ``detail``: why it waits.
    """

    name: TableKey
    batch: int
    state: str
    begin: str = ""
    exact: str = ""
    is_exact: bool = False
    detail: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """``elsewhere``: tables that this stream does not apply. ``only``: a side stream's tables; None for main."""

    elsewhere: frozenset[TableKey] = field(default_factory=frozenset)
    only: frozenset[TableKey] | None = None
    range: Range | None = None


WHOLE = View()  # of a task without loads


def side_of(task: str) -> str:
    """The name of a task's side stream."""
    return task + SIDE


def streams_of(task: str) -> tuple[str, str]:
    """The names of a task's streams, main first."""
    return task, side_of(task)


def is_side(stream: str) -> bool:
    """Whether this is the name of a side stream."""
    return stream.endswith(SIDE)


def view_of(stream: str, tables: Iterable[StreamTable], load: LoadStream | None) -> View:
    """The view of a stream. ``load``: the range that is stored for it."""
    mine, others = set[StreamTable](), set[TableKey]()
    for table in tables:
        if table.state == FOLLOWS and (table.batch != FIRST) == is_side(stream):
            mine.add(table)
        else:
            others.add(table.name)
    range_ = None
    if load is not None:
        end = parse_gtid_set(load.flavour, load.end)
        range_ = Range(end, {table.name: _copied(table, load) for table in mine})
    if is_side(stream):
        return View(only=frozenset(table.name for table in mine), range=range_)
    return View(elsewhere=frozenset(others), range=range_)


def _copied(table: StreamTable, load: LoadStream) -> Copied:
    covered = table.exact if table.is_exact else table.begin or load.begin
    return Copied(parse_gtid_set(load.flavour, covered), table.is_exact)
