"""A rebuild on a model of Kafka: equal keys, values and headers for the range that the set topic has."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np
import pytest

from consumer.publish import executor, rebuild
from consumer.publish.definitions import Definitions, stored_text
from consumer.publish.mark import Position
from consumer.publish.opening import start_task
from consumer.publish.order import PublishOrder
from consumer.publish.outputs import TaskOrder
from consumer.records.pieces import Size, Taken
from consumer.task.publish_start import task_order
from consumer.turn.order import result_of
from drivers.kafka.partitions import HeaderedRecord, Place
from drivers.kafka.reader import Ends, TopicRecord
from millrace.errors import Fatal
from schemas.documents import Brokers, OnChange, OutputTopics, PublishTask, TopicAddress
from schemas.view.format_options import FormatName, FormatOptions
from schemas.view.view import Mask, MaskKind, TableRule, View
from tests.kit.apply.tables import integer, table, text
from tests.kit.apply.topic import RecordStream
from tests.kit.apply.values import values_of
from tests.kit.publish.model import ModelBroker, patched

ORDERS = table("shop", "orders", integer("id"), text("name"), integer("amount"))
LOG = table("shop", "log", text("line"), key=())
SUFFIX = ".again"
Content = dict[Place, list[HeaderedRecord]]
MASKED = TableRule("shop.orders", where="(`amount` < 8)", masks=(("name", Mask(MaskKind.REDACT)),))
VIEW = View((MASKED, TableRule("shop.log")))
OTHER_VIEW = View((TableRule("shop.orders", drop=("amount",)), TableRule("shop.log")))


@dataclass
class SetTopic:
    """The records of a stream as a set topic. Retention has removed those before ``low``."""

    stream: RecordStream = field(default_factory=RecordStream)
    low: int = 0
    at: int = 0

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
            stream.insert(ORDERS, _row(number))
            stream.insert(LOG, {"line": f"line {number}"})
            stream.commit()
        stream.update(ORDERS, _row(first), _row(first + 1000, name="moved"))
        stream.update(ORDERS, _row(first + 1), _row(first + 1, amount=9))
        stream.delete(ORDERS, _row(first + 2))
        stream.commit()


def _row(number: int, **changed: object) -> dict[str, object]:
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

    def publish(self, begin: Position | None = None) -> None:
        """A run of the task to the end of the set topic."""
        order = self.order
        start = begin or Position(0, 0, "", "id")
        started = start_task(order, start=lambda: start, document=stored_text(self.task, {}))
        definitions = Definitions.of((one.from_seq, one.document) for one in started.definitions)
        try:
            for slot in range(order.slots):
                request = PublishOrder(
                    task=order,
                    definitions=definitions,
                    slot=slot,
                    accepted=self.task.accept_ddl,
                    first_offset=self.topic.low,
                )
                result_of(executor.execute_publish(request))
        finally:
            executor.close_slots(self.task.name)

    def rebuild(self) -> rebuild.Rebuilt:
        """A rebuild to the end of the set topic."""
        return rebuild.rebuild(self.task, self.order, suffix=SUFFIX)

    def content(self, *, is_again: bool = False) -> Content:
        """The committed records of the task's topics, or of those of its rebuild, by the names of the former."""
        content: Content = {}
        for (topic, partition), log in self.broker.logs.items():
            if topic.endswith(".progress") or (SUFFIX in topic) is not is_again:
                continue
            records = [one.record for one in log if one.record is not None and not one.is_aborted]
            content[topic.replace(SUFFIX, ""), partition] = records
        return content


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """A task that has published thirty rows of each table."""
    topic = SetTopic()
    topic.stream.fence()
    topic.rows(0, 30)
    for module, name in (
        (executor, "TopicStream"),
        (executor, "TopicReader"),
        (rebuild, "TopicReader"),
        (rebuild, "TopicIdentity"),
    ):
        monkeypatch.setattr(module, name, lambda *_, **__: topic)
    task = PublishTask(
        name="public",
        source=TopicAddress(topic="shop", brokers=Brokers("b:1")),
        view=VIEW,
        topics=OutputTopics(partitions=2, slots=2),
        format=FormatOptions.of(FormatName.DEBEZIUM_JSON),
    )
    with patched():
        scene = Scene(topic, ModelBroker(Random(1)), task)
        scene.publish()
        yield scene


