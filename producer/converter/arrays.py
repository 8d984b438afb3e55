"""The kernel's arrays: made once, grown when something does not fit, never shrunk but by ``forget_tables``.

Bounds (all of them ours; reaching one is an error with a code or a fresh start of the array, never more memory):
    RECORD_BYTES_MAX    one record, and so the output buffer: 1 GiB, the servers' largest max_allowed_packet
    SCRATCH_BYTES_MAX   one inflated value or event: the same
    TABLES_MAX          table structures known at once; then all are forgotten and learned again
"""

from collections.abc import Collection
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from producer.kernel import program as p
from producer.kernel import state as s
from producer.kernel.json_binary import STACK
from producer.kernel.walk import find_table

RECORD_BYTES_MAX = 1 << 30
SCRATCH_BYTES_MAX = 1 << 30
TABLES_MAX = 8192
TABLE_IDS = 1 << 16  # places for table ids; half of them may be taken

A = TypeVar("A", bound=np.generic)

Bytes: TypeAlias = NDArray[np.uint8]
Numbers: TypeAlias = NDArray[np.int64]


class KernelArrays:
    """Everything that ``kernel.walk.walk`` takes beside the span and the output."""

    def __init__(self) -> None:
        self.state: Numbers = np.zeros(s.STATE_SIZE, np.int64)
        self.intervals: Numbers = np.zeros((1024, s.INTERVAL_WIDTH), np.int64)
        self.sids: Bytes = np.zeros(s.SID_STRIDE * s.SIDS_AT_FIRST, np.uint8)
        self.heads: Bytes = np.zeros(s.HEADS_SIZE, np.uint8)
        self.expected: Bytes = np.zeros(s.GTID_BYTES_MAX, np.uint8)
        self.scratch: Bytes = np.zeros(1 << 16, np.uint8)
        self.inflated: Bytes = np.zeros(1 << 16, np.uint8)
        self.numbers: Numbers = np.zeros(STACK, np.int64)
        self.key_spans: Numbers = np.zeros(2 * p.KEY_COLUMNS_MAX, np.int64)
        self.forget_tables()

    def forget_tables(self) -> None:
        """No table, no column, no id is known any more."""
        self.tables: Numbers = np.zeros((64, p.TABLE_WIDTH), np.int64)
        self.columns: Numbers = np.zeros((512, p.COLUMN_WIDTH), np.int64)
        self.labels: Numbers = np.zeros((64, 2), np.int64)
        self.blob: Bytes = np.zeros(1 << 16, np.uint8)
        self.table_count = self.column_count = self.label_count = self.blob_size = 0
        self.forget_ids()

    def forget_ids(self) -> None:
        """The structures stay, their table ids are learned again."""
        self.ids: Numbers = np.zeros((TABLE_IDS, 2), np.int64)
        self.id_count = 0

    def forget_ids_but(self, slots: Collection[int]) -> None:
        """The same, but for the ids of these slots."""
        kept = [pair for pair in self.ids[self.ids[:, 0] != 0].tolist() if pair[1] in slots]
        self.forget_ids()
        for pair in kept:
            self.ids[find_table(self.ids, pair[0] - 1)] = pair
        self.id_count = len(kept)

    def add_blob(self, content: bytes) -> int:
        """Where `content` stands in ``blob`` from now on."""
        start, self.blob_size = self.blob_size, self.blob_size + len(content)
        self.blob = grown(self.blob, self.blob_size)
        self.blob[start : self.blob_size] = np.frombuffer(content, np.uint8)
        return start

    def add_label(self, start: int, end: int) -> int:
        """The index of a new label."""
        self.labels = grown(self.labels, self.label_count + 1)
        self.labels[self.label_count] = start, end
        self.label_count += 1
        return self.label_count - 1

    def add_columns(self, rows: Numbers) -> int:
        """The index of the first of these columns."""
        first, self.column_count = self.column_count, self.column_count + len(rows)
        self.columns = grown(self.columns, self.column_count)
        self.columns[first : self.column_count] = rows
        return first

    def add_table(self) -> int:
        """The slot of a new table."""
        self.tables = grown(self.tables, self.table_count + 1)
        self.table_count += 1
        return self.table_count - 1


def grown(array: NDArray[A], rows: int) -> NDArray[A]:
    """`array`, or a copy of it with at least `rows` rows."""
    if rows <= array.shape[0]:
        return array
    size = array.shape[0]
    while size < rows:
        size *= 2
    larger = np.zeros((size, *array.shape[1:]), array.dtype)
    larger[: array.shape[0]] = array
    return larger
