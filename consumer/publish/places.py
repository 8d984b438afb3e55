"""How far the slots of a publish task are, for its runner: read from the progress topic, beside the executors."""

from collections.abc import Mapping
from dataclasses import dataclass

from consumer.publish.mark import Mark as SlotMark
from consumer.publish.mark import Position, last_values
from consumer.publish.outputs import Outputs, TaskOrder
from drivers.kafka.partitions import HeaderedRecord, Place


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
        self._values: dict[Place, dict[bytes, bytes]] = {}

    def look(self) -> tuple[SlotPlace, ...]:
        """The places of all slots, in order. Errors: those of a writer (``drivers.kafka.producer.WRITING``)."""
        order, outputs = self._order, self._outputs
        places = [(order.progress_topic, slot) for slot in range(order.slots)]
        new = [place for place in places if place not in self._read]
        self._read |= {place: end.low for place, end in outputs.topics.ends(new).items()}
        stable = outputs.topics.stable_ends(places)
        ranges = {place: (self._read[place], stable[place]) for place in places}
        records: dict[Place, list[HeaderedRecord]] = {place: [] for place in places}
        outputs.reader.visit(
            ranges,
            lambda place, record: records[place].append(record),
            within_s=order.limits.audit_timeout_s,
        )
        for place, found in records.items():
            self._values.setdefault(place, {}).update(last_values(found))
            self._read[place] = max(self._read[place], stable[place])
        return tuple(_slot_place(self._values[place]) for place in places)

    def close(self) -> None:
        """Release connections."""
        self._outputs.close()


def _slot_place(values: Mapping[bytes, bytes]) -> SlotPlace:
    mark = SlotMark.of(values.items())
    records = sum(tail.n for tail in mark.tails.values())
    topics = frozenset(topic for (topic, _), tail in mark.tails.items() if tail.n)
    return SlotPlace(mark.position, records, topics)
