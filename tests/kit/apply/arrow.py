"""Record values as Spark hands them to executors."""

from collections.abc import Sequence

import pyarrow as pa


def batch_of(values: Sequence[bytes], *, first: int = 0) -> pa.RecordBatch:
    """An Arrow batch of (offset, value)."""
    return pa.RecordBatch.from_arrays(
        [pa.array(range(first, first + len(values)), pa.int64()), pa.array(values, pa.binary())],
        names=["offset", "value"],
    )
