"""The publisher on a real broker: order, resumption, fencing, limits. The verifier and a plain reader check it."""

import re
import time
from contextlib import closing
from dataclasses import replace

import confluent_kafka
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from millrace.consumer.records.pieces import Size
from millrace.consumer.records.stream import TopicStream
from millrace.deploy.servers import KafkaServer
from millrace.drivers.kafka import bulk, reader, wire
from millrace.drivers.kafka.names import transactional_id
from millrace.drivers.kafka.reader import TopicReader
from millrace.errors import Fatal, Fenced, Retryable
from millrace.producer.publish import opening
from millrace.schemas.documents import Brokers, TopicCompression
from millrace.schemas.record.control import RecordKind
from millrace.schemas.record.framing import peek_kind
from millrace.schemas.record.row_end import read_row_end
from tests.kit.kafka_topics import ANSWER_S, make_topic
from tests.kit.publisher.rig import Rig
from tests.kit.waiting import eventually

pytestmark = pytest.mark.usefixtures("trusting")

TWO_CHUNKS_ROWS = 8_500


@pytest.fixture
def rig(kafka: KafkaServer, request: pytest.FixtureRequest) -> Rig:
    """A topic named after the test."""
    name = re.sub(r"[^a-z0-9_]", "-", request.node.name)[:120]
    rig = Rig(kafka.bootstrap, f"pub-{name}-{time.time_ns()}")
    # these tests allow for a slow machine
    rig.limits = replace(rig.limits, publish_timeout_s=60.0, stable_timeout_s=60.0)
    return rig


@pytest.mark.guarantee("complete")
def test_batches_of_two_owners_appear_in_order_exactly_once(rig: Rig) -> None:
    """Batches and a change of owner cut the transactions; the second owner continues where the first ended."""
    with rig.running(7) as publisher:
        stream = rig.stream(publisher)
        for count in (1, 4, 100, 2000):
            publisher.publish(stream.next_batch(count))
        progress = publisher.progress
    with rig.running(9) as publisher:
        assert publisher.progress == progress
        publisher.publish(rig.stream(publisher).next_batch(50))
    rig.assert_whole(2155)
    assert [epoch for epoch, _ in rig.verdict().epochs] == [7, 9]


def test_open_source_transaction_is_read_back_or_loss_reported(rig: Rig) -> None:
    """The read-back spans Kafka transactions and owners, without earlier rows. If retention removed a part: MR-3019."""
    with rig.running(7) as publisher:
        stream = rig.stream(publisher, transaction_rows=1000)
        for count in (1000, 300, 140):
            publisher.publish(stream.next_batch(count))
    with rig.running(8) as publisher:
        publisher.publish(rig.stream(publisher, transaction_rows=1000).next_batch(200))
        end = publisher.hint.end_offset
    with rig.running(9) as publisher, closing(publisher.published_part()) as part:
        for _ in range(2):
            suffixes = [read_row_end(value) for value in part.units()]
            assert [suffix.total_order for suffix in suffixes] == list(range(1, 641))
            assert {suffix.seq - suffix.total_order for suffix in suffixes} == {1000}
    rig.remove_before(end - 100)
    with rig.running(10) as publisher, pytest.raises(Fatal) as lost:
        publisher.published_part()
    assert lost.value.code == "MR-3019"


def test_idle_topic_gets_a_resolved_record_after_the_interval(rig: Rig) -> None:
    """One resolved record per interval, none before it has passed."""
    rig.limits = replace(rig.limits, resolved_interval_s=0.2)
    with rig.running() as publisher:

        def has_three() -> bool:
            publisher.idle()
            return rig.verdict().counts.resolved >= 3

        eventually(has_three, what="three resolved records")


@pytest.mark.parametrize("compression", TopicCompression)
def test_batches_of_each_compression_are_read_back(
    rig: Rig, kafka: KafkaServer, compression: TopicCompression
) -> None:
    """The audit, the verifier and the reader of apply tasks decompress them; the broker keeps the batches as sent."""
    rig.compression = compression
    with rig.running() as publisher:
        publisher.publish(rig.stream(publisher).next_batch(500))
    rig.assert_whole(500)
    stream = TopicStream(Brokers(rig.bootstrap), rig.topic)
    stream.seek(0)
    kinds: list[RecordKind] = []
    while RecordKind.RESOLVED not in kinds:
        taken = stream.take(Size(1000, 1 << 24), wait_s=ANSWER_S)
        assert taken is not None
        kinds += [peek_kind(taken.values.value(at)) for at in range(len(taken.offsets))]
    stream.close()
    assert kinds.count(RecordKind.ROW) == 500
    log = kafka.folder / "data" / f"{rig.topic}-0" / f"{0:020}.log"
    assert list(TopicCompression).index(compression) in batch_codecs(log.read_bytes())


def batch_codecs(log: bytes) -> set[int]:
    """The codecs of the batches in a log: Kafka numbers them in the order of `TopicCompression`."""
    codecs, at = set[int](), 0
    while at < len(log):
        # offset 8, size of the rest 4, leader epoch 4, magic 1, CRC 4, attributes 2: the codec is in the lowest bits
        codecs.add(int.from_bytes(log[at + 21 : at + 23], "big") & 7)
        at += 12 + int.from_bytes(log[at + 8 : at + 12], "big")
    return codecs


