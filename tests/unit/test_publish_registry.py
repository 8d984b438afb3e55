"""Publish tasks with schemas in a registry, on a model of Kafka: failures, replays and rebuilds."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from millrace.consumer.publish import executor
from millrace.drivers.kafka.partitions import Place
from millrace.errors import Fatal, Retryable
from millrace.schemas.documents import Brokers, OutputTopics, PublishTask, Registry, TopicAddress
from millrace.schemas.record.framing import unframe
from millrace.schemas.view.format_options import FormatName, FormatOptions
from tests.kit.apply.tables import integer, table, text
from tests.kit.memory_registry import MemoryRegistry, read_one
from tests.kit.publish.model import ModelBroker
from tests.kit.publish.scene import Scene, SetTopic, on_the_model, row

FORMATS = (FormatName.DEBEZIUM_AVRO, FormatName.AVRO)
SOURCE = TopicAddress(topic="shop", brokers=Brokers("b:1"), registry=Registry("http://r:1"))
WIDER = table("shop", "orders", integer("id"), text("name"), integer("amount"), text("note", 20))
TRANSACTIONS = "transactions-of-public"
Content = dict[Place, list[tuple[object, ...]]]


class FailingRegistry(MemoryRegistry):
    """Does not answer some requests."""

    def __init__(self, *silent: int) -> None:
        super().__init__()
        self.asked = 0
        self._silent = silent

    def register(self, subject: str, text: str) -> int:
        """As a client of a registry."""
        self.asked += 1
        if self.asked in self._silent:
            raise Retryable("MR-6020", "it did not answer")
        return super().register(subject, text)


@contextmanager
def published(name: FormatName, registry: MemoryRegistry) -> Iterator[Scene]:
    """A task with thirty rows of each of two tables, which has not run."""
    topic = SetTopic()
    topic.stream.fence()
    topic.rows(0, 30)
    task = PublishTask(
        name="public",
        source=SOURCE,
        topics=OutputTopics(partitions=2, slots=2),
        format=FormatOptions.of(name),
    )
    if name is FormatName.DEBEZIUM_AVRO:
        task = replace(task, format=replace(task.format, transaction_topic=TRANSACTIONS))
    with (
        on_the_model(topic, ModelBroker(Random(1)), task) as scene,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(executor, "RegistryClient", lambda _: registry)
        yield scene


def _content(scene: Scene, *, is_again: bool = False) -> Content:
    """Key, value and headers of all records but the owner's epoch."""
    content = scene.content(is_again=is_again)
    names = ("task", "seq", "part", "n")
    return {
        place: [
            (record.key, record.value, *(record.headers[name] for name in names))
            for record in records
        ]
        for place, records in content.items()
        if records
    }


@pytest.mark.parametrize("name", FORMATS)
def test_registry_that_does_not_answer_delays_and_reorders_nothing(name: FormatName) -> None:
    """The turn fails with a code before a record of the table is written, and the next one writes all."""
    with published(name, MemoryRegistry()) as scene:
        scene.publish()
        expected = _content(scene)
    registry = FailingRegistry(1, 3, 4, 7)
    with published(name, registry) as scene:
        for _ in range(4):
            with pytest.raises(Retryable, match="MR-6020"):
                scene.publish()
            scene.epoch += 1
        scene.publish()
        assert _content(scene) == expected
    of_transactions = {f"{TRANSACTIONS}-key", f"{TRANSACTIONS}-value"}
    assert set(registry.subjects) - of_transactions == {
        "public.shop.orders-value",
        "public.shop.orders-key",
        "public.shop.log-value",
    }


@pytest.mark.parametrize("name", FORMATS)
def test_rebuild_has_the_schemas_and_bytes_of_the_topics(name: FormatName) -> None:
    """The names in its schemas are those of the original topics, so the IDs and the frames are equal."""
    registry = MemoryRegistry()
    with published(name, registry) as scene:
        scene.publish()
        texts = dict(registry.texts)
        scene.rebuild()
        assert _content(scene, is_again=True) == _content(scene)
    assert registry.texts == texts
    assert len(texts) == (5 if name is FormatName.DEBEZIUM_AVRO else 3)


def test_format_in_avro_needs_a_registry() -> None:
    """A stored document without one, from another program, is refused before a record is written."""
    with published(FormatName.AVRO, MemoryRegistry()) as scene:
        scene.task = replace(scene.task, source=TopicAddress(topic="shop", brokers=Brokers("b:1")))
        with pytest.raises(Fatal, match="MR-4101"):
            scene.publish()
        assert _content(scene) == {}


def test_altered_table_has_a_second_schema_under_its_subject() -> None:
    """Each record is read with the schema of its own ID; the key's schema stays."""
    registry = MemoryRegistry()
    with published(FormatName.AVRO, registry) as scene:
        stream = scene.topic.stream
        stream.ddl("ALTER TABLE shop.orders ADD note VARCHAR(20)", kind="alter_table")
        stream.insert(WIDER, row(500, note="added"))
        stream.insert(WIDER, row(501, note=None))
        stream.commit()
        scene.publish()
        content = scene.content()
    values: list[Any] = [
        read_one(record.value, registry, logical=False)
        for (topic, _), records in content.items()
        if topic.endswith(".orders")
        for record in records
        if record.value
    ]
    afters = {value["after"]["id"]: value["after"] for value in values if value["after"]}
    assert (afters[500], afters[501]) == (row(500, note="added"), row(501, note=None))
    assert afters[20] == row(20)
    ids = {
        unframe(record.key)[0] for records in content.values() for record in records if record.key
    }
    assert (len(ids), len(registry.texts)) == (1, 4)
