"""What the publisher writes and recognises itself: ``resolved`` and ``fence`` records, and where a row stands.

A *mark* is a ``resolved`` or ``fence`` record: it carries the whole progress, so that the last one is the state of
the partition. A *step* is a row or DDL record: progress after it is the progress before it and its own position. All
else of ours (schema records) leaves progress as it is.

Not done here: finding them in a partition (``tail``), writing them (``publisher``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from schemas.gtid import parse_gtid
from schemas.progress import OpenTransaction, Progress


@dataclass(frozen=True, slots=True)
class Mark:
    """A ``resolved`` or ``fence`` record: what stands before it, and who says so."""

    progress: Progress
    epoch: int
    worker: str  # empty in a resolved record


@dataclass(frozen=True, slots=True)
class Step:
    """A row or DDL record: row ``rows`` of the source transaction ``gtid``; ``last`` published one of it."""

    gtid: str
    rows: int
    last: bool
    seq: int


class Marks(Protocol):
    """Encodes and recognises records for one task; the real side is ``producer.publish.codec``."""

    def run_start(self, progress: Progress) -> Sequence[bytes]:
        """Values that open a run: the schema records of the control schemas, then the fence, which is last."""
        ...

    def resolved(self, progress: Progress) -> bytes:
        """The value that ends a Kafka transaction."""
        ...

    def opens_run(self, value: bytes) -> bool:
        """Whether this is the first value of ``run_start``."""
        ...

    def read(self, value: bytes) -> Mark | Step | None:
        """What a committed record says; None for a schema record; Fatal MR-6007 for what is not ours."""
        ...


def stepped(progress: Progress, step: Step) -> Progress:
    """Progress once the record of ``step`` stands behind ``progress``."""
    if not step.last:
        return Progress(progress.gtid_set, OpenTransaction(step.gtid, step.rows), step.seq)
    gtid_set = progress.gtid_set
    return Progress(gtid_set.advanced(parse_gtid(gtid_set.flavour, step.gtid)), None, step.seq)
