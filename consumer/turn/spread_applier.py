"""One share of a spread turn: several Spark tasks plan the same windows, and each applies the lanes that are its own.

    window     cut by ``transaction_cut`` and ``read_window``, which depend only on the records: every share has the
               same windows
    lane       of a row: the same in every share. A key stays bound to its lane until the turn ends, because a share
               does not know what the others have applied
    share k    of K applies the lanes k, k + K, k + 2 K, … in parts with bitmaps, as any turn does

The shares don't wait for each other, and none moves the mark. A share ends, in order of cost for the next turn:

    at the end of the order     or when the table of held keys is full
    before two lanes            a group needs two lanes: all lanes must have ended first
    before a barrier            DDL, or a schema record that gives a known ID a new meaning
    early                       a table was altered on the target, ``turn_s`` has passed, or the driver has ended

Shares may end early at different windows. The driver moves the mark over the windows that all have applied
(``spread_turn``). Bitmaps of later windows stay above the mark, and the next turn skips their rows.
The driver has taken the fence for the turn. What a share reads does not change while the turn lasts: the mark stays,
and bitmaps of this run are not read, so it does not matter which shares have already begun. If the process is killed,
the claim stays: no second execution of the share writes a row. The turn fails, and the next one skips the rows whose
bitmaps are there.

Not done here: Spark, Kafka, SQL.
"""

import time
from collections import Counter
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from hashlib import blake2b

from millrace.consumer.records.numbers import LaneNumbers, RecordNumbers
from millrace.consumer.records.pieces import Taken
from millrace.consumer.records.transaction_cut import Cutter
from millrace.consumer.tables.plan_key import plan_key
from millrace.consumer.tables.table_plans import TablePlans
from millrace.consumer.target.aside import keeps_rows
from millrace.consumer.target.claims import claim_share
from millrace.consumer.target.progress import Mark
from millrace.consumer.turn.applier import FLIGHTS_MAX, NO_LANES
from millrace.consumer.turn.context import Position, Tools
from millrace.consumer.turn.lane_planner import LanePlanner, Load
from millrace.consumer.turn.order import Counts, Share, ShareEnd, ShareStop, Step
from millrace.consumer.turn.resident import LastTurn, Resident
from millrace.consumer.turn.turn import known_plans, known_position
from millrace.consumer.window.overlap import missing_tables
from millrace.consumer.window.safe_mode import prepare_snapshot_rows
from millrace.consumer.window.units import units_of
from millrace.consumer.window.window import Window, read_window
from millrace.consumer.write.target_transaction import BitmapClaim, Part, Writing, apply_part
from millrace.drivers.mysql.catalog import alter_count

TURN_KEYS_MAX = 1 << 20  # 64 MB for the table; about 1M rows, which take some seconds
DIGEST_BYTES = 16
WAIT_S = 1.0  # for records, until the end of the turn is checked again


