"""Applies a topic for one turn: windows of records to lanes, and the low-water mark after them.

    window     records up to a barrier or ``Limits.window``; checked, and their causality keys computed once
    flight     a window whose parts are in the lanes; up to ``FLIGHTS_MAX`` at once
    part       rows of one lane in one target transaction, with their bitmap
    barrier    a DDL statement, or a schema record that gives a known ID a new meaning: all flights end first

    few rows, nothing in flight    one target transaction applies them and moves the mark
    more rows                      groups that share a key go to one lane. A key that an earlier flight holds binds the
                                   group to that flight's lane, whose parts run in order. If a group needs two lanes,
                                   the earlier flights end first. The mark moves when the oldest flights have ended.

While flights are under way, this thread reads and plans the next window. A turn ends when no record came for
``LINGER_S`` at the end of the topic, after ``TURN_S``, or with an error; never in the middle of a window. After
``TURN_S`` it leaves the windows that it has read and not begun to the next turn: under much DDL they take minutes.

Errors leave rows above the mark with their bitmaps, which the next turn skips.
Not done here: Spark, Kafka, SQL.
"""

import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from functools import partial

import numpy as np

from millrace.consumer.records.numbers import NO_SEQS, LaneNumbers, RecordNumbers, Seqs, Units
from millrace.consumer.records.pieces import BoundedSource, Source, Taken
from millrace.consumer.records.rows import Rows
from millrace.consumer.records.source_transactions import WholeReader, first_transaction, last_end
from millrace.consumer.tables.table_plans import Catalogue, Notes, TablePlans
from millrace.consumer.target.aside import kept_size
from millrace.consumer.target.loads import task_of
from millrace.consumer.target.progress import Mark, Owner, check_fence
from millrace.consumer.target.streams import read_missing, set_missing, set_unfit
from millrace.consumer.turn.context import Limits, Position, Tools
from millrace.consumer.turn.lane_planner import LanePlanner, Load
from millrace.consumer.turn.order import Counts, Outcome, TurnOrder
from millrace.consumer.window.overlap import NO_OVERLAP, Overlap
from millrace.consumer.window.units import cut, units_of
from millrace.consumer.window.window import (
    Barrier,
    Window,
    advanced,
    check_follows,
    check_statement_begin,
    read_window,
)
from millrace.consumer.write.aside import hash_again
from millrace.consumer.write.ddl import DdlPlace, Scope, apply_ddl
from millrace.consumer.write.large_transaction import LargeTransaction
from millrace.consumer.write.target_transaction import (
    BitmapClaim,
    MarkClaim,
    Part,
    Writing,
    apply_part,
    move_over,
)
from millrace.drivers.mysql.catalog import (
    Inventory,
    TableKey,
    alter_count,
    read_again,
    read_inventory,
)
from millrace.drivers.mysql.connection import MySqlSession
from millrace.schemas.documents import Consistency
from millrace.schemas.record.control import DdlRecord, SchemaRecord
from millrace.schemas.record.record import decode_control

FLIGHTS_MAX = 3
NO_LANES, NO_UNITS = LaneNumbers(np.empty(0, np.int64)), Units(np.empty(0, np.int64))


@dataclass(slots=True)
class _Flight:
    number: int
    after: Mark
    learned: dict[int, str]
    parts: int = 0


