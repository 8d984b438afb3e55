"""What the converter gives to the publisher: finished records in one buffer, and how far they reach."""

from collections.abc import Callable
from dataclasses import dataclass

from producer.convert.arrays import Bytes, Numbers
from schemas.place import Coordinates
from schemas.progress import Progress


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """``bounds``: (n, 4) key start, key end, value start, value end in ``buffer``; key start -1: no key.

    ``progress`` is what is delivered with this batch; its ``open`` is set when the batch ends inside a source
    transaction. ``rows``: how many records are rows. ``coordinates``: once it is published, nothing before them is read
    again (the relay position after the batch, or the oldest prepared XA transaction). ``release`` once it is published:
    the buffer is filled again, so neither it nor a view of it may be read any more. A batch that is never released
    costs memory, no more."""

    buffer: Bytes
    bounds: Numbers
    progress: Progress
    rows: int
    coordinates: Coordinates
    release: Callable[[], None]