def _change(scene: Scene, **fields: object) -> None:
    """Other columns, more partitions."""
    topics = replace(scene.task.topics, partitions=3)
    scene.task = replace(scene.task, view=OTHER_VIEW, topics=topics, **fields)  # type: ignore[arg-type]


def _plain(content: Content, *names: str, after: int = 0) -> dict[Place, list[object]]:
    """Key, value and these headers of the records after a seq, of partitions that have any."""
    plain: dict[Place, list[object]] = {
        place: [
            (record.key, record.value, *(record.headers[name] for name in names))
            for record in records
            if int(record.headers["seq"]) > after
        ]
        for place, records in content.items()
    }
    return {place: records for place, records in plain.items() if records}


ALL = ("task", "epoch", "seq", "part", "n")


def test_rebuild_writes_equal_keys_values_and_headers(scene: Scene) -> None:
    """Under two definitions and with one slot; a repeated rebuild adds only what has come since."""
    scene.topic.rows(100, 130)
    _change(scene)
    scene.publish()
    rebuilt = scene.rebuild()
    original = scene.content()
    assert len(original) == 6
    assert _plain(scene.content(is_again=True), *ALL) == _plain(original, *ALL)
    assert sum(rebuilt.records.values()) == sum(map(len, original.values())) > 120
    scene.topic.rows(200, 210)
    scene.publish()
    assert scene.rebuild().seqs[1] == scene.topic.stream.seq > rebuilt.seqs[1]
    assert _plain(scene.content(is_again=True), *ALL) == _plain(scene.content(), *ALL)


def test_rebuild_has_the_range_that_the_set_topic_holds(scene: Scene) -> None:
    """Retention has removed the rest. n counts the records of the new topics, and the epoch is the last owner's."""
    low = scene.topic.explain_again()
    scene.topic.rows(100, 130)
    _change(scene)
    scene.epoch = 2
    scene.publish()
    scene.topic.low = low
    first = scene.rebuild().seqs[0]
    assert first == 63
    names = ("task", "seq", "part")
    again = scene.content(is_again=True)
    assert _plain(again, *names) == _plain(scene.content(), *names, after=first)
    for records in again.values():
        numbers = [int(record.headers["n"]) for record in records]
        assert numbers == list(range(1, len(numbers) + 1))
        assert {record.headers["epoch"] for record in records} <= {b"2"}


def test_rebuild_passes_statements_that_stopped_the_task(scene: Scene) -> None:
    """The history has the answers: here another view."""
    sql = "ALTER TABLE shop.orders MODIFY amount VARCHAR(3)"
    scene.topic.stream.ddl(sql, kind="alter_table")
    scene.topic.rows(100, 110)
    with pytest.raises(Fatal) as stopped:
        scene.publish()
    assert stopped.value.code == "MR-5204"
    _change(scene, on_change=OnChange.NEW_TOPICS)
    scene.publish()
    scene.rebuild()
    again = scene.content(is_again=True)
    assert _plain(again, *ALL) == _plain(scene.content(), *ALL)
    assert {name for name, _ in again} > {"public.shop.orders", "public.shop.orders.v2"}


def test_rebuild_begins_where_the_task_began(scene: Scene) -> None:
    """A task that began at a snapshot does not publish the changes before it."""
    scene.task = replace(scene.task, name="later")
    seq, offset = scene.topic.stream.seq, scene.topic.explain_again()
    scene.topic.rows(100, 110)
    scene.publish(Position(seq, offset, "", "id", snapshot="publish-1"))
    scene.rebuild()
    later, again = (
        {place: one for place, one in _plain(content, *ALL).items() if place[0].startswith("later")}
        for content in (scene.content(), scene.content(is_again=True))
    )
    assert again == later
    assert len(later) == 3


def test_task_that_never_ran_has_nothing_to_rebuild(scene: Scene) -> None:
    """There are no definitions."""
    scene.task = replace(scene.task, name="never")
    with pytest.raises(Fatal) as refusal:
        scene.rebuild()
    assert refusal.value.code == "MR-3107"