@dataclass(slots=True)
class SpreadApplier:
    """A share. ``begin``: where the turn begins, and the seqs that earlier turns have applied above it."""

    share: Share
    tools: Tools
    _: KW_ONLY
    writing: Writing
    begin: Position
    plans: TablePlans
    windows: Cutter
    counts: Counts = field(init=False, default_factory=Counts)
    _stop: ShareStop = field(init=False, default=ShareStop.EARLY)
    # of a window that ``read_window`` has shortened
    _left: Taken | None = field(init=False, default=None)
    _steps: list[Step] = field(init=False, default_factory=list)
    # by flight: the number of its step
    _parts: Counter[int] = field(init=False, default_factory=Counter)
    _planner: LanePlanner = field(init=False)
    _until_s: float = field(init=False)

    def __post_init__(self) -> None:
        order = self.share.order
        self._until_s = time.monotonic() + min(self.tools.limits.turn_s, order.turn_s)
        self._planner = LanePlanner(order.assignment.rules.lane_count, TURN_KEYS_MAX)

    def run(self) -> ShareEnd:
        """Apply until the share ends."""
        try:
            while self.step():
                pass
            return self.end()
        finally:
            self.tools.lanes.close()

    def step(self) -> bool:
        """Plan the next window and submit this share's parts of it; False at the end of the share."""
        if self.tools.is_over() or time.monotonic() >= self._until_s:
            return False
        taken = self._left or self._take()
        if taken is None:
            if self.windows.is_at_end:
                self._stop = ShareStop.READ
            return not self.windows.is_at_end
        window = read_window(
            taken.values,
            taken.offsets,
            plans=self.plans,
            seen=self.seen,
            applied=self.begin.applied,
            look_up=self.tools.look_up,
        )
        if self.share.order.assignment.rules.loads_missing and missing_tables(window):
            self._stop = ShareStop.SOLO
            return False
        prepare_snapshot_rows(window)
        count = len(window.rows)
        self._left = taken.part(count, len(taken.values)) if count < len(taken.values) else None
        if count and not self._fly(window):
            return False
        if window.barrier is not None:
            self._stop = ShareStop.SOLO
        return window.barrier is None

    def _take(self) -> Taken | None:
        taken = self.windows.take(wait_s=WAIT_S)
        if taken is not None:
            self.counts.records += len(taken.values)
            self.counts.record_bytes += taken.values.byte_count
        return taken

    def end(self) -> ShareEnd:
        """Wait for the lanes."""
        self._wait(0)
        applied = self.begin.applied
        return ShareEnd(
            steps=tuple(self._steps),
            stop=self._stop,
            left_to=int(applied[-1]) if len(applied) else -1,
            counts=self.counts,
            notes=self.plans.notes(),
        )

    @property
    def seen(self) -> Mark:
        """The mark after the planned windows."""
        return self._steps[-1].after if self._steps else self.begin.mark

    def _fly(self, window: Window[TablePlans]) -> bool:
        """Submit this share's parts; False, and nothing is done, if the turn must end before this window."""
        session = self.writing.sessions.for_lane()
        if alter_count(session) != self.plans.inventory.alter_count:
            return False
        flight = len(self._steps) + 1
        lanes: LaneNumbers | None = NO_LANES
        if len(window.waiting):
            load = Load.of(window, window.plans, units_of(window.rows, is_whole=False))
            lanes = self._planner.plan(load, flight=flight, done=0)
        if lanes is None:
            return False
        after = window.mark_after(len(window.rows), before=self.seen)
        self.plans = window.plans
        self._steps.append(Step(after, window.learned, self._digest(window, lanes)))
        self._wait(FLIGHTS_MAX - 1)
        for lane in range(self.share.place, self._planner.lane_count, self.share.count):
            of_lane = RecordNumbers(window.waiting[lanes == lane])
            self._submit(window, of_lane, flight, lane)
        return True

    def _digest(self, window: Window[TablePlans], lanes: LaneNumbers) -> bytes:
        made = blake2b(self._steps[-1].plan if self._steps else b"", digest_size=DIGEST_BYTES)
        for numbers in (window.rows.seqs(window.waiting), lanes, window.offsets[-1:]):
            made.update(numbers.tobytes())
        return made.digest()

    def _submit(
        self, window: Window[TablePlans], of_lane: RecordNumbers, flight: int, lane: int
    ) -> None:
        rows = window.rows
        for number, first in enumerate(range(0, len(of_lane), self.tools.limits.part_rows)):
            numbers = RecordNumbers(of_lane[first : first + self.tools.limits.part_rows])
            claim = BitmapClaim(flight, lane, number, rows.seqs(numbers))
            self._parts[flight] += 1
            part = Part(self.plans, rows, numbers, claim)
            self.tools.lanes.submit(lane, flight, partial(apply_part, self.writing, lane, part))
            self.counts.rows += len(numbers)

    def _wait(self, flights: int) -> None:
        """Wait until at most this many flights are under way."""
        while True:
            for done in self.tools.lanes.take(wait=len(self._parts) > flights):
                self.counts.statements += done.statements
                self._parts[done.flight] -= 1
            self._parts = +self._parts  # without flights that have no part under way
            if len(self._parts) <= flights:
                return


def run_share(share: Share, tools: Tools, resident: Resident) -> ShareEnd:
    """Apply a share. Fenced MR-5020 if the turn is over or another execution has claimed the share."""
    order, window = share.order, tools.limits.window
    last_turn, writing = resident.take_last(), resident.writing(order)
    session = writing.sessions.for_lane(is_checked=True)
    position = known_position(session, order, before_run=order.owner.run)
    mark, offsets = position.mark, order.offsets
    last = replace(order.owner, run=order.owner.run - 1)
    plans = known_plans(session, order, last_turn, last=last, mark=mark)
    session.commit()
    if writing.aside.follows and keeps_rows(session, order.owner.task):
        session.rollback()
        return ShareEnd(stop=ShareStop.SOLO)  # a solo turn computes the keys of the kept rows again
    key = plan_key(
        plans,
        (mark.seq, mark.next_offset, offsets.begin, offsets.end),
        position.applied.tobytes(),
        (share.count, order.assignment.rules.lane_count, window.rows, window.bytes),
    )
    if not claim_share(session, order.owner, share.place, key):
        return ShareEnd(stop=ShareStop.DISAGREED)
    begin = max(mark.next_offset, offsets.begin)
    tools.source.seek(begin)
    windows = Cutter(tools.source, window, begin, offsets.end, tools.is_read)
    applier = SpreadApplier(
        share, tools, writing=writing, begin=position, plans=plans, windows=windows
    )
    end = applier.run()
    resident.last = LastTurn(order.owner, applier.seen, applier.plans)
    return end