@dataclass(slots=True)
class Applier:
    """One turn. ``order`` names the owner that holds the fence now.

    ``seen``: the mark after all planned windows; ``mark``: the one on the target; ``applied``: seqs above it.
    """

    order: TurnOrder
    tools: Tools
    _: KW_ONLY
    writing: Writing
    begin: InitVar[Position]
    plans: TablePlans
    overlap: Overlap = NO_OVERLAP
    mark: Mark = field(init=False)
    seen: Mark = field(init=False)
    applied: Seqs = field(init=False)
    source: Source = field(init=False)
    counts: Counts = field(init=False, default_factory=Counts)
    _flights: deque[_Flight] = field(init=False, default_factory=deque)
    _number: int = field(init=False, default=0)
    _planner: LanePlanner = field(init=False)
    # under ``consistency: transactional``
    _whole: WholeReader | None = field(init=False, default=None)
    _shown: str = field(init=False, default="")  # see ``Notes``

    def __post_init__(self, begin: Position) -> None:
        self.mark = self.seen = begin.mark
        self.applied, self.source = begin.applied, self.tools.source
        rules = self.order.assignment.rules
        self._planner = LanePlanner(rules.lane_count)
        if self.order.offsets.until >= 0:
            self.source = BoundedSource(self.source, self.order.offsets.until)
        if rules.consistency is Consistency.TRANSACTIONAL:
            self.source = self._whole = WholeReader(self.source)

    def run(self) -> Outcome:
        """Apply until the turn ends."""
        begun_s = fed_s = time.monotonic()
        is_idle, is_cut, until = False, False, self.order.offsets.until
        self.source.seek(max(self.mark.next_offset, self.order.offsets.begin))
        try:
            # A turn ends in the middle of a source transaction only if no record comes.
            while self._since(begun_s, fed_s) < self._turn_s and not self.tools.is_over():
                if 0 <= until <= self.seen.next_offset:
                    is_idle = True
                    break
                taken = self.source.take(self.limits.window, wait_s=self._wait_s(fed_s))
                self._advance(wait=False)
                if taken is not None:
                    self.counts.records += len(taken.values)
                    self.counts.record_bytes += taken.values.byte_count
                    if is_cut := not self._apply(taken, until_s=begun_s + self._turn_s):
                        break
                    self._apply_large()
                    fed_s = time.monotonic()
                elif self._flights:
                    self._advance(wait=True)
                elif self._is_scanning:
                    continue
                elif self.tools.is_read() and time.monotonic() - fed_s >= self.limits.linger_s:
                    is_idle = True
                    break
            is_idle |= self._is_scanning and self.tools.is_read() and not is_cut
            self._meet()
        finally:
            self.tools.lanes.close()
        return Outcome(
            owner=self.owner,
            mark=self.mark,
            counts=self.counts,
            notes=self._notes(),
            is_idle=is_idle,
        )

    def _notes(self) -> Notes:
        notes, kept = self.plans.notes(self._shown), 0
        if self.writing.aside.follows:
            kept = kept_size(self._session, self.owner.task).rows
            self._session.rollback()
        return replace(notes, kept=kept)

    @property
    def _is_scanning(self) -> bool:
        return self._whole is not None and self._whole.is_scanning

    def _since(self, begun_s: float, fed_s: float) -> float:
        return time.monotonic() - (fed_s if self._is_scanning else begun_s)

    def _wait_s(self, fed_s: float) -> float:
        if self._flights:
            return 0.0
        if not self.tools.is_read() or self._is_scanning:
            return self.limits.linger_s
        return max(self.limits.linger_s - (time.monotonic() - fed_s), 0.001)

    def _apply(self, taken: Taken, *, until_s: float) -> bool:
        """Apply at least one window, and others that begin before ``until_s``; whether these were all."""
        offsets, values = taken.offsets, taken.values
        first = begun = int(np.searchsorted(offsets, self.seen.next_offset))
        while first < len(values):
            if first > begun and time.monotonic() >= until_s:
                return False
            window = read_window(
                values.part(first, len(values)),
                offsets[first:],
                plans=self.plans,
                seen=self.seen,
                applied=self.applied,
                look_up=self.tools.look_up,
            )
            if self._whole is not None and len(window.rows) and not window.ends_at_a_statement():
                end = last_end(values.part(first, first + len(window.rows)))
                if not end:
                    rest = Taken(offsets[first:], values.part(first, len(values)), is_end=False)
                    first += self._apply_together([first_transaction(rest)])
                    continue
                window = window.part(end)
            self.plans = window.plans
            if not self.seen.past_start and window.resolved:
                self._shown = str(window.resolved[-1][1].progress.gtid_set)
            overlap, entered = self.overlap.entered(window, self.seen)
            if entered.missing and self._has_appeared(entered.missing):
                continue
            self.overlap, window = overlap, entered.window
            if entered.unfit or entered.missing:
                self._set_aside(entered.unfit, entered.missing)
            first += len(window.rows)
            if len(window.rows):
                self._dispatch(window)
            if window.barrier is not None:
                self._meet()
                self._pass_barrier(window.barrier)
                first += 1
        return True

    def _has_appeared(self, missing: frozenset[TableKey]) -> bool:
        """Whether the target has one of these tables since the inventory was read; then plans have it, too."""
        self._meet()
        inventory = read_missing(self._session, self.plans.inventory, missing)
        self._session.rollback()
        if inventory is not None:
            self.plans = self._plans_with(inventory)
        return inventory is not None

    def _set_aside(self, unfit: Mapping[TableKey, str], missing: frozenset[TableKey]) -> None:
        """Tables wait for a load; committed before the mark passes a row of theirs."""
        self._meet()  # parts under way may hold rows of tables that are set aside with them
        session = self._session
        check_fence(session, self.owner)
        set_unfit(session, task_of(self.owner.task), unfit)
        set_missing(session, task_of(self.owner.task), missing)
        session.commit()
        self.plans = self.plans.routed(self.plans.route.without(missing.union(unfit)))

    def _apply_large(self) -> None:
        """Apply the source transaction that does not fit into a window, if the reader has found its end."""
        if self._whole is not None and self._whole.large is not None:
            size, wait_s = self.limits.window, self._turn_s
            self._apply_together(
                self._whole.read_large(size, wait_s=wait_s, is_over=self.tools.is_over)
            )

    def _apply_together(self, pieces: Iterable[Taken]) -> int:
        """In one target transaction. Returns how many records of the last piece were applied."""
        self._meet()
        large = LargeTransaction(
            self.writing, self.mark, self.applied, self.plans, self.tools.look_up, self.overlap
        )
        taken = large.apply(pieces)
        self._has_moved(self._claim(large.mark, {}))
        self.plans, self.seen = large.plans, large.mark
        self.overlap = large.overlap
        self.counts.rows += large.rows
        self.counts.statements += large.statements
        return taken

    # ---- windows ----------------------------------------------------------------------------------

    def _dispatch(self, window: Window[TablePlans]) -> None:
        count = len(window.waiting)
        few = count <= self.limits.serial_rows and not self._flights
        if few or self._planner.lane_count == 1:
            self._meet()
            self._apply_serially(window)
            return
        if count > self.limits.serial_rows:
            self._check_inventory()
        flight = self._take_off(window)
        self._fly(window, flight)

    def _apply_serially(self, window: Window[TablePlans]) -> None:
        """In parts of the window, each with its move of the mark."""
        learned = window.learned
        for first, end in cut(self._units(window.rows), rows_max=self.limits.part_rows):
            inside = (window.waiting >= first) & (window.waiting < end)
            numbers = RecordNumbers(window.waiting[inside])
            after = window.mark_after(end, before=self.seen)
            claim = self._claim(after, learned)
            part = Part(self.plans, window.rows, numbers, claim)
            self.counts.statements += apply_part(self.writing, 0, part)
            self._has_moved(claim)
            learned = {}
            self.counts.rows += len(numbers)
        self.seen = self.mark

    def _take_off(self, window: Window[TablePlans]) -> _Flight:
        after = window.mark_after(len(window.rows), before=self.seen)
        self._number += 1
        self.seen = after
        return _Flight(self._number, after, window.learned)

    def _fly(self, window: Window[TablePlans], flight: _Flight) -> None:
        """Plan a window and submit its parts, after the flights that it can't overlap."""
        count = len(window.waiting)
        units, lanes = NO_UNITS, NO_LANES
        if count:
            load = Load.of(window, self.plans, self._units(window.rows))
            units, lanes = load.units, self._lanes_of(load, flight.number)
        while len(self._flights) >= FLIGHTS_MAX:
            self._advance(wait=True)
        self._flights.append(flight)
        for lane in range(self._planner.lane_count if count else 0):
            numbers = window.waiting[lanes == lane]
            for first, end in cut(Units(units[lanes == lane]), rows_max=self.limits.part_rows):
                self._submit(window.rows, RecordNumbers(numbers[first:end]), flight, lane)
        self.counts.rows += count
        self._advance(wait=False)

    def _units(self, rows: Rows) -> Units:
        return units_of(rows, is_whole=self._whole is not None)

    def _lanes_of(self, load: Load, number: int) -> LaneNumbers:
        """The lane of each waiting row; waits for all flights if a group needs two of their lanes."""
        if self._flights:
            lanes = self._planner.plan(load, flight=number, done=self._flights[0].number - 1)
            if lanes is not None:
                return lanes
            self._meet()
        self._planner.clear()
        lanes = self._planner.plan(load, flight=number, done=number - 1)
        assert lanes is not None, "no key is held"
        return lanes

    def _submit(self, rows: Rows, numbers: RecordNumbers, flight: _Flight, lane: int) -> None:
        claim = BitmapClaim(flight.number, lane, flight.parts, rows.seqs(numbers))
        part = Part(self.plans, rows, numbers, claim)
        flight.parts += 1
        self.tools.lanes.submit(lane, flight.number, partial(apply_part, self.writing, lane, part))

    def _advance(self, *, wait: bool) -> None:
        """Move the mark over the oldest flights that have ended."""
        waits = wait and any(flight.parts for flight in self._flights)
        for done in self.tools.lanes.take(wait=waits):
            self.counts.statements += done.statements
            next(flight for flight in self._flights if flight.number == done.flight).parts -= 1
        ended: _Flight | None = None
        learned: dict[int, str] = {}
        while self._flights and not self._flights[0].parts:
            ended = self._flights.popleft()
            learned |= ended.learned
        if ended is not None:
            # The DELETE reads one row further: one that a lane has not committed yet would stop it.
            through = ended.number - 1 if self._flights else ended.number
            self._move(ended.after, learned, through=through)

    def _meet(self) -> None:
        """Wait for all flights."""
        while self._flights:
            self._advance(wait=True)

    def _move(self, after: Mark, learned: dict[int, str], *, through: int) -> None:
        claim = self._claim(after, learned)
        move_over(self._session, self.owner, claim, through=through)
        self._has_moved(claim)

    def _claim(self, after: Mark, learned: dict[int, str]) -> MarkClaim:
        return MarkClaim.over(self.applied, before=self.mark, after=after, learned=learned)

    def _has_moved(self, claim: MarkClaim) -> None:
        self.mark = claim.after
        if claim.passes_earlier:
            self.applied = NO_SEQS

    # ---- barriers ---------------------------------------------------------------------------------

    def _pass_barrier(self, barrier: Barrier) -> None:
        record = decode_control(barrier.value)
        if isinstance(record, SchemaRecord):
            learned = {record.value.id: record.value.schema.text}
            after = advanced(self.mark, None, seq=self.mark.seq, next_offset=barrier.offset + 1)
            self._move(after, learned, through=self._number)
            self.seen = self.mark
            self.plans = self.plans.learned(learned)
            return
        assert isinstance(record, DdlRecord)
        check_follows(record.source.seq, self.mark.seq, barrier.offset)
        check_statement_begin(record, self.mark, barrier.offset)
        seq = self.mark.seq if self.mark.is_unproven else record.source.seq
        after = replace(
            advanced(self.mark, None, seq=seq, next_offset=barrier.offset + 1),
            commit_ms=record.source.place.ts_ms,
        )
        known = self.plans.inventory
        scope = Scope(
            self.plans.route,
            self.overlap.range,
            known.tables,
            self.plans.foreign_keys,
            self.tools.is_over,
            self.plans.schemas,
        )
        place = DdlPlace(self.mark, after)
        passed = apply_ddl(self.writing.sessions, record, place=place, scope=scope)
        self.counts.ddl += passed.changed is not None
        self.counts.left_out += passed.is_recorded
        self.mark = self.seen = after
        if passed.waiting:
            self.plans = self.plans.routed(self.plans.route.without(passed.waiting))
        if passed.changed is not None:
            inventory = read_again(self._session, known, passed.changed)
            self._session.commit()
            self.plans = self._plans_with(inventory)

    def _check_inventory(self) -> None:
        """Read the inventory again if a table was altered: lanes must know a key that an operator has added."""
        session, known = self._session, self.plans.inventory
        if alter_count(session) != known.alter_count:
            inventory = read_inventory(session)
            session.rollback()
            if self.writing.aside.follows:
                self._meet()  # parts under way keep rows under the earlier plans
            self.plans = self._plans_with(inventory)
        session.rollback()

    def _plans_with(self, inventory: Inventory) -> TablePlans:
        if self.writing.aside.follows:
            hash_again(self._session, self.owner, inventory)
        return TablePlans(Catalogue("", self.plans.schemas, inventory, self.plans.route))

    # ---- about the turn ---------------------------------------------------------------------------

    @property
    def owner(self) -> Owner:
        """The holder of the fence."""
        return self.order.owner

    @property
    def limits(self) -> Limits:
        """Those of the tools."""
        return self.tools.limits

    @property
    def _turn_s(self) -> float:
        return min(self.limits.turn_s, self.order.turn_s)

    @property
    def _session(self) -> MySqlSession:
        return self.writing.sessions.for_lane()
