"""The tables of a stream, and its range, from the rows that a task's loads have on the target.

    state of a table                                    its rows are applied by
    waits, copies, copied                               no stream
    follows, of the first load (batch ``FIRST``)        main
    follows, of a later load                            the side stream
    no row                                              main

A range: the source transactions whose rows the copied tables may already have. It is over when the mark is past its
end.

    begin       GTID set of the source before the first row was read. The stream starts with it: it skips what it covers
    end         GTID set after the last row was read: every row that was read was committed in it
    covered     by table: everything in it is in the copied rows. Usually the load's begin
    exact       a table that was read in one snapshot: the copied rows are those of ``covered``, no more and no less

    a row of                    in ``covered``   later in ``end``     later
    a table that was copied     skipped          safe mode            applied
    an exact table              skipped          applied (1)          applied
    any other table             -                skipped              applied

    (1) without foreign key checks, unless a cascade that the source did not log must follow. A related table that was
        copied may be in a later state: its parent row is deleted already, or its child row is new. Tables that such a
        cascade links are in one snapshot (``consumer.load.tables``), so it finds the rows that it found on the source

A task's side stream has the name ``TASK#load`` wherever the target names a task: its progress, fence and sessions are
its own. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from millrace.consumer.target.loads import FIRST, FOLLOWS, SIDE, LoadStream, LoadTable
from millrace.consumer.target.progress import Mark
from millrace.drivers.mysql.catalog import TableKey
from millrace.schemas.gtid import AnyGtid, Flavour, GtidPosition, parse_gtid_set


@dataclass(frozen=True, slots=True)
class Copied:
    """The state of a copied table; see the module."""

    covered: GtidPosition
    is_exact: bool = False


class Fate(IntEnum):
    """How a row is applied."""

    APPLIED = 0
    REPEATED = 1  # in safe mode
    SKIPPED = 2


@dataclass(frozen=True, slots=True)
class LoadRange:
    """``tables``: those that were copied, by their name on the target."""

    end: GtidPosition
    tables: Mapping[TableKey, Copied]

    def is_over(self, mark: Mark) -> bool:
        """Whether all source transactions of the range are before the mark."""
        if not mark.gtid_set or mark.flavour != self.end.flavour:
            return False
        return parse_gtid_set(Flavour(mark.flavour), mark.gtid_set).includes(self.end)

    def fate(self, table: TableKey, gtid: AnyGtid) -> Fate:
        """How a row of this table is applied, if the stream applies the table and its start does not cover the row."""
        is_inside = self.end.covers(gtid)
        copied = self.tables.get(table)
        if copied is None:
            return Fate.SKIPPED if is_inside else Fate.APPLIED
        if copied.covered.covers(gtid):
            return Fate.SKIPPED
        return Fate.REPEATED if is_inside and not copied.is_exact else Fate.APPLIED

    def covers(self, table: TableKey, gtid: AnyGtid) -> bool:
        """Whether the copied rows of a table have everything of this source transaction."""
        copied = self.tables.get(table)
        return copied is not None and copied.covered.covers(gtid)


@dataclass(frozen=True, slots=True)
class StreamTables:
    """``elsewhere``: tables that this stream does not apply. ``only``: a side stream's tables; None for main."""

    elsewhere: frozenset[TableKey] = field(default_factory=frozenset)
    only: frozenset[TableKey] | None = None
    range: LoadRange | None = None


WHOLE = StreamTables()  # of a task without loads


def side_of(task: str) -> str:
    """The name of a task's side stream."""
    return task + SIDE


def streams_of(task: str) -> tuple[str, str]:
    """The names of a task's streams, main first."""
    return task, side_of(task)


def is_side(stream: str) -> bool:
    """Whether this is the name of a side stream."""
    return stream.endswith(SIDE)


def tables_of_stream(
    stream: str, tables: Iterable[LoadTable], load: LoadStream | None
) -> StreamTables:
    """The tables that a stream applies. ``load``: the range that is stored for it."""
    mine, others = set[LoadTable](), set[TableKey]()
    for table in tables:
        if table.state == FOLLOWS and (table.batch != FIRST) == is_side(stream):
            mine.add(table)
        else:
            others.add(table.key)
    range_ = None
    if load is not None:
        end = parse_gtid_set(load.flavour, load.end)
        range_ = LoadRange(end, {table.key: _copied(table, load) for table in mine})
    if is_side(stream):
        return StreamTables(only=frozenset(table.key for table in mine), range=range_)
    return StreamTables(elsewhere=frozenset(others), range=range_)


def _copied(table: LoadTable, load: LoadStream) -> Copied:
    covered = table.reach.exact if table.is_exact else table.reach.begin or load.begin
    return Copied(parse_gtid_set(load.flavour, covered), table.is_exact)
