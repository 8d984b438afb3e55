"""A task of another name continues topics that can't be continued, as docs/views.md says, on a model of Kafka."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

import pytest

from millrace.consumer.publish.mark import Mark, Position
from millrace.drivers.kafka.partitions import HeaderedRecord, Place
from millrace.errors import Fatal
from millrace.schemas.documents import Brokers, OutputTopics, PublishTask, TopicAddress
from millrace.schemas.gtid import parse_any_gtid_set
from millrace.schemas.view.format_options import FormatName, FormatOptions
from tests.kit.publish.model import Entry, ModelBroker
from tests.kit.publish.scene import Scene, SetTopic, on_the_model

PLACE: Place = ("public.shop.orders", 0)
Row = tuple[bytes, bytes, bytes | None, bytes | None]
BEGIN = Position(0, 0, "", "id")


@pytest.fixture
def scene() -> Iterator[Scene]:
    """A task that has published thirty rows of each table in two slots."""
    topic = SetTopic()
    topic.stream.fence()
    topic.rows(0, 30)
    task = PublishTask(
        name="public",
        source=TopicAddress(topic="shop", brokers=Brokers("b:1")),
        topics=OutputTopics(partitions=2, slots=2),
        format=FormatOptions.of(FormatName.DEBEZIUM_JSON),
    )
    with on_the_model(topic, ModelBroker(Random(1)), task) as scene:
        scene.publish()
        yield scene


def _foreign(scene: Scene) -> None:
    scene.broker.logs[PLACE].append(Entry(HeaderedRecord(0, b"k", b"v", {})))


def _emptied(scene: Scene) -> None:
    """The last owner crashed before it stored the ends that the last records have."""
    log = scene.broker.logs[PLACE]
    log += [Entry(None)] * 3
    scene.broker.lows[PLACE] = len(log)


def _lost(scene: Scene) -> None:
    del scene.broker.logs[PLACE][-4:]


def _deleted(scene: Scene) -> None:
    scene.broker.topics.pop(PLACE[0])
    scene.broker.logs = {
        place: log for place, log in scene.broker.logs.items() if place[0] != PLACE[0]
    }


@pytest.mark.parametrize(
    ("code", "damage", "is_first"),
    [
        ("MR-3102", _foreign, False),
        ("MR-3104", _emptied, False),
        ("MR-3103", _deleted, True),
        ("MR-3105", _lost, True),
    ],
)
def test_another_task_continues_what_one_can_not(
    scene: Scene, code: str, damage: Callable[[Scene], None], is_first: bool
) -> None:
    """A subscriber that has read the old partitions, and leaves out what it has, misses and repeats nothing."""
    read = {place: _rows(scene, place) for place in scene.content()}
    damage(scene)
    scene.topic.rows(100, 130)
    with pytest.raises(Fatal) as stopped:
        scene.publish()
    assert stopped.value.code == code
    delivered = min(_positions(scene), key=lambda position: position.next_offset)
    start = BEGIN if is_first else _after(delivered.gtid_set)
    scene.task = replace(scene.task, name="next")
    scene.publish(start)
    scene.task = replace(scene.task, name="whole")
    scene.publish(BEGIN)
    assert read
    for (topic, partition), rows in read.items():
        table = topic.removeprefix("public.")
        later = _rows(scene, (f"next.{table}", partition))
        last = _order(rows[-1]) if rows else (0, 0)
        received = [*rows, *(row for row in later if _order(row) > last)]
        assert received == _rows(scene, (f"whole.{table}", partition)), (topic, partition)


def _after(gtid_set: str) -> Position:
    start = parse_any_gtid_set(gtid_set)
    return Position(-1, -1, str(start), "id", flavour=str(start.flavour), past_start=False)


def _positions(scene: Scene) -> list[Position]:
    marks = []
    for slot in range(2):
        records = [entry.record for entry in scene.broker.logs[scene.task.progress_topic, slot]]
        stored = {one.key or b"": one.value for one in records if one is not None}
        marks.append(Mark.of([(key, value) for key, value in stored.items() if value is not None]))
    return [mark.position for mark in marks if mark.position is not None]


def _rows(scene: Scene, place: Place) -> list[Row]:
    own = b'"name":"%s"' % place[0].split(".")[0].encode()  # the source's name is the task's
    return [
        (
            record.headers["seq"],
            record.headers["part"],
            record.key,
            record.value and record.value.replace(own, b""),
        )
        for record in scene.content().get(place, ())
        if "seq" in record.headers
    ]


def _order(row: Row) -> tuple[int, int]:
    return int(row[0]), int(row[1])
