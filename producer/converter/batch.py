"""What the converter gives to the publisher: finished records in one buffer, and how far they reach."""

from dataclasses import dataclass

from producer.converter.arrays import Bytes, Numbers
from schemas.coordinates import Coordinates
from schemas.progress import Progress


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """``records`` includes control records; ``filtered`` and ``repeated`` rows are not in the batch."""

    records: int
    rows: int
    statements: int
    filtered: int
    repeated: int
    transactions: int


@dataclass(frozen=True, slots=True)
class CommitTimes:
    """When the first and the last source transaction of the batch were committed; 0 if none ends in it."""

    first_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """``bounds``: (n, 4) key start, key end, value start, value end in ``buffer``; key start -1: no key.

    ``progress`` is what is delivered with this batch; its ``open`` is set when the batch ends inside a source
    transaction. ``coordinates``: once it is published, nothing in front of them is read again (the relay position
    behind the batch, or the oldest prepared XA transaction). The buffer is used again when nobody holds the batch any
    more."""

    buffer: Bytes
    bounds: Numbers
    progress: Progress
    counts: BatchCounts
    commit_times: CommitTimes
    coordinates: Coordinates
