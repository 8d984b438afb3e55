"""A rebuild on a model of Kafka: equal keys, values and headers for the range that the set topic has."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from millrace.consumer.publish.definitions import as_continued
from millrace.consumer.publish.mark import Position
from millrace.consumer.topic.published import history_of
from millrace.drivers.kafka.partitions import Place
from millrace.errors import Fatal
from millrace.schemas.documents import Brokers, OnChange, OutputTopics, PublishTask, TopicAddress
from millrace.schemas.view.format_options import FormatName, FormatOptions
from millrace.schemas.view.view import Mask, MaskKind, TableRule, View
from tests.kit.publish.model import ModelBroker
from tests.kit.publish.scene import Content, Scene, SetTopic, on_the_model

MASKED = TableRule("shop.orders", where="(`amount` < 8)", masks=(("name", Mask(MaskKind.REDACT)),))
VIEW = View((MASKED, TableRule("shop.log")))
OTHER_VIEW = View((TableRule("shop.orders", drop=("amount",)), TableRule("shop.log")))


@pytest.fixture
def scene() -> Iterator[Scene]:
    """A task that has published thirty rows of each table."""
    topic = SetTopic()
    topic.stream.fence()
    topic.rows(0, 30)
    task = PublishTask(
        name="public",
        source=TopicAddress(topic="shop", brokers=Brokers("b:1")),
        view=VIEW,
        topics=OutputTopics(partitions=2, slots=2),
        format=FormatOptions.of(FormatName.DEBEZIUM_JSON),
    )
    with on_the_model(topic, ModelBroker(Random(1)), task) as scene:
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


def test_history_of_a_task_names_its_topics(scene: Scene) -> None:
    """A check before the next start reads it, and none before the first."""
    assert history_of(scene.broker, "_never.progress") == ()
    _change(scene, on_change=OnChange.NEW_TOPICS)
    scene.publish()
    history = history_of(scene.broker, scene.task.progress_topic)
    assert len(history) == 2
    topics = as_continued(scene.task, history, {}).topics
    assert topics.name_of("public", "shop", "log") == "public.shop.log.v2"
