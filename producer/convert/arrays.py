"""The kernel's arrays: allocated once, grown when something does not fit.

Our limits. At a limit the converter raises an error with a code or clears the array; it never takes more memory.
    RECORD_BYTES_MAX    one record, and so the output buffer: 1 GiB, the servers' largest max_allowed_packet
    SCRATCH_BYTES_MAX   one inflated value or event: the same; more than SCRATCH_BYTES_KEPT is freed with the batch
    TABLES_MAX          table structures known when a source transaction begins. At the limit all are forgotten and
                        learned again. Tables of the open source transaction are never forgotten.
    TABLE_IDS           places for table IDs. When half of them are taken, the IDs that the open source transaction
                        does not use are forgotten. The array grows only if that transaction uses more than a quarter.
"""

from collections.abc import Collection
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from millrace.errors import Fatal
from millrace.producer.convert.kernel import program as p
from millrace.producer.convert.kernel import state as s
from millrace.producer.convert.kernel.json_binary import STACK
from millrace.producer.convert.kernel.walk import find_table

RECORD_BYTES_MAX = 1 << 30
SCRATCH_BYTES_MAX = 1 << 30
SCRATCH_BYTES_KEPT = 4 << 20
TABLES_MAX = 8192
TABLE_IDS = 1 << 16

_SCRATCH_BYTES = 1 << 16

A = TypeVar("A", bound=np.generic)

Bytes: TypeAlias = NDArray[np.uint8]
Numbers: TypeAlias = NDArray[np.int64]


class KernelArrays:
    """All arguments of ``kernel.walk.walk`` except the span and the output."""

    def __init__(self) -> None:
        self.state: Numbers = np.zeros(s.STATE_SIZE, np.int64)
        self.intervals: Numbers = np.zeros((1024, s.INTERVAL_WIDTH), np.int64)
        self.sids: Bytes = np.zeros(s.SID_STRIDE * s.SIDS_AT_FIRST, np.uint8)
        self.heads: Bytes = np.zeros(s.HEADS_SIZE, np.uint8)
        self.expected: Bytes = np.zeros(s.GTID_BYTES_MAX, np.uint8)
        self.scratch: Bytes = np.zeros(_SCRATCH_BYTES, np.uint8)
        self.inflated: Bytes = np.zeros(_SCRATCH_BYTES, np.uint8)
        self.numbers: Numbers = np.zeros(STACK, np.int64)
        self.key_spans: Numbers = np.zeros(2 * p.KEY_COLUMNS_MAX, np.int64)
        self.forget_tables()

    def drop_scratch(self) -> None:
        """Free the memory of a large value. Between two calls of the kernel no byte of it is needed."""
        if self.scratch.size > SCRATCH_BYTES_KEPT:
            self.scratch = np.zeros(_SCRATCH_BYTES, np.uint8)
            self.inflated = np.zeros(_SCRATCH_BYTES, np.uint8)

    def set_head(self, start: int, stop: int, content: bytes) -> None:
        """Write what all records share to ``heads[start:stop]``. Fatal MR-6003 if it does not fit."""
        if len(content) > stop - start:
            raise Fatal("MR-6003", f"a name of {len(content)} bytes is too long for a record")
        self.heads[start : start + len(content)] = memoryview(content)

    def forget_tables(self) -> None:
        self.tables: Numbers = np.zeros((64, p.TABLE_WIDTH), np.int64)
        self.columns: Numbers = np.zeros((512, p.COLUMN_WIDTH), np.int64)
        self.labels: Numbers = np.zeros((64, 2), np.int64)
        self.blob: Bytes = np.zeros(1 << 16, np.uint8)
        self.table_count = self.column_count = self.label_count = self.blob_size = 0
        self.forget_ids()

    def forget_ids(self) -> None:
        self.ids: Numbers = np.zeros((TABLE_IDS, 2), np.int64)
        self.id_count = 0

    def is_full_of_ids(self) -> bool:
        """Whether finding an ID becomes slow if one more is added."""
        return self.id_count >= len(self.ids) // 2

    def forget_other_ids(self, slots: Collection[int]) -> None:
        """Forget the table IDs of all other slots. The kept ones then fill at most a quarter of the places."""
        kept_slots = frozenset(slots)
        kept = [pair for pair in self.ids[self.ids[:, 0] != 0].tolist() if pair[1] in kept_slots]
        self.forget_ids()
        while len(kept) > len(self.ids) // 4:
            self.ids = np.zeros((2 * len(self.ids), 2), np.int64)
        for pair in kept:
            self.ids[find_table(self.ids, pair[0] - 1)] = pair
        self.id_count = len(kept)

    def add_blob(self, content: bytes) -> int:
        start, self.blob_size = self.blob_size, self.blob_size + len(content)
        self.blob = grown(self.blob, self.blob_size)
        self.blob[start : self.blob_size] = np.frombuffer(content, np.uint8)
        return start

    def add_label(self, start: int, end: int) -> int:
        self.labels = grown(self.labels, self.label_count + 1)
        self.labels[self.label_count] = start, end
        self.label_count += 1
        return self.label_count - 1

    def add_columns(self, rows: Numbers) -> int:
        first, self.column_count = self.column_count, self.column_count + len(rows)
        self.columns = grown(self.columns, self.column_count)
        self.columns[first : self.column_count] = rows
        return first

    def add_table(self) -> int:
        self.tables = grown(self.tables, self.table_count + 1)
        self.table_count += 1
        return self.table_count - 1


def grown(array: NDArray[A], rows: int) -> NDArray[A]:
    """`array`, or a larger copy with at least `rows` rows."""
    if rows <= array.shape[0]:
        return array
    size = array.shape[0]
    while size < rows:
        size *= 2
    larger = np.zeros((size, *array.shape[1:]), array.dtype)
    larger[: array.shape[0]] = array
    return larger
