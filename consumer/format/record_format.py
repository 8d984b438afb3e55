"""Formats whose kernel takes the arrays of ``json_records``: those of Debezium, rows alone, and those in Avro.

One pass of the kernel writes all changes of a batch. ``json_format`` and ``avro_format`` make the arrays.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from millrace.consumer.format.encoded import LINE_WIDTH, RECORDS_OF_A_CHANGE_MAX, Encoded
from millrace.consumer.format.json_object import refuse_value
from millrace.consumer.format.table_format import ALL_PARTITIONS
from millrace.consumer.format.undecodable import Undecoded, decoded
from millrace.consumer.kernel import json_values
from millrace.consumer.kernel.compiled import Bytes
from millrace.consumer.kernel.record_parts import measure
from millrace.consumer.records.numbers import Ints
from millrace.consumer.records.rows import Rows
from millrace.consumer.view.changes import Changes


@dataclass(frozen=True, slots=True)
class RecordKernel:
    """The compiled functions ``encode`` and ``count_events`` of ``json_records`` or ``avro_records``."""

    encode: Callable[..., tuple[int, int, int]]
    count_events: Callable[..., None]


@dataclass(frozen=True, slots=True)
class RecordArrays:
    """The input of the kernel for one table."""

    columns: Ints
    keys: Ints
    fixed: Bytes
    pieces: Ints
    settings: Ints
    fixed_bytes: int  # in a key and a value


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """One table in a format. ``width``: the columns of an image in the set topic."""

    table: str
    width: int
    kernel: RecordKernel
    arrays: RecordArrays
    texts: tuple[Undecoded, ...]

    def encode(
        self,
        rows: Rows,
        changes: Changes,
        *,
        orders: Ints | None = None,
        owned: Bytes = ALL_PARTITIONS,
    ) -> Encoded:
        """See ``TableFormat``."""
        changes = decoded(changes, rows, self.texts)
        arrays = self.arrays
        out = np.empty(self._size(rows, changes), np.uint8)
        lines: Ints = np.empty((RECORDS_OF_A_CHANGE_MAX * len(changes), LINE_WIDTH), np.int64)
        length, count, status = self.kernel.encode(
            out,
            changes.payload,
            changes.cells,
            changes.lines,
            rows.values.payload,
            rows.values.offsets,
            rows.records,
            rows.cells,
            self.width,
            arrays.columns,
            arrays.keys,
            arrays.fixed,
            arrays.pieces,
            arrays.settings,
            np.zeros((len(changes), 2), np.int64) if orders is None else orders,
            owned,
            lines,
        )
        if status != json_values.OK:
            refuse_value(self.table, rows, changes, int(count), int(status))
        return Encoded(out[:length], lines[:count])

    def event_counts(self, rows: Rows, changes: Changes) -> Ints:
        """How many events of Debezium each change is."""
        changes = decoded(changes, rows, self.texts)
        counts: Ints = np.empty(len(changes), np.int64)
        self.kernel.count_events(
            np.empty(self._size(rows, changes), np.uint8),
            changes.payload,
            changes.cells,
            changes.lines,
            self.arrays.keys,
            self.arrays.fixed,
            self.arrays.pieces,
            counts,
        )
        return counts

    def _size(self, rows: Rows, changes: Changes) -> int:
        """An upper limit of the bytes that the records need."""
        arrays = self.arrays
        args = (changes.cells, changes.lines, self.width, len(arrays.keys))
        return int(measure(*args, arrays.fixed_bytes, rows.values.offsets)) + 1
