"""A rebuild on a real broker: equal keys, values and headers (the model in tests/unit/test_rebuild.py has more)."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace

import pytest

from millrace.consumer.publish.rebuild import Rebuilt, rebuild
from millrace.consumer.task.publish_start import task_order
from millrace.consumer.topic.published import topics_of, verify_topics
from millrace.deploy.servers import KafkaServer
from millrace.drivers.kafka.partitions import (
    HeaderedRecord,
    PartitionsReader,
    Place,
    Topics,
    places_of,
)
from millrace.drivers.kafka.producer import WRITING
from millrace.schemas.documents import OutputTopics, PublishTask, TopicCompression
from millrace.schemas.documents.model import progress_topic_of
from millrace.schemas.gtid import Flavour
from millrace.schemas.view.view import Mask, MaskKind, TableRule, View
from tests.kit.apply.tables import integer, table, text
from tests.kit.apply.topic import RecordStream, TopicWriter
from tests.kit.publish.local import LocalPublisher, publish_task

pytestmark = pytest.mark.usefixtures("trusting")

ORDERS = table("shop", "orders", integer("id"), text("name"), integer("amount"))
LOG = table("shop", "log", text("line"), key=())
SUFFIX = ".again"
Content = dict[Place, list[tuple[bytes | None, bytes | None, Mapping[str, bytes]]]]


@pytest.fixture
def writer(kafka: KafkaServer) -> TopicWriter:
    """A set topic with inserts of two tables."""
    stream = RecordStream(Flavour.MYSQL)
    stream.fence()
    writer = TopicWriter(kafka.bootstrap, stream)
    _rows(writer, 0, 30)
    return writer


def _row(number: int, **changed: object) -> dict[str, object]:
    return {"id": number, "name": f"n{number}", "amount": number % 10, **changed}


def _rows(writer: TopicWriter, first: int, end: int) -> None:
    """Inserts; a change of a key, a row that leaves a condition, a delete."""
    stream = writer.stream
    for number in range(first, end):
        stream.insert(ORDERS, _row(number))
        stream.insert(LOG, {"line": f"line {number}"})
        stream.commit()
    stream.update(ORDERS, _row(first), _row(first + 1000, name="moved"))
    stream.update(ORDERS, _row(first + 1), _row(first + 1, amount=9))
    stream.delete(ORDERS, _row(first + 2))
    stream.commit()
    writer.publish()


def _task(writer: TopicWriter) -> PublishTask:
    rule = TableRule(
        "shop.orders", where="(`amount` < 8)", masks=(("name", Mask(MaskKind.REDACT)),)
    )
    topics = OutputTopics(partitions=2, compression=TopicCompression.NONE)
    return publish_task(writer, topics=topics, view=View((rule, TableRule("shop.log"))))


def _changed(task: PublishTask) -> PublishTask:
    """Other columns, more partitions: what rows are from then on."""
    rules = (TableRule("shop.orders", drop=("amount",)), TableRule("shop.log"))
    return replace(task, view=View(rules), topics=replace(task.topics, partitions=3))


def _rebuild(task: PublishTask) -> Rebuilt:
    return rebuild(task, task_order(task, epoch=0), suffix=SUFFIX)


def _content(task: PublishTask, suffix: str = "") -> Content:
    """Key, value and headers of all records, by the topic's name without the suffix and the partition."""
    names = [f"{task.name}.shop.{name}{suffix}" for name in ("orders", "log")]
    client = Topics(task.source.brokers, errors=WRITING)
    shapes = client.shapes(names)
    places = places_of(shapes)
    ends = client.ends(places)
    content: Content = {(name.removesuffix(suffix), part): [] for name, part in places}

    def note(place: Place, record: HeaderedRecord) -> None:
        own = content[place[0].removesuffix(suffix), place[1]]
        own.append((record.key, record.value, record.headers))

    with closing(PartitionsReader(task.source.brokers, errors=WRITING)) as reader:
        ranges = {place: (end.low, end.stable) for place, end in ends.items()}
        reader.visit(ranges, note, within_s=60.0)
    return content


def test_rebuild_writes_equal_keys_values_and_headers(writer: TopicWriter) -> None:
    """Under two definitions; a rebuild that is repeated adds only what has come since."""
    task, publisher = _task(writer), LocalPublisher()
    publisher.run(task)
    _rows(writer, 100, 130)
    publisher.epoch -= 1  # the same owner, so that also the header epoch is equal
    publisher.run(_changed(task))
    rebuilt = _rebuild(_changed(task))
    original = _content(task)
    assert _content(task, SUFFIX) == original
    assert len(original) == 6
    assert sum(rebuilt.records.values()) == sum(map(len, original.values())) > 120
    _rows(writer, 200, 210)
    publisher.epoch -= 1
    publisher.run(_changed(task))
    assert _rebuild(_changed(task)).seqs[1] > rebuilt.seqs[1]
    assert _content(task, SUFFIX) == _content(task)
    progress = topics_of(task.source.brokers, progress_topic_of(task.name + SUFFIX))
    names = {topic for topic, _ in progress}
    results = verify_topics(task.source.brokers, names, task=task.name, last_n=progress)
    assert {name: result.violation_count for name, result in results.items()} == dict.fromkeys(
        names, 0
    )
