"""The report of a publish task, from the places of its slots and its pace. Apart: it is pure."""

from collections.abc import Sequence

from millrace.consumer.publish.mark import Position
from millrace.consumer.publish.places import SlotPlace
from millrace.schemas.stages import Applied, Delivered, Rates
from millrace.schemas.stages import SlotPlace as PlaceInStatus
from millrace.schemas.status import TaskReport, TaskState
from millrace.wording import counted


def publish_report(
    slowest: Position,
    places: Sequence[SlotPlace],
    pace: Applied,
    *,
    record_rates: Rates,
    definition: tuple[int, int],
) -> TaskReport:
    """RUNNING. ``slowest``: the position of the slot that is the furthest behind.

    ``definition``: the number of the newest one, and the last seq that earlier ones describe.
    """
    topics = frozenset[str]().union(*(place.topics for place in places))
    slots = [
        PlaceInStatus(
            slot=number,
            seq=place.position.seq,
            offset=place.position.next_offset,
            records=place.records,
        )
        for number, place in enumerate(places)
        if place.position is not None
    ]
    delivered = Delivered.of(
        pace, slots, record_rates=record_rates, topics=len(topics), definition=definition
    )
    why = "waiting for the first record"
    if slowest.next_offset >= 0:
        written = f"{counted(delivered.records, 'record')} in {counted(len(topics), 'topic')}"
        why = f"published up to offset {slowest.next_offset}: {written}"
    return TaskReport(
        TaskState.RUNNING,
        why=why,
        gtid_set=slowest.gtid_set,
        seq=max(slowest.seq, 0),
        delivered=delivered,
    )
