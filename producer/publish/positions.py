"""The positions in records: ``resolved`` and ``fence`` records, and rows.

A ``ProgressRecord`` is a ``resolved`` or ``fence`` record: it contains the whole progress, so the last one is the state
of the partition. A ``ChangeRecord`` is a row or DDL record: progress after it is the progress before it plus its own
position. Schema and snapshot records leave progress unchanged.

Not done here: finding them in a partition (``tail``), writing them (``publisher``).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from millrace.schemas.gtid import parse_gtid
from millrace.schemas.progress import OpenTransaction, Progress
from millrace.schemas.requests.decision import Decision


@dataclass(frozen=True, slots=True)
class ProgressRecord:
    """A ``resolved`` or ``fence`` record: the progress before it, and its writer."""

    progress: Progress
    epoch: int
    worker: str  # empty in a resolved record


@dataclass(frozen=True, slots=True)
class ChangeRecord:
    """A row or DDL record: row ``rows`` of the source transaction ``gtid``; ``last``: the last published one of it.

    ``gtid`` is "" for a row of a snapshot, which belongs to none.
    """

    gtid: str
    rows: int
    last: bool
    seq: int


class Codec(Protocol):
    """Encodes and decodes records for one task. ``producer.publish.codec`` implements it."""

    def run_start(self, progress: Progress) -> Sequence[bytes]:
        """The values that begin a run: the schema records of the control schemas, then the fence, which is last."""

    def resolved(self, progress: Progress) -> bytes:
        """The value that ends a Kafka transaction."""

    def gap(self, decision: Decision, result: Progress) -> Sequence[bytes]:
        """The values that execute ``decision``: its gap record, then a resolved record of ``result``."""

    def decision_of(self, value: bytes) -> str:
        """The ID of the decision that this value's gap record executed; "" for any other record."""

    def opens_run(self, value: bytes) -> bool:
        """Whether this is the first value of ``run_start``."""

    def read(self, value: bytes) -> ProgressRecord | ChangeRecord | None:
        """The position in a committed record; None for schema and snapshot records. Fatal MR-6007 for a foreign one."""


def progress_after(progress: Progress, change: ChangeRecord) -> Progress:
    """Progress after ``change``, which follows ``progress``."""
    if not change.gtid:
        return replace(progress, seq=change.seq)
    if not change.last:
        opened = OpenTransaction(change.gtid, change.rows)
        return replace(progress, open=opened, seq=change.seq)
    gtid = parse_gtid(progress.gtid_set.flavour, change.gtid)
    return replace(progress, gtid_set=progress.gtid_set.advanced(gtid), open=None, seq=change.seq)
