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
Not done here: Spark, Kafka, SQL, the claim (``share``).
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b

from consumer.kernel.groups import pack_lanes
from consumer.kernel.walk import SEQ, SLOT
from consumer.records.pieces import Taken
from consumer.records.row_schemas import Ints
from consumer.records.rows import Rows
from consumer.records.transaction_cut import Cutter
from consumer.tables.causality_keys import find_keys
from consumer.tables.table_plans import TablePlans, slots_of
from consumer.target.progress import Mark
from consumer.target.sessions import session_for
from consumer.turn.applier import FLIGHTS_MAX, NO_ROWS, Limits
from consumer.turn.lane_planner import HeldKeys
from consumer.turn.order import Counts, Share, ShareEnd, Step
from consumer.window.safe_mode import prepare_snapshot_rows
from consumer.window.window import LookUp, Window, read_window
from consumer.write.lanes import Lanes
from consumer.write.target_transaction import BitmapClaim, Writing, apply_part
from drivers.mysql.catalog import alter_count

TURN_KEYS_MAX = 1 << 20  # 64 MB for the table; about 1M rows, which take some seconds
DIGEST_BYTES = 16
WAIT_S = 1.0  # for records, until the end of the turn is checked again


@dataclass(slots=True)
class SpreadApplier:
    """A share. ``mark``: where the turn begins; ``applied``: the seqs that earlier turns have applied above it."""

    share: Share
    mark: Mark
    applied: Ints
    plans: TablePlans
    windows: Cutter
    lanes: Lanes
    look_up: LookUp
    limits: Limits
    is_over: Callable[[], bool] = lambda: False
    counts: Counts = field(default_factory=Counts)
    needs_solo: bool = False
    is_read: bool = False
    _left: Taken | None = None  # of a window that ``read_window`` has shortened
    _steps: list[Step] = field(default_factory=list)
    _parts: Counter[int] = field(
        default_factory=Counter
    )  # by flight; a flight is the number of its step
    _held: HeldKeys = field(default_factory=lambda: HeldKeys(TURN_KEYS_MAX))
    _until_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._until_s = time.monotonic() + min(self.limits.turn_s, self.share.order.turn_s)

    def run(self) -> ShareEnd:
        """Apply until the share ends."""
        try:
            while self.step():
                pass
            return self.end()
        finally:
            self.lanes.close()

    def step(self) -> bool:
        """Plan the next window and submit this share's parts of it; False at the end of the share."""
        if self.is_over() or time.monotonic() >= self._until_s:
            return False
        taken = self._left or self._take()
        if taken is None:
            self.is_read = self.windows.is_at_end
            return not self.is_read
        window = read_window(
            taken.values,
            taken.offsets,
            plans=self.plans,
            seen=self.seen,
            applied=self.applied,
            look_up=self.look_up,
        )
        prepare_snapshot_rows(window)
        count = len(window.rows)
        self._left = taken.part(count, len(taken.values)) if count < len(taken.values) else None
        if count and not self._fly(window):
            return False
        self.needs_solo = window.barrier is not None
        return not self.needs_solo

    def _take(self) -> Taken | None:
        taken = self.windows.take(wait_s=WAIT_S)
        if taken is not None:
            self.counts.records += len(taken.values)
            self.counts.record_bytes += taken.values.byte_count
        return taken

    def end(self) -> ShareEnd:
        """Wait for the lanes."""
        self._wait(0)
        plans = self.plans
        return ShareEnd(
            tuple(self._steps),
            is_read=self.is_read,
            needs_solo=self.needs_solo,
            left_to=int(self.applied[-1]) if len(self.applied) else -1,
            counts=self.counts,
            triggers=plans.triggers(),
            in_order=plans.tables_in_order(),
            only_left_out=plans.only_left_out(),
        )

    @property
    def seen(self) -> Mark:
        """The mark after the planned windows."""
        return self._steps[-1].after if self._steps else self.mark

    def _fly(self, window: Window) -> bool:
        """Submit this share's parts; False, and nothing is done, if the turn must end before this window."""
        order = self.share.order
        if (
            alter_count(session_for(order.endpoint, order.owner))
            != self.plans.inventory.alter_count
        ):
            return False
        flight = len(self._steps) + 1
        lanes = self._lanes_of(window, flight)
        if lanes is None:
            return False
        after = window.mark_after(len(window.rows), before=self.seen)
        self.plans = window.plans
        self._steps.append(Step(after, window.learned, self._digest(window, lanes)))
        self._wait(FLIGHTS_MAX - 1)
        for lane in range(self.share.place, order.lane_count, self.share.count):
            self._submit(window, window.waiting[lanes == lane], flight, lane)
        return True

    def _lanes_of(self, window: Window, flight: int) -> Ints | None:
        numbers, rows = window.waiting, window.rows
        if not len(numbers):
            return NO_ROWS
        programs = window.plans.key_programs(slots_of(rows.records[numbers, SLOT]))
        entries = find_keys(rows, programs, numbers)
        groups = entries.groups(len(numbers))
        bound = self._held.bind(entries, groups, done=0)
        if bound is None:
            return None
        weights = rows.values.sizes()[numbers] + 256
        lanes: Ints = pack_lanes(groups, weights, self.share.order.lane_count, bound)
        self._held.hold(entries, lanes, flight=flight, done=0)
        return lanes

    def _digest(self, window: Window, lanes: Ints) -> bytes:
        made = blake2b(self._steps[-1].plan if self._steps else b"", digest_size=DIGEST_BYTES)
        for numbers in (window.rows.column(SEQ)[window.waiting], lanes, window.offsets[-1:]):
            made.update(numbers.tobytes())
        return made.digest()

    def _submit(self, window: Window, mine: Ints, flight: int, lane: int) -> None:
        order, plans, rows = self.share.order, self.plans, window.rows
        writing = Writing(order.owner, order.endpoint, order.policy)
        for part, first in enumerate(range(0, len(mine), self.limits.part_rows)):
            numbers = mine[first : first + self.limits.part_rows]
            claim = BitmapClaim(flight, lane, part, rows.column(SEQ)[numbers])
            self._parts[flight] += 1
            self.lanes.submit(lane, flight, _work(writing, lane, plans, rows, numbers, claim))
            self.counts.rows += len(numbers)

    def _wait(self, flights: int) -> None:
        """Wait until at most this many flights are under way."""
        while True:
            for done in self.lanes.take(wait=len(self._parts) > flights):
                self.counts.statements += done.statements
                self._parts[done.flight] -= 1
            self._parts = +self._parts
            if len(self._parts) <= flights:
                return


def _work(
    writing: Writing, lane: int, plans: TablePlans, rows: Rows, numbers: Ints, claim: BitmapClaim
) -> Callable[[], int]:
    return lambda: apply_part(writing, lane, plans, rows, numbers, claim)
