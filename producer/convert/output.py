"""The buffer that records are written into, cut into batches at the end of source transactions.

    |-- whole source transactions --|-- the open one ----------------|
    0                               OPEN_OUT_AT                      OUT_AT
    cut at the boundary: the batch is the left part; the right part moves to the start of the next buffer
    cut inside (no left part): the batch ends before the last row or statement, which is held back, because it may be
    the last of its transaction

Buffers rotate: one is filled while older ones are published. A buffer is used again once its batch is released. A
buffer that a large record made larger than ``prepare`` asked for is not kept.
"""

import threading

import numpy as np

from millrace.errors import Fatal
from millrace.producer.binlog.transactions import OUTSIDE
from millrace.producer.convert.arrays import RECORD_BYTES_MAX, Bytes, Numbers, grown
from millrace.producer.convert.kernel import state as s
from millrace.schemas.record.control import RecordKind
from millrace.schemas.record.framing import peek_kind

# beyond the soft bound, so that most transactions that reach it still end in the buffer
ROOM_BYTES = 1 << 16
BUFFERS_KEPT = 4
_UNITS = (RecordKind.ROW, RecordKind.DDL)


class Output:
    """``out`` and ``bounds``: the arrays that the kernel writes to."""

    def __init__(self, state: Numbers) -> None:
        self._state = state
        self._lock = threading.Lock()  # guards the free buffers: another thread releases batches
        self._free: list[Bytes] = []
        self._capacity = 0
        self.out: Bytes = np.zeros(0, np.uint8)
        self.bounds: Numbers = np.zeros((1024, 4), np.int64)

    def prepare(self, *, rows_max: int, bytes_max: int) -> None:
        """Make room for a batch of this size; the content of the buffer is kept."""
        st = self._state
        st[s.RECORDS_MAX], st[s.BYTES_MAX] = rows_max, bytes_max
        self.bounds = grown(self.bounds, 2 * rows_max + 16)
        with self._lock:
            self._capacity = 2 * bytes_max + ROOM_BYTES
            self._free = [free for free in self._free if free.size == self._capacity]
        if self.out.size < self._capacity:
            self._replace(self._capacity)

    def make_room(self) -> None:
        """Enlarge the buffer after OUT_FULL, when there is nothing to cut. Fatal MR-6512."""
        need = int(self._state[s.OUT_AT] + self._state[s.NEED_BYTES])
        if self.out.size >= RECORD_BYTES_MAX:
            raise Fatal("MR-6512", f"a record needs more than {RECORD_BYTES_MAX} bytes")
        self._replace(min(max(2 * self.out.size, need), RECORD_BYTES_MAX + need))
        self.bounds = grown(self.bounds, int(self._state[s.RECORDS]) + 16)

    def append(self, value: bytes, *, is_unit: bool) -> None:
        """Append a record without a key. A unit counts in its transaction and in ``seq``."""
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
        if st[s.GROUP] == OUTSIDE:
            st[s.OPEN_RECORDS], st[s.OPEN_OUT_AT] = st[s.RECORDS], st[s.OUT_AT]

    def append_rows(self, buffer: Bytes, bounds: Numbers) -> None:
        """Append whole records with their keys between two source transactions. Each counts in ``seq``."""
        st = self._state
        at, record = int(st[s.OUT_AT]), int(st[s.RECORDS])
        end, after = at + len(buffer), record + len(bounds)
        if end > self.out.size:
            self._replace(end)
        self.bounds = grown(self.bounds, after)
        self.out[at:end] = buffer
        self.bounds[record:after] = bounds + at
        st[s.SEQ] += len(bounds)
        st[s.ROWS_WRITTEN] += len(bounds)
        st[s.OUT_AT] = st[s.OPEN_OUT_AT] = end
        st[s.RECORDS] = st[s.OPEN_RECORDS] = after

    def drop(self, count: int) -> list[bytes]:
        """Drop the last ``count`` units, and the records after the first of them, which are returned.

        The last unit before them becomes LAST_UNIT; it may be one of an earlier source transaction.
        """
        st = self._state
        end, left, others = int(st[s.RECORDS]), count, list[bytes]()
        first = end
        while left:
            first -= 1
            if self._is_unit(first):
                left -= 1
            else:
                others.append(self._value(first))
        st[s.OUT_AT], st[s.RECORDS] = self.bounds[first, 2], first
        st[s.SEQ] -= count
        while first > 0 and not self._is_unit(first - 1):
            first -= 1
        st[s.LAST_UNIT] = first - 1
        return others[::-1]

    def _value(self, record: int) -> bytes:
        return self.out[self.bounds[record, 2] : self.bounds[record, 3]].tobytes()

    def _is_unit(self, record: int) -> bool:
        return bool(self.bounds[record, 0] >= 0) or peek_kind(self._value(record)) in _UNITS

    def cut(self, record: int) -> tuple[Bytes, Numbers]:
        """Cut off the records before `record` and return their buffer and bounds. The others move to another buffer.

        The caller owns the returned buffer until `recycle`.
        """
        st = self._state
        end, records = int(st[s.OUT_AT]), int(st[s.RECORDS])
        start = int(self.bounds[record, 2]) if record < records else end
        cut_out, cut_bounds = self.out, self.bounds[:record].copy()
        rest = self.bounds[record:records].copy()
        self.out = self._fresh(end - start)
        self.out[: end - start] = cut_out[start:end]
        rest[:, 2:] -= start
        rest[rest[:, 0] >= 0, :2] -= start
        self.bounds[: len(rest)] = rest
        st[s.OUT_AT], st[s.RECORDS] = end - start, len(rest)
        if st[s.LAST_UNIT] >= 0:
            st[s.LAST_UNIT] -= record
        st[s.OPEN_RECORDS] = st[s.OPEN_OUT_AT] = 0
        if st[s.GROUP] == OUTSIDE:
            st[s.OPEN_RECORDS], st[s.OPEN_OUT_AT] = len(rest), end - start
        return cut_out, cut_bounds

    def recycle(self, buffer: Bytes) -> None:
        """Take back a buffer of `cut` when its batch is published. Thread-safe; repeated calls do nothing."""
        with self._lock:
            is_free = any(free is buffer for free in self._free)
            is_usual = buffer.size == self._capacity and len(self._free) < BUFFERS_KEPT
            if is_usual and not is_free and buffer is not self.out:
                self._free.append(buffer)

    def _replace(self, capacity: int) -> None:
        filled = int(self._state[s.OUT_AT])
        old = self.out
        self.out = np.empty(capacity, np.uint8)
        self.out[:filled] = old[:filled]

    def _fresh(self, need: int) -> Bytes:
        with self._lock:
            if self._free and need <= self._capacity:
                return self._free.pop()
        return np.empty(max(self._capacity, need), np.uint8)
