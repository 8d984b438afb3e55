"""Records that follow a barrier. The driver applies the first of them itself, in order, without Spark.

DDL statements come in bursts. A Spark task for the few rows between two statements costs a hundred times as much as
the rows. So the Spark task that finds a barrier also returns the records after it, up to ``RECORDS_MAX`` and
``BYTES_MAX``. The driver executes the statement and continues with these records (``SerialLane``). They are the
topic's records as Spark read them, and the same function applies them under the same fence and mark, so the result is
the same.

Not done here: lanes. Spark reads and applies all later records.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from consumer.row_schemas import Ints
from consumer.rows import Bytes, Values

RECORDS_MAX = 4096
BYTES_MAX = 8 << 20


@dataclass(frozen=True)
class ReadAhead:
    """Records with their offsets. ``is_all``: the micro-batch ends with them."""

    offsets: Ints
    values: Values
    is_all: bool

    def reaches(self, offset: int) -> bool:
        """True if these records decide what follows at ``offset``: a record, or the end of the micro-batch."""
        return self.is_all or bool(len(self.offsets) and self.offsets[-1] >= offset)

    @cached_property
    def batch(self) -> pa.RecordBatch:
        """The records as one Arrow batch of (offset, value)."""
        bounds = pa.py_buffer(self.values.offsets.astype(np.int32).tobytes())
        buffers = [None, bounds, pa.py_buffer(self.values.payload.tobytes())]
        values = pa.Array.from_buffers(pa.binary(), len(self.offsets), buffers)
        return pa.RecordBatch.from_arrays(
            [pa.array(self.offsets), values], names=["offset", "value"]
        )

    def arrays(self) -> list[npt.NDArray[Any]]:
        """Offsets, bounds and payload, for ``of_arrays``."""
        return [self.offsets, self.values.offsets, self.values.payload]

    @classmethod
    def of_arrays(cls, arrays: Sequence[npt.NDArray[Any]], *, is_all: bool) -> "ReadAhead":
        """The inverse of ``arrays``."""
        offsets, bounds, payload = arrays
        return cls(offsets, Values(payload, bounds), is_all)


def collect_read_ahead(parts: Iterator[tuple[Ints, Values]]) -> ReadAhead:
    """The first records, up to both limits. Later records are read and dropped.

    Spark ends a Python process that leaves input unread. Starting another takes a second.
    """
    offsets: list[Ints] = [np.empty(0, np.int64)]
    sizes: list[Ints] = [np.zeros(1, np.int64)]
    pieces: list[Bytes] = [np.empty(0, np.uint8)]
    records_left, bytes_left, is_all = RECORDS_MAX, BYTES_MAX, True
    for at, values in parts:
        ends = np.cumsum(values.sizes())
        count = min(int(np.searchsorted(ends, bytes_left, "right")), records_left)
        if is_all and count:
            offsets.append(at[:count])
            sizes.append(values.sizes()[:count])
            pieces.append(values.payload[values.offsets[0] : values.offsets[count]])
            records_left -= count
            bytes_left -= int(ends[count - 1])
        is_all = is_all and count == len(values)
    bounds: npt.NDArray[Any] = np.cumsum(np.concatenate(sizes))
    return ReadAhead(np.concatenate(offsets), Values(np.concatenate(pieces), bounds), is_all)
