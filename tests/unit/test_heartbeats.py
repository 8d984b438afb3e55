"""Heartbeats of a publish task, on a model of Kafka: what they promise, in replays and after failures, too."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest

from millrace import faults
from millrace.consumer.format.heartbeats import make_heartbeat_format
from millrace.consumer.publish import slot as slots
from millrace.drivers.kafka.partitions import HeaderedRecord, Place
from millrace.errors import Retryable
from millrace.schemas.documents import Brokers, OutputTopics, PublishTask, TopicAddress
from millrace.schemas.view.format_options import HEARTBEAT_MS_MAX, FormatName, FormatOptions
from millrace.schemas.view.view import TableRule, View
from tests.kit.apply.topic import COMMIT_MS
from tests.kit.memory_registry import MemoryRegistry, read_one
from tests.kit.publish.model import ModelBroker
from tests.kit.publish.scene import ORDERS, Scene, SetTopic, on_the_model

TOPIC = "__debezium-heartbeat.public"
SLOTS = 2
POINTS = [
    slots.BEFORE_BEGIN,
    slots.AFTER_BEGIN,
    slots.MID_WRITE,
    slots.BEFORE_COMMIT,
    slots.AFTER_COMMIT,
    slots.AFTER_VERIFY,
    slots.BEFORE_MARK,
    slots.AFTER_MARK,
]


@pytest.fixture
def scene() -> Iterator[Scene]:
    """A task in two slots with a heartbeat at each commit; the view has one of the two tables."""
    topic = SetTopic()
    topic.stream.fence()
    topic.rows(0, 30)
    task = PublishTask(
        name="public",
        source=TopicAddress(topic="shop", brokers=Brokers("b:1")),
        view=View((TableRule("shop.log"),)),
        topics=OutputTopics(slots=SLOTS),
        format=FormatOptions(FormatName.DEBEZIUM_JSON, heartbeat_ms=1),
    )
    with on_the_model(topic, ModelBroker(Random(1)), task) as scene:
        yield scene


def _beats(scene: Scene) -> dict[Place, list[tuple[int, int, int, int]]]:
    """Seq, part, n and time of each heartbeat, by partition."""
    return {
        place: [_beat(record) for record in records]
        for place, records in scene.content().items()
        if place[0] == TOPIC and records
    }


def _beat(record: HeaderedRecord) -> tuple[int, int, int, int]:
    assert record.headers["task"] == b"public"
    assert json.loads(record.key or b"") == {"serverName": "public"}
    seq, part, n = (int(record.headers[name]) for name in ("seq", "part", "n"))
    value = json.loads(record.value or b"")
    assert value.keys() == {"ts_ms"}
    return seq, part, n, value["ts_ms"]


def _assert_exact(scene: Scene) -> None:
    """One partition for each slot; no gap, no repetition, and the time is the commit of the seq."""
    beats = _beats(scene)
    assert beats.keys() == {(TOPIC, slot) for slot in range(SLOTS)}
    for own in beats.values():
        assert [n for _, _, n, _ in own] == list(range(1, len(own) + 1))
        orders = [(seq, part) for seq, part, _, _ in own]
        assert orders == sorted(set(orders))
        assert all(COMMIT_MS <= time <= COMMIT_MS + seq for seq, _, _, time in own)


def test_idle_task_and_rows_outside_the_view_have_heartbeats(scene: Scene) -> None:
    """The seq grows with rows that the view leaves out, and the part while nothing comes."""
    scene.publish()
    _assert_exact(scene)
    first = {place: own[-1] for place, own in _beats(scene).items()}
    scene.publish()
    _assert_exact(scene)
    for place, own in _beats(scene).items():
        assert own[-1][:2] == (first[place][0], first[place][1] + 1)
    stream = scene.topic.stream
    stream.insert(ORDERS, {"id": 9000, "name": "x", "amount": 1})
    stream.commit()
    scene.publish()
    _assert_exact(scene)
    for place, own in _beats(scene).items():  # on a slow machine, another one may follow
        assert (first[place][0] + 1, 0) in [beat[:2] for beat in own]


def test_heartbeats_come_no_faster_than_their_interval(scene: Scene) -> None:
    """Only the first commit of a run has one; here each statement is a commit."""
    scene.task = replace(
        scene.task, format=replace(scene.task.format, heartbeat_ms=HEARTBEAT_MS_MAX)
    )
    for _ in range(3):
        scene.topic.stream.ddl("CREATE TABLE other.t (id INT)", kind="create_table")
    scene.publish()
    assert [len(own) for own in _beats(scene).values()] == [1] * SLOTS
    scene.publish()
    assert [len(own) for own in _beats(scene).values()] == [2] * SLOTS
    _assert_exact(scene)


@pytest.mark.parametrize("point", POINTS)
def test_killed_owner_repeats_and_loses_no_heartbeat(scene: Scene, point: str) -> None:
    """Nor a row: the next owner ends at the same place, with gapless numbers."""
    for passage in (1, 2, 4):
        scene.topic.rows(passage * 100, passage * 100 + 20)
        passed: list[str] = []

        def fail(name: str, passed: list[str] = passed, passage: int = passage) -> None:
            passed.append(name)
            if name == point and passed.count(point) == passage:
                raise Retryable("MR-9002", name)

        with faults.watched(fail), suppress(Retryable):
            scene.publish()
        scene.epoch += 1
    scene.publish()
    _assert_exact(scene)
    lines = [
        record for place, own in scene.content().items() if "log" in place[0] for record in own
    ]
    assert [int(record.headers["n"]) for record in lines] == list(range(1, 91))


def test_rebuild_has_no_heartbeats(scene: Scene) -> None:
    """No record says when they were written."""
    scene.publish()
    scene.rebuild()
    assert not [place for place in scene.content(is_again=True) if place[0].startswith(TOPIC)]


@pytest.mark.parametrize("name", FormatName)
def test_heartbeat_has_debeziums_layout_in_each_format(name: FormatName) -> None:
    """Plain JSON, JSON with Connect's schemas, or Avro with the same schemas."""
    registry, options = MemoryRegistry(), FormatOptions.of(name)
    if name is FormatName.DEBEZIUM_JSON:
        options = replace(options, schemas=True)
    format_ = make_heartbeat_format(options, TOPIC, registry.register)
    key, value = format_.record("public", 1_700_000_000_123)
    wanted = {"serverName": "public"}, {"ts_ms": 1_700_000_000_123}
    if name.is_avro:
        read = [read_one(octets, registry, logical=True) for octets in (key, value)]
        assert tuple(read) == wanted
        return
    plain = json.loads(key), json.loads(value)
    if options.schemas:
        assert plain[1]["schema"]["name"] == "io.debezium.connector.common.Heartbeat"
        plain = plain[0]["payload"], plain[1]["payload"]
    assert plain == wanted
