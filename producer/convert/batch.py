"""A batch from the converter for the publisher: finished records in one buffer, and the progress they reach."""

from dataclasses import dataclass
from typing import Protocol

from millrace.producer.convert.arrays import Bytes, Numbers
from millrace.schemas.place import Coordinates
from millrace.schemas.progress import Progress


class BatchRelease(Protocol):
    """Releases what a batch holds. Repeated calls do nothing. Any thread may call it."""

    def recycle(self) -> None:
        """The buffer alone: the records have been copied."""
        ...

    def __call__(self) -> None:
        """All of it: the batch is published."""
        ...


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Records of a batch. ``bounds``: (n, 4) key start, key end, value start, value end in ``buffer``; -1: no key.

    ``progress`` is delivered with this batch; its ``open`` is set if the batch ends inside a source transaction.
    ``rows`` counts the records that are rows. Once the batch is published, no event before ``coordinates`` is read
    again: they are the relay position after the batch, or the oldest prepared XA transaction.

    Call ``release`` once the batch is published. The buffer is then filled again, so do not read it or a view of it
    afterwards. A batch that is never released only costs memory.
    """

    buffer: Bytes
    bounds: Numbers
    progress: Progress
    rows: int
    coordinates: Coordinates
    release: BatchRelease
