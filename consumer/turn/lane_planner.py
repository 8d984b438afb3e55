"""The causality keys of flights under way, with the lane that holds each.

A group whose key an earlier flight holds must go to that flight's lane, whose parts run in order. A group that needs
two lanes has to wait until the earlier flights have ended.
Not done here: computing keys and groups (``consumer.records.rows``), packing free groups into lanes.
"""

from dataclasses import dataclass, field

import numpy as np

from consumer.kernel.groups import bind_groups, hold_keys
from consumer.records.row_schemas import Ints
from consumer.tables.causality_keys import KeyEntries

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

    def bind(self, entries: KeyEntries, groups: Ints, *, done: int) -> Ints | None:
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
        return bound if is_bound else None

    def hold(self, entries: KeyEntries, lanes: Ints, *, flight: int, done: int) -> None:
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
