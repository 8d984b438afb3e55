"""What waits behind a barrier, held by the driver: it applies the first of it there, in order, without Spark.

DDL comes in swarms, and a Spark task for the few rows between two statements costs a hundred times what they do. The
task that finds a barrier brings the records behind it along, up to ``RECORDS_MAX`` and ``BYTES_MAX``; the driver, who
executes the statement itself, goes on with them (``SoleLane``). They are the records of the topic as Spark read them,
applied by the same function under the same fence and mark, so it makes no difference where it runs.

Not done here: lanes. What was not brought along is Spark's again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from consumer.book import Ints
from consumer.rows import Bytes, Values

RECORDS_MAX = 4096
BYTES_MAX = 8 << 20


@dataclass(frozen=True)
class Held:
    """Records with their offsets; ``is_all``: the micro-batch has nothing behind them."""

    offsets: Ints
    values: Values
    is_all: bool

    def reaches(self, offset: int) -> bool:
        """Whether what comes at ``offset`` or behind it is here (nothing may be what comes)."""
        return self.is_all or bool(len(self.offsets) and self.offsets[-1] >= offset)

    @cached_property
    def batch(self) -> pa.RecordBatch:
        """They as one Arrow batch of (offset, value)."""
        bounds = pa.py_buffer(self.values.offsets.astype(np.int32).tobytes())
        buffers = [None, bounds, pa.py_buffer(self.values.payload.tobytes())]
        values = pa.Array.from_buffers(pa.binary(), len(self.offsets), buffers)
        return pa.RecordBatch.from_arrays(
            [pa.array(self.offsets), values], names=["offset", "value"]
        )

    def arrays(self) -> list[npt.NDArray[Any]]:
        """Offsets, bounds, payload: ``of_arrays`` makes it of these again."""
        return [self.offsets, self.values.offsets, self.values.payload]

    @classmethod
    def of_arrays(cls, arrays: Sequence[npt.NDArray[Any]], *, is_all: bool) -> "Held":
        """What ``arrays`` gave."""
        offsets, bounds, payload = arrays
        return cls(offsets, Values(payload, bounds), is_all)


def hold(parts: Iterator[tuple[Ints, Values]]) -> Held:
    """The first records of these, as many as may be held; the rest is read and dropped.

    Spark ends a Python process that leaves input unread, and a new one takes a second.
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
    return Held(np.concatenate(offsets), Values(np.concatenate(pieces), bounds), is_all)
