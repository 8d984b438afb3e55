"""The heartbeats of one slot: when the next is due, and its place after the last one.

Each slot has its own partition of the heartbeat topic, because it only knows how far its own partitions are. A
heartbeat goes into the Kafka transaction of the records before it, with the ``seq`` of the last one that was read;
``part`` counts those of one seq. A replay writes no older ones: the partition has a later seq. So a restart only needs
the tail of the partition.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from millrace.consumer.format.cloud_events import (
    HEARTBEAT,
    TEXTS,
    constant_headers,
    event_source,
    single_texts,
)
from millrace.consumer.publish.outgoing import Message, Outgoing, outgoing_of
from millrace.consumer.publish.plans import PublishPlans
from millrace.consumer.target.progress import Mark
from millrace.drivers.kafka.partitions import Place


@dataclass(slots=True)
class Heartbeats:
    """``last``: seq and part of the last heartbeat in each partition."""

    last: dict[Place, tuple[int, int]] = field(default_factory=dict)
    _at_s: float | None = None

    def is_due(self, every_ms: int) -> bool:
        """Whether the interval has passed since the last one, or none was written by this process."""
        return self._at_s is None or time.monotonic() - self._at_s >= every_ms / 1000

    def next(
        self, plans: PublishPlans, mark: Mark, *, slots: int, owns: Callable[[str, int], bool]
    ) -> Outgoing:
        """The heartbeat at a mark that has a seq and a time."""
        self._at_s = time.monotonic()
        task = plans.task
        topic = task.heartbeat_topic
        partition = next(number for number in range(slots) if owns(topic, number))
        seq, part = self.last.get((topic, partition), (-1, -1))
        place = (mark.seq, part + 1 if seq == mark.seq else 0)
        self.last[topic, partition] = max(place, (seq, part))
        key, value = plans.heartbeats.record(task.name, mark.commit_ms)
        message = Message(topic, partition, key, value, *place)
        if not task.format.cloudevents:
            return outgoing_of(message)
        source = event_source(task.source.topic, topic)
        texts = single_texts(source, place, HEARTBEAT, mark.commit_ms)
        named = dict(zip(TEXTS, texts, strict=True))
        return outgoing_of(message, constant_headers(task.format.name), named)
