"""How far a stream of rows has been delivered, at a point from which it can resume.

A source transaction larger than one batch leaves ``open`` set between its parts. Its GTID enters ``gtid_set`` only
with its last row. ``rows`` counts its rows in binlog order before any filter, so the count does not depend on the
filter or on where batches end. Another server may log these rows in another order, so ``producer.task.resume`` compares
the rows before it relies on the count.
"""

from dataclasses import dataclass

from millrace.schemas.gtid import GtidPosition
from millrace.schemas.snapshot import SnapshotState


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """The first ``rows`` rows of the source transaction ``gtid`` are delivered; more follow. ``rows`` is at least 1."""

    gtid: str
    rows: int


@dataclass(frozen=True, slots=True)
class Progress:
    """The delivered source transactions, the one in progress if any, and the ``seq`` of the last row or DDL record.

    ``snapshot``: where the snapshot under way is; None while none runs.
    """

    gtid_set: GtidPosition
    open: OpenTransaction | None
    seq: int
    snapshot: SnapshotState | None = None
