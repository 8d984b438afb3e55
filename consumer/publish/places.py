"""How far the slots of a publish task are, for its runner: read from the progress topic, beside the executors."""

from collections.abc import Mapping
from dataclasses import dataclass

from millrace.consumer.publish.mark import Position, Tail, marks_in
from millrace.consumer.publish.outputs import Outputs, TaskOrder
from millrace.drivers.kafka.partitions import Place


@dataclass(frozen=True, slots=True)
class SlotPlace:
    """``position``: as it is stored. ``records``: in the slot's partitions so far. ``topics``: that it writes."""

    position: Position | None
    records: int
    topics: frozenset[str]


class PlacesReader:
    """Reads what is new in the progress topic at each look. For one thread."""

    def __init__(self, order: TaskOrder) -> None:
        self._order, self._outputs = order, Outputs(order)
        self._read: dict[Place, int] = {}  # up to which offset
        self._marks: dict[Place, tuple[Mapping[Place, Tail], Position | None]] = {}

    def look(self) -> tuple[SlotPlace, ...]:
        """The places of all slots, in order. Errors: those of a writer (``drivers.kafka.producer.WRITING``)."""
        order, outputs = self._order, self._outputs
        places = [(order.progress_topic, slot) for slot in range(order.slots)]
        new = [place for place in places if place not in self._read]
        self._read |= {place: end.low for place, end in outputs.topics.ends(new).items()}
        stable = outputs.topics.stable_ends(places)
        ranges = {place: (self._read[place], stable[place]) for place in places}
        changed = marks_in(outputs.reader, ranges, within_s=order.limits.audit_timeout_s)
        for place, mark in changed.items():
            tails, position = self._marks.get(place, _NOTHING)
            self._marks[place] = ({**tails, **mark.tails}, mark.position or position)
            self._read[place] = max(self._read[place], stable[place])
        return tuple(_slot_place(*self._marks[place]) for place in places)

    def close(self) -> None:
        """Release connections."""
        self._outputs.close()


_NOTHING: tuple[Mapping[Place, Tail], None] = ({}, None)


def _slot_place(tails: Mapping[Place, Tail], position: Position | None) -> SlotPlace:
    records = sum(tail.n for tail in tails.values())
    topics = frozenset(topic for (topic, _), tail in tails.items() if tail.n)
    return SlotPlace(position, records, topics)