@pytest.mark.parametrize("door", ["bulk", "binding"])
def test_large_batch_arrives_byte_for_byte(
    rig: Rig, door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks, with and without keys, through librdkafka's bulk call and through the Python binding."""
    if door == "binding":
        monkeypatch.setattr(bulk, "TESTED", frozenset())
    with rig.running() as publisher:
        stream = rig.stream(publisher, transaction_rows=500)
        assert bool(publisher.slow_path) == (door == "binding")
        batch = stream.next_batch(TWO_CHUNKS_ROWS, filler="x" * 300)
        publisher.publish(batch)
    octets = batch.buffer.tobytes()
    reader = TopicReader(Brokers(rig.bootstrap), rig.topic)
    ends = reader.ends()
    found = [
        (record.key, record.value)
        for chunk in reader.chunks(0, ends.stable)
        for record in chunk
        if peek_kind(record.value) is RecordKind.ROW
    ]
    reader.close()
    slices = batch.bounds.tolist()
    expected = [(octets[a:b], octets[c:d]) for a, b, c, d in slices if a >= 0]
    assert len(expected) == TWO_CHUNKS_ROWS
    assert found == expected


def test_slices_outside_the_buffer_are_refused(rig: Rig) -> None:
    """Invalid bounds never become pointers: Fatal before any byte is read."""
    publisher = rig.open()
    batch = rig.stream(publisher).next_batch(3)
    bounds = batch.bounds.copy()
    bounds[-1, 3] += 1
    with pytest.raises(Fatal) as raised:
        publisher.publish(replace(batch, bounds=bounds))
    assert raised.value.code == "MR-9001"


def test_restarted_stale_owner_fences_its_successor_only_once(rig: Rig) -> None:
    """The stale owner finds the greater epoch and ends; the successor is fenced once, restarts and continues."""
    successor = rig.open(8)
    with pytest.raises(Fenced) as raised:
        rig.open(7)
    assert raised.value.code == "MR-3010"
    with pytest.raises(Fenced):
        successor.publish(rig.stream(successor).next_batch(5))
    with rig.running(8) as successor:
        successor.publish(rig.stream(successor).next_batch(5))
    rig.assert_whole(5)


def test_row_over_the_size_limit_is_named_and_kept(rig: Rig) -> None:
    """Fatal with table, GTID and setting; once the topic accepts the size, all rows appear in order."""
    make_topic(rig.admin, rig.topic, config={"max.message.bytes": "600000"})
    publisher = rig.open()
    stream = rig.stream(publisher)
    publisher.publish(stream.next_batch(4))
    with pytest.raises(Fatal) as raised:
        publisher.publish(stream.next_batch(2, filler="y" * 700_000))
    error = raised.value
    assert error.code == "MR-3004"
    assert error.context["table"] == "shop.orders"
    assert error.context["gtid"].endswith(":1002")
    assert error.context["limit_bytes"] == "600000"
    assert "max.message.bytes" in error.fix
    _limit_records(rig.admin, rig.topic, 2000000)
    with rig.running(9) as publisher:
        assert publisher.progress.seq == 4
        publisher.publish(rig.stream(publisher).next_batch(5, filler="y" * 700_000))
    rig.assert_whole(9)


def test_lowered_size_limit_is_detected_by_the_brokers_refusal(rig: Rig) -> None:
    """The client's copy of the limit is outdated; the broker refuses, and nothing of the batch is visible."""
    publisher = rig.open()
    stream = rig.stream(publisher)
    publisher.publish(stream.next_batch(3))
    _limit_records(rig.admin, rig.topic, 600000)
    with pytest.raises(Fatal) as raised:
        publisher.publish(stream.next_batch(2, filler=_incompressible(900_000)))
    assert raised.value.code == "MR-3004"
    assert raised.value.context["table"] == "shop.orders"
    rig.assert_whole(3)


def test_foreign_open_transaction_stops_the_start(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would hide all later records from readers."""
    monkeypatch.setattr(wire, "ANSWER_TIMEOUT_S", ANSWER_S)
    patient = rig.limits
    with rig.running(7) as publisher:
        publisher.publish(rig.stream(publisher).next_batch(3))
    rig.limits = replace(patient, stable_timeout_s=1.0)
    with rig.foreign_transaction(), pytest.raises(Fatal) as raised:
        rig.open(8)
    assert raised.value.code == "MR-3013"
    assert raised.value.context["transactional_id"] == f"foreign-{rig.topic}"
    rig.limits = patient
    with rig.running(8) as publisher:
        assert publisher.progress.seq == 3


def test_own_unfinished_transaction_is_aborted_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A predecessor's open transaction does not count as foreign. The test's writer gets the predecessor's name."""
    with rig.running(7) as publisher:
        publisher.publish(rig.stream(publisher).next_batch(3))
    rig.limits = replace(rig.limits, stable_timeout_s=0.3)
    own_id = transactional_id(rig.topic)
    monkeypatch.setattr(opening, "find_open_writer", lambda *_, **__: own_id)
    with rig.foreign_transaction(), pytest.raises(Retryable, match="lost the end marker") as raised:
        rig.open(8)
    assert raised.value.code == "MR-3001"


def test_own_marker_that_is_late_is_tried_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker without CPU time ends a transaction long after it answered. The test's writer gets our own name."""
    rig.limits = replace(rig.limits, resolved_interval_s=1000.0, audit_timeout_s=1.0)
    own_id = transactional_id(rig.topic)
    monkeypatch.setattr(opening, "find_open_writer", lambda *_, **__: own_id)
    publisher = rig.open(7)
    with rig.foreign_transaction():
        publisher.publish(rig.stream(publisher).next_batch(3))
        with pytest.raises(Retryable) as raised:
            eventually(publisher.idle, what="the error")
        assert raised.value.code == "MR-3002"
        with pytest.raises(Retryable):
            publisher.close()


def test_foreign_transaction_opened_at_runtime_blocks_the_task(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later commits stay hidden; the error comes in bounded time and names the writer, and no row is lost."""
    monkeypatch.setattr(wire, "ANSWER_TIMEOUT_S", ANSWER_S)
    patient = rig.limits
    # when idle, it sends nothing
    rig.limits = replace(patient, resolved_interval_s=1000.0, audit_timeout_s=1.0)
    publisher = rig.open(7)
    with rig.foreign_transaction():
        publisher.publish(rig.stream(publisher).next_batch(3))
        with pytest.raises(Fatal) as raised:
            eventually(publisher.idle, what="the error")
        assert raised.value.code == "MR-3013"
        assert raised.value.context["transactional_id"] == f"foreign-{rig.topic}"
        assert "kafka-transactions.sh" in raised.value.fix
        with pytest.raises(Fatal):
            publisher.close()
    rig.limits = patient
    with rig.running(8) as publisher:
        assert publisher.progress.seq == 3
        publisher.publish(rig.stream(publisher).next_batch(3))
    rig.assert_whole(6)


@pytest.mark.guarantee("provable")
def test_foreign_record_written_at_runtime_blocks_the_task(rig: Rig) -> None:
    """The audit finds an unexpected end of the topic."""
    publisher = rig.open()
    stream = rig.stream(publisher)
    publisher.publish(stream.next_batch(3))
    publisher.drain()  # up to here the end is as expected
    foreign = confluent_kafka.Producer({"bootstrap.servers": rig.bootstrap})
    foreign.produce(rig.topic, b"hello", None, 0)
    assert foreign.flush(60) == 0
    with pytest.raises(Fatal) as raised, closing(publisher):
        publisher.publish(stream.next_batch(3))  # the audit may be faster than the publish
    assert raised.value.code == "MR-3014"


@pytest.mark.guarantee("resumed")
def test_publisher_resumes_emptied_topic_only_with_matching_status(rig: Rig) -> None:
    """Rule 6 on a real partition whose records were deleted."""
    with rig.running() as publisher:
        publisher.publish(rig.stream(publisher).next_batch(3))
        hint = publisher.hint
    rig.remove_before(hint.end_offset)
    for wrong in (None, replace(hint, end_offset=hint.end_offset - 1)):
        with pytest.raises(Fatal) as raised:
            rig.open(8, hint=wrong)
        assert raised.value.code == "MR-3017"
    publisher = rig.open(8, hint=hint)
    assert publisher.progress == hint.progress
    publisher.close()


@pytest.mark.parametrize(
    ("partitions", "config"),
    [(2, {}), (1, {"cleanup.policy": "compact"}), (1, {"max.message.bytes": "1000"})],
)
def test_unsuitable_topic_is_refused(rig: Rig, partitions: int, config: dict[str, str]) -> None:
    """The check precedes any write."""
    make_topic(rig.admin, rig.topic, partition_count=partitions, config=config)
    with pytest.raises(Fatal) as raised:
        rig.open()
    assert raised.value.code == "MR-3009"


def test_unreachable_broker_is_retryable_in_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """MR-3001 within the timeouts instead of a hang."""
    monkeypatch.setattr(reader, "ASK_TIMEOUT_S", 2.0)
    nowhere = Rig("127.0.0.1:1", "nowhere")
    began = time.monotonic()
    with pytest.raises(Retryable) as raised:
        nowhere.open()
    assert raised.value.code == "MR-3001"
    assert time.monotonic() - began < 60


def _limit_records(admin: AdminClient, topic: str, limit_bytes: int) -> None:
    entry = ConfigEntry(
        "max.message.bytes",
        str(limit_bytes),
        incremental_operation=AlterConfigOpType.SET,
    )
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(60)


def _incompressible(size: int) -> str:
    """ASCII text that lz4 cannot shrink by half."""
    import hashlib

    pieces = (hashlib.sha512(str(number).encode()).hexdigest() for number in range(size // 128 + 1))
    return "".join(pieces)[:size]
