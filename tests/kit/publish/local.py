"""A publish task in this process, without Spark: turns on a real broker, over records that a test has made."""

import json
import time
from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from millrace.consumer.publish.definitions import Definitions
from millrace.consumer.publish.executor import close_slots, execute_publish
from millrace.consumer.publish.opening import start_task
from millrace.consumer.publish.order import PublishOrder
from millrace.consumer.publish.outputs import SlotLimits
from millrace.consumer.target.progress import Mark
from millrace.consumer.task.publish_start import Documents, described, first_position, task_order
from millrace.consumer.turn.order import result_of
from millrace.drivers.kafka.partitions import (
    HeaderedRecord,
    PartitionsReader,
    Place,
    Topics,
    places_of,
)
from millrace.drivers.kafka.producer import WRITING
from millrace.drivers.kafka.reader import TopicIdentity
from millrace.schemas.documents import (
    Brokers,
    CaptureTask,
    PublishTask,
    Reader,
    SetDocument,
    TopicAddress,
)
from millrace.schemas.requests.snapshot_request import SnapshotRequests


class SetTopicAt(Protocol):
    """A set topic on a broker."""

    @property
    def bootstrap(self) -> str:
        """Host and port."""

    @property
    def topic(self) -> str:
        """Its name."""


def publish_task(writer: SetTopicAt, **fields: object) -> PublishTask:
    """A task over the writer's topic; ``fields`` are those of its document."""
    source = TopicAddress(topic=writer.topic, brokers=Brokers(writer.bootstrap))
    name = f"{writer.topic}-public-{time.time_ns()}"
    return PublishTask(**{"name": name, "source": source, **fields})  # type: ignore[arg-type]


class NoCapture:
    """No task captures to the topic, so no rows can be asked for."""

    def capture_task_of(self, task: Reader) -> CaptureTask:
        raise AssertionError(task)

    def set_document(self, name: str) -> SetDocument:
        raise AssertionError(name)

    def change_snapshots(
        self, task: str, change: Callable[[SnapshotRequests], SnapshotRequests]
    ) -> SnapshotRequests:
        raise AssertionError(task)


@dataclass
class LocalPublisher:
    """Runs of one task, each with the next epoch. ``documents``: how it finds its source."""

    epoch: int = 0
    documents: Documents = field(default_factory=NoCapture)
    limits: SlotLimits = field(default_factory=SlotLimits)

    def run(self, task: PublishTask) -> tuple[Mark, ...]:
        """A run that publishes all that the topic has: the mark of each slot."""
        self.epoch += 1
        topic = TopicIdentity(task.source.brokers, task.source.topic)
        order = replace(task_order(task, epoch=self.epoch), limits=self.limits)
        try:
            started = start_task(
                order,
                start=lambda: first_position(task, topic, self.documents),
                describe=lambda last: described(task, self.documents, last),
            )
            definitions = Definitions.of(started.definitions)
            return tuple(
                result_of(
                    execute_publish(
                        PublishOrder(
                            task=order,
                            definitions=definitions,
                            slot=slot,
                            accepted=task.accept_ddl,
                            first_offset=0,
                            end_offset=topic.end(),
                        )
                    )
                )
                for slot in range(order.slots)
            )
        finally:
            close_slots(task.name)
            topic.close()


@dataclass(frozen=True)
class Published:
    """A record of an output topic."""

    topic: str
    partition: int
    key: Any
    value: Any
    seq: int
    n: int


def published(
    task: PublishTask, topics: Collection[str], read: Callable[[bytes], Any] = json.loads
) -> list[Published]:
    """The committed records of these topics, in order in each partition; ``n`` is checked.

    ``read``: a key or a value.
    """
    client = Topics(task.source.brokers, errors=WRITING)
    shapes = client.shapes(topics)
    places = places_of(shapes)
    ends = client.ends(places)
    records: list[Published] = []

    def note(place: Place, record: HeaderedRecord) -> None:
        key, value = (read(one) if one else None for one in (record.key, record.value))
        seq, n = (int(record.headers[name]) for name in ("seq", "n"))
        records.append(Published(*place, key, value, seq, n))

    with closing(PartitionsReader(task.source.brokers, errors=WRITING)) as reader:
        ranges = {place: (end.low, end.stable) for place, end in ends.items()}
        reader.visit(ranges, note, within_s=60.0)
    for place in places:
        own = [one for one in records if (one.topic, one.partition) == place]
        assert [one.n for one in own] == list(range(1, len(own) + 1)), place
        assert [one.seq for one in own] == sorted(one.seq for one in own), place
    return records
