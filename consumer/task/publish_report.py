"""The report of a publish task, from the places of its slots and its pace. Apart: it is pure."""

from collections.abc import Sequence

from consumer.publish.mark import Position
from consumer.publish.places import SlotPlace
from schemas.stages import Applied
from schemas.status import TaskReport, TaskState


def publish_report(
    slowest: Position, places: Sequence[SlotPlace], pace: Applied | None
) -> TaskReport:
    """RUNNING. ``slowest``: the position of the slot that is the furthest behind."""
    topics = frozenset[str]().union(*(place.topics for place in places))
    records = sum(place.records for place in places)
    why = "waiting for the first record"
    if slowest.next_offset >= 0:
        why = f"published up to offset {slowest.next_offset}: {records} records in {len(topics)} topics"
    return TaskReport(
        TaskState.RUNNING, why=why, gtid_set=slowest.gtid_set, seq=max(slowest.seq, 0), applied=pace
    )
