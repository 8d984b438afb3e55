"""The buffer that records are written into, cut into batches at the end of source transactions.

    |-- whole source transactions --|-- the open one ----------------|
    0                               OPEN_OUT_AT                      OUT_AT
    cut at the boundary: the batch is the left part, the right part moves to the front of the next buffer
    cut inside (nothing left of it): the batch is everything in front of the last row or statement, which is held back,
    because it may turn out to be the last of its transaction

Buffers rotate: one is filled while older ones are being published, and used again when nothing refers to it any more.
"""

import sys

import numpy as np

from millrace.errors import Fatal
from producer.converter.arrays import RECORD_BYTES_MAX, Bytes, Numbers, grown
from producer.kernel import state as s

ROOM_BYTES = (
    1 << 16
)  # beyond the soft bound, so that most transactions that reach it still end in the buffer
BUFFERS_KEPT = 4
_REFERENCES_WHEN_FREE = 3  # the list, the loop variable, the call


class Output:
    """``out`` and ``bounds`` are what the kernel writes to."""

    def __init__(self, state: Numbers) -> None:
        self._state = state
        self._kept: list[Bytes] = []
        self.out: Bytes = np.zeros(0, np.uint8)
        self.bounds: Numbers = np.zeros((1024, 4), np.int64)

    def prepare(self, *, rows_max: int, bytes_max: int) -> None:
        """Room for a batch of this size; what is in the buffer stays."""
        st = self._state
        st[s.RECORDS_MAX], st[s.BYTES_MAX] = rows_max, bytes_max
        self.bounds = grown(self.bounds, 2 * rows_max + 16)
        capacity = 2 * bytes_max + ROOM_BYTES
        if self.out.size < capacity:
            self._replace(capacity)

    def make_room(self) -> None:
        """After OUT_FULL with nothing to cut; Fatal MR-6512."""
        need = int(self._state[s.OUT_AT] + self._state[s.NEED_BYTES])
        if self.out.size >= RECORD_BYTES_MAX:
            raise Fatal("MR-6512", f"a record needs more than {RECORD_BYTES_MAX} bytes")
        self._replace(min(max(2 * self.out.size, need), RECORD_BYTES_MAX + need))
        self.bounds = grown(self.bounds, int(self._state[s.RECORDS]) + 16)

    def append(self, value: bytes, *, is_unit: bool) -> None:
        """A record made by Python, without a key. A unit counts in its transaction and in ``seq``."""
        st = self._state
        at, record = int(st[s.OUT_AT]), int(st[s.RECORDS])
        if at + len(value) > self.out.size:
            self._replace(2 * (at + len(value)))
        self.bounds = grown(self.bounds, record + 1)
        self.out[at : at + len(value)] = np.frombuffer(value, np.uint8)
        self.bounds[record] = -1, -1, at, at + len(value)
        if is_unit:
            st[s.LAST_UNIT], st[s.LAST_UNIT_ROWS] = record, st[s.ROWS]
            st[s.SEQ] += 1
            st[s.ROWS] += 1
        st[s.OUT_AT], st[s.RECORDS] = at + len(value), record + 1
        if st[s.GROUP] == s.NO_GROUP:
            st[s.OPEN_RECORDS], st[s.OPEN_OUT_AT] = st[s.RECORDS], st[s.OUT_AT]

    def cut(self, record: int) -> tuple[Bytes, Numbers]:
        """The records in front of `record` as buffer and bounds; the others move to a new buffer."""
        st = self._state
        end, records = int(st[s.OUT_AT]), int(st[s.RECORDS])
        start = int(self.bounds[record, 2]) if record < records else end
        cut_out, cut_bounds = self.out, self.bounds[:record].copy()
        rest = self.bounds[record:records].copy()
        self.out = self._fresh(cut_out.size, end - start)
        self.out[: end - start] = cut_out[start:end]
        rest[:, 2:] -= start
        rest[rest[:, 0] >= 0, :2] -= start
        self.bounds[: len(rest)] = rest
        st[s.OUT_AT], st[s.RECORDS] = end - start, len(rest)
        if st[s.LAST_UNIT] >= 0:
            st[s.LAST_UNIT] -= record
        st[s.OPEN_RECORDS] = st[s.OPEN_OUT_AT] = 0
        if st[s.GROUP] == s.NO_GROUP:
            st[s.OPEN_RECORDS], st[s.OPEN_OUT_AT] = len(rest), end - start
        return cut_out, cut_bounds

    def _replace(self, capacity: int) -> None:
        filled = int(self._state[s.OUT_AT])
        old = self.out
        self.out = np.empty(capacity, np.uint8)
        self.out[:filled] = old[:filled]

    def _fresh(self, capacity: int, need: int) -> Bytes:
        self._kept = [kept for kept in self._kept if kept.size >= capacity][-BUFFERS_KEPT:]
        if all(kept is not self.out for kept in self._kept):
            self._kept.append(self.out)
        for kept in self._kept:
            if kept is not self.out and sys.getrefcount(kept) <= _REFERENCES_WHEN_FREE:
                return kept
        return np.empty(max(capacity, need), np.uint8)
