"""Plans the rows of a window into lanes: causality keys, groups that share one, the lanes that hold them.

A group whose key an earlier flight holds must go to that flight's lane, whose parts run in order. A group that needs
two lanes has to wait until the earlier flights have ended. Free groups go to the lanes with the fewest bytes.
"""

from dataclasses import dataclass, field

import numpy as np

from millrace.consumer.kernel.groups import bind_groups, hold_keys, pack_lanes
from millrace.consumer.records.numbers import Groups, Ints, LaneNumbers, Units
from millrace.consumer.tables.causality_keys import KeyEntries, find_keys
from millrace.consumer.tables.table_plans import TablePlans, slots_of
from millrace.consumer.window.units import numbered, owned_by
from millrace.consumer.window.window import Window

ROW_BYTES = 256  # of work that does not depend on the size of a row

HELD_KEYS_MAX = 1 << 18  # the table has twice as many places of 32 bytes


@dataclass(slots=True)
class HeldKeys:
    """The table. Flights count from 1, and a flight's keys are held while ``done`` is below its number."""

    keys_max: int = HELD_KEYS_MAX
    _table: "np.ndarray[tuple[int], np.dtype[np.uint64]]" = field(init=False)
    _slots: Ints = field(init=False)
    _used: int = 0

    def __post_init__(self) -> None:
        places = 2 * self.keys_max
        self._table = np.zeros(places, np.uint64)
        self._slots = np.zeros((places, 3), np.int64)

    def bind(self, entries: KeyEntries, groups: Groups, *, done: int) -> LaneNumbers | None:
        """The lane of each group, -1 if it is free. None if a group needs two lanes or the table has no room."""
        if self._used and self._used + len(entries.hashes) > self.keys_max:
            return None
        bound = np.full(len(groups), -1, np.int64)
        is_bound = not self._used or bind_groups(
            entries.owners,
            entries.hashes,
            entries.modes,
            groups,
            self._table,
            self._slots,
            done,
            bound,
        )
        return LaneNumbers(bound) if is_bound else None

    def hold(self, entries: KeyEntries, lanes: LaneNumbers, *, flight: int, done: int) -> None:
        """Hold a flight's keys in ``lanes`` (of each owner). After more than ``keys_max`` keys, ``bind`` gives None."""
        if len(entries.hashes) > self.keys_max:
            self._used = self.keys_max + 1
            return
        hold_keys(
            entries.owners,
            entries.hashes,
            entries.modes,
            lanes,
            flight,
            self._table,
            self._slots,
            done,
        )
        self._used += len(entries.hashes)

    def clear(self) -> None:
        """Forget all keys: no flight is under way."""
        if self._used:
            self._slots[:, 0] = 0
            self._used = 0


@dataclass(frozen=True, slots=True)
class Load:
    """The waiting rows of a window, before they have lanes. ``units``: of each row; groups are of units."""

    units: Units
    entries: KeyEntries
    groups: Groups
    weights: Ints

    @classmethod
    def of(cls, window: Window[TablePlans], plans: TablePlans, units: Units) -> "Load":
        """Find the causality keys. ``units``: of all records of the window."""
        waiting, rows = window.waiting, window.rows
        own = numbered(Units(units[waiting]))
        count = int(own[-1]) + 1
        programs = plans.key_programs(slots_of(rows.slots(waiting)))
        entries = owned_by(find_keys(rows, programs, waiting), own)
        sizes = rows.values.sizes()[waiting] + ROW_BYTES
        weights = np.bincount(own, sizes, minlength=count).astype(np.int64)
        return cls(own, entries, entries.groups(count), weights)


@dataclass(slots=True)
class LanePlanner:
    """Gives rows to lanes, and remembers which lane holds which key while flights are under way."""

    lane_count: int
    keys_max: int = HELD_KEYS_MAX
    _held: HeldKeys = field(init=False)

    def __post_init__(self) -> None:
        self._held = HeldKeys(self.keys_max)

    def plan(self, load: Load, *, flight: int, done: int) -> LaneNumbers | None:
        """The lane of each waiting row. Flights up to ``done`` have ended.

        None, and nothing is held: all flights must end first, because a group needs two lanes or the table is full.
        """
        bound = self._held.bind(load.entries, load.groups, done=done)
        if bound is None:
            return None
        lanes = LaneNumbers(pack_lanes(load.groups, load.weights, self.lane_count, bound))
        self._held.hold(load.entries, lanes, flight=flight, done=done)
        return LaneNumbers(lanes[load.units])

    def clear(self) -> None:
        """No flight is under way."""
        self._held.clear()
