"""The thread that commits for a turn fails: the turn ends with that error, and nothing that came later is written."""

from dataclasses import replace

import pytest

from millrace import faults
from millrace.consumer.publish import slot as slots
from millrace.consumer.publish import turn as turns
from millrace.consumer.publish.mark import Position
from millrace.consumer.publish.outputs import TaskOrder
from millrace.consumer.publish.slot import Slot
from millrace.consumer.records.pieces import Size
from millrace.consumer.task.publish_start import task_order
from millrace.deploy.servers import KafkaServer
from millrace.errors import Retryable
from millrace.schemas.documents import OutputTopics, PublishTask, TopicCompression
from millrace.schemas.gtid import Flavour
from millrace.schemas.view.format_options import FormatName, FormatOptions
from tests.kit.apply.tables import integer, table, text
from tests.kit.apply.topic import COMMIT_MS, RecordStream, TopicWriter
from tests.kit.publish import local
from tests.kit.publish.local import LocalPublisher, publish_task, published
from tests.kit.publish.rig import PATIENT
from tests.kit.waiting import eventually

pytestmark = pytest.mark.usefixtures("trusting")

ORDERS = table("shop", "orders", integer("id"), text("name"))
ROWS, AT_ONCE = 100, 20


@pytest.fixture
def writer(kafka: KafkaServer) -> TopicWriter:
    """A set topic with rows that take several Kafka transactions of the task."""
    stream = RecordStream(Flavour.MYSQL)
    stream.fence()
    for number in range(ROWS):
        stream.insert(ORDERS, {"id": number, "name": f"n{number}"})
        stream.commit()
    writer = TopicWriter(kafka.bootstrap, stream)
    writer.publish()
    return writer


def _patient(task: PublishTask, *, epoch: int) -> TaskOrder:
    """A busy broker is waited for: only the fault fails."""
    return replace(task_order(task, epoch=epoch), limits=PATIENT)


@pytest.mark.parametrize(
    ("point", "committed"),
    [(slots.BEFORE_COMMIT, 1), (slots.AFTER_COMMIT, 2), (slots.AFTER_VERIFY, 2)],
)
def test_failed_commit_ends_the_turn_and_what_follows(
    writer: TopicWriter, monkeypatch: pytest.MonkeyPatch, point: str, committed: int
) -> None:
    """The second Kafka transaction of rows fails. The next run writes what follows, each row once, and heartbeats."""
    monkeypatch.setattr(turns, "PIECE", Size(AT_ONCE, 1 << 20))
    monkeypatch.setattr(turns, "TRANSACTION", Size(AT_ONCE, 1 << 20))
    topics = OutputTopics(pattern="{task}-{table}", partitions=3, compression=TopicCompression.NONE)
    format_ = replace(FormatOptions.of(FormatName.JSON), heartbeat_ms=1)
    task = publish_task(writer, topics=topics, format=format_)
    monkeypatch.setattr(local, "task_order", _patient)
    publisher, passed, positions = LocalPublisher(), list[str](), list[Position]()
    commit_slot = Slot.commit

    def fail(name: str) -> None:
        passed.append(name)
        if (
            name == point and passed.count(point) == 5
        ):  # twice for marks of new topics, once for a heartbeat
            raise Retryable("MR-9002", name)

    def ids() -> list[int]:
        return sorted(record.key["id"] for record in published(task, [f"{task.name}-orders"]))

    def commit(slot: Slot, position: Position) -> None:
        positions.append(position)
        commit_slot(slot, position)

    monkeypatch.setattr(Slot, "commit", commit)
    with faults.watched(fail), pytest.raises(Retryable) as raised:
        publisher.run(task)
    assert raised.value.code == "MR-9002"
    assert passed.count(slots.AFTER_BEGIN) == 3
    wanted = list(range(positions[committed - 1].seq))  # a source transaction has one row
    eventually(lambda: ids() == wanted, what="what was committed is visible")
    publisher.run(task)
    assert ids() == list(range(ROWS))
    beats = published(task, [task.heartbeat_topic])
    assert beats[-1].seq == ROWS
    assert {beat.value["ts_ms"] - beat.seq for beat in beats} == {COMMIT_MS}
