"""How far a stream of rows has come, at a place where it can be taken up again.

A source transaction larger than one batch leaves ``open`` set between its parts: its GTID is not in ``gtid_set``
before its last row is in. ``rows`` counts the rows of it in binlog order before any filter, so that the count
means the same under any filter and any cut. Another server need not log these rows in the same order: before a count
is believed, the rows are compared (``producer.resume``).
"""

from dataclasses import dataclass

from schemas.gtid import GtidPosition


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """The first ``rows`` rows of the source transaction ``gtid`` are delivered; more follow. ``rows`` is at least 1."""

    gtid: str
    rows: int


@dataclass(frozen=True, slots=True)
class Progress:
    """Whole source transactions delivered, the one under way if any, and the ``seq`` of the last row or DDL record."""

    gtid_set: GtidPosition
    open: OpenTransaction | None
    seq: int
