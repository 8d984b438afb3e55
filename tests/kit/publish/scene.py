"""A publish task on a model of Kafka: the set topic is a list of records, turns run in this process.

The real code runs: the start, turns, slots, the rebuild. Not done here: Spark, a broker, time.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from millrace.consumer.publish import executor, rebuild
from millrace.consumer.publish.definitions import Definitions, describe
from millrace.consumer.publish.mark import Position
from millrace.consumer.publish.opening import start_task
from millrace.consumer.publish.order import PublishOrder
from millrace.consumer.publish.outputs import TaskOrder
from millrace.consumer.records.pieces import Size, Taken
from millrace.consumer.task.publish_start import task_order
from millrace.consumer.turn.order import result_of
from millrace.drivers.kafka.partitions import HeaderedRecord, Place
from millrace.drivers.kafka.reader import Ends, TopicRecord
from millrace.schemas.documents import PublishTask
from tests.kit.apply.tables import integer, table, text
from tests.kit.apply.topic import RecordStream
from tests.kit.apply.values import values_of
from tests.kit.publish.model import ModelBroker, patched

ORDERS = table("shop", "orders", integer("id"), text("name"), integer("amount"))
LOG = table("shop", "log", text("line"), key=())
AGAIN = ".again"  # the suffix of rebuilds
Content = dict[Place, list[HeaderedRecord]]


@dataclass
class SetTopic:
    """The records of a stream as a set topic. Retention has removed those before ``low``."""

    stream: RecordStream = field(default_factory=RecordStream)
    low: int = 0
    at: int = 0

    @property
    def reached(self) -> int:
        """As ``TopicStream``."""
        return self.at

    def ends(self) -> Ends:
        """As the reader of a topic."""
        return Ends(self.low, len(self.stream.values))

    def next_record(self, offset: int, *, timeout_s: float) -> TopicRecord | None:
        """As the reader of a topic."""
        return TopicRecord(offset, None, self.stream.values[offset])

    def read(self, start: int, stop: int) -> list[TopicRecord]:
        """As the reader of a topic."""
        assert start >= self.low
        return [TopicRecord(at, None, self.stream.values[at]) for at in range(start, stop)]

    def ask(self) -> str:
        """The topic's id."""
        return "id"

    def end(self) -> int:
        """The end."""
        return len(self.stream.values)

    def seek(self, offset: int) -> None:
        """As a source."""
        self.at = max(offset, 0)
        assert self.at >= self.low

    def take(self, size: Size, *, wait_s: float) -> Taken | None:
        """As a source: a few records at once."""
        end = min(self.at + min(size.rows, 17), len(self.stream.values))
        if self.at == end:
            return None
        part = self.stream.values[self.at : end]
        offsets = np.arange(self.at, end, dtype=np.int64)
        self.at = end
        return Taken(offsets, values_of(part), end == len(self.stream.values))

    def close(self) -> None:
        """Nothing to release."""

    def explain_again(self) -> int:
        """The schemas again, as capture writes them from time to time; the offset of the first."""
        offset = len(self.stream.values)
        for number, one in enumerate((ORDERS, LOG), 100):
            self.stream.introduce(one, schema_id=number)
        return offset

    def rows(self, first: int, end: int) -> None:
        """Inserts into two tables, a changed key, a row that leaves a condition, a delete."""
        stream = self.stream
        for number in range(first, end):
            stream.insert(ORDERS, row(number))
            stream.insert(LOG, {"line": f"line {number}"})
            stream.commit()
        stream.update(ORDERS, row(first), row(first + 1000, name="moved"))
        stream.update(ORDERS, row(first + 1), row(first + 1, amount=9))
        stream.delete(ORDERS, row(first + 2))
        stream.commit()


def row(number: int, **changed: object) -> dict[str, object]:
    """An order."""
    return {"id": number, "name": f"n{number}", "amount": number % 10, **changed}


@dataclass
class Scene:
    """A set topic, a broker, and a task with runs of two slots; ``epoch`` is that of the next run's owner."""

    topic: SetTopic
    broker: ModelBroker
    task: PublishTask
    epoch: int = 1

    @property
    def order(self) -> TaskOrder:
        return replace(task_order(self.task, epoch=self.epoch), brokers=self.broker)

    def publish(self, begin: Position | None = None, *, ends: Sequence[int] = ()) -> Definitions:
        """A run of the task to the end of the set topic, or of each slot to its end; the definitions."""
        order = self.order
        start = begin or Position(0, 0, "", "id")
        description = describe(self.task, {})
        started = start_task(order, start=lambda: start, describe=lambda _: description)
        definitions = Definitions.of(started.definitions)
        try:
            for slot in range(order.slots):
                request = PublishOrder(
                    task=order,
                    definitions=definitions,
                    slot=slot,
                    accepted=self.task.accept_ddl,
                    first_offset=self.topic.low,
                    end_offset=ends[slot] if ends else -1,
                )
                result_of(executor.execute_publish(request))
        finally:
            executor.close_slots(self.task.name)
        return definitions

    def rebuild(self) -> rebuild.Rebuilt:
        """A rebuild to the end of the set topic."""
        return rebuild.rebuild(self.task, self.order, suffix=AGAIN)

    def content(self, *, is_again: bool = False) -> Content:
        """The committed records of the task's topics, or of those of its rebuild, by the names of the former."""
        content: Content = {}
        for (topic, partition), log in self.broker.logs.items():
            if topic.endswith(".progress") or (AGAIN in topic) is not is_again:
                continue
            records = [one.record for one in log if one.record is not None and not one.is_aborted]
            content[topic.replace(AGAIN, ""), partition] = records
        return content


@contextmanager
def on_the_model(topic: SetTopic, broker: ModelBroker, task: PublishTask) -> Iterator[Scene]:
    """The scene, with everything that asks Kafka replaced."""
    with patched(), pytest.MonkeyPatch.context() as patch:
        for module, name in (
            (executor, "TopicStream"),
            (executor, "TopicReader"),
            (rebuild, "TopicReader"),
            (rebuild, "TopicIdentity"),
        ):
            patch.setattr(module, name, lambda *_, **__: topic)
        yield Scene(topic, broker, task)
