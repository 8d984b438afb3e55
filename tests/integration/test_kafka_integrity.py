"""Every reader of a topic refuses bytes that changed on the broker, and an end that is not the topic's.

The segment file of a running broker is changed: it sends what the file has, as it would after a fault of its disk.
"""

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from millrace.client import Subscriber
from millrace.consumer.records.pieces import Size
from millrace.consumer.records.stream import TopicStream
from millrace.deploy.servers import KafkaServer
from millrace.drivers.kafka.producer import WRITING
from millrace.drivers.kafka.reader import TopicReader
from millrace.errors import MillraceError, Retryable
from millrace.registry.catalog import Entry
from millrace.registry.kafka import KafkaSchemaStore
from millrace.schemas.documents import Brokers
from tests.kit.apply.tables import integer, table, text
from tests.kit.apply.topic import RecordStream, TopicWriter
from tests.kit.kafka_topics import make_topic

GOOD, DAMAGED, AFTER = b"a good value", b"a value of 100 EUR", b"a value after it"
WAIT_S = 30.0
_topics = itertools.count(1)


def flip_bit(kafka: KafkaServer, topic: str, octets: bytes) -> None:
    """Change one bit of the last of these bytes in the topic's log."""
    (segment,) = (kafka.folder / "data" / f"{topic}-0").glob("*.log")
    content = segment.read_bytes()
    assert content.count(octets) == 1
    at = content.index(octets) + len(octets) - 1
    with segment.open("r+b") as file:
        file.seek(at)
        file.write(bytes([content[at] ^ 1]))


@pytest.fixture(scope="module")
def damaged(kafka: KafkaServer) -> str:
    """A topic of three batches, the second of which is damaged."""
    topic = f"damaged-{next(_topics)}"
    make_topic(AdminClient({"bootstrap.servers": kafka.bootstrap}), topic)
    for value in (GOOD, DAMAGED, AFTER):
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        producer.produce(topic, value, partition=0)
        assert producer.flush(WAIT_S) == 0
    flip_bit(kafka, topic, DAMAGED)
    return topic


def streamed(brokers: Brokers, topic: str) -> Iterator[bytes]:
    """As apply reads."""
    with closing(TopicStream(brokers, topic)) as stream:
        stream.seek(0)
        while True:
            taken = stream.take(Size(1, 1 << 20), wait_s=WAIT_S)
            assert taken is not None
            yield from (taken.values.value(number) for number in range(len(taken.values)))


def in_chunks(brokers: Brokers, topic: str) -> Iterator[bytes]:
    """As the commands read."""
    with closing(TopicReader(brokers, topic)) as reader:
        for chunk in reader.chunks(0, 3):
            yield from (record.value for record in chunk)


def followed(brokers: Brokers, topic: str) -> Iterator[bytes]:
    """As a subscriber reads."""
    with closing(TopicReader(brokers, topic)) as reader:
        for chunk in reader.follow(0, lambda: False):
            yield from (record.value for record in chunk)


def as_range(brokers: Brokers, topic: str) -> Iterator[bytes]:
    """As a publisher reads its tail."""
    with closing(TopicReader(brokers, topic, errors=WRITING)) as partition:
        yield from (record.value for record in partition.read(0, 3))


def one_by_one(brokers: Brokers, topic: str) -> Iterator[bytes]:
    """As the audit reads; it asks again after an error, and must not pass the damage."""
    with closing(TopicReader(brokers, topic, errors=WRITING)) as partition:
        for offset in range(3):
            try:
                record = partition.next_record(offset, timeout_s=WAIT_S)
            except MillraceError:
                record = partition.next_record(offset, timeout_s=WAIT_S)
            assert record is not None
            yield record.value


@pytest.mark.guarantee("robust")
@pytest.mark.parametrize(
    ("read", "code"),
    [
        (streamed, "MR-5052"),
        (in_chunks, "MR-3501"),
        (followed, "MR-3501"),
        (as_range, "MR-3002"),
        (one_by_one, "MR-3002"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_reader_delivers_no_damaged_batch(
    kafka: KafkaServer, damaged: str, read: Callable[..., Iterator[bytes]], code: str
) -> None:
    """It ends with an error that says so, after the values before the damage at most."""
    values: list[bytes] = []
    records = itertools.islice(read(Brokers(kafka.bootstrap), damaged), 3)
    with pytest.raises(Retryable, match="CRC32C") as refused:
        values.extend(records)
    assert refused.value.code == code
    assert values in ([], [GOOD])


def test_subscriber_sees_no_other_amount(kafka: KafkaServer) -> None:
    """A row whose bytes changed on the broker is an error of the public reader."""
    stream = RecordStream()
    account = table("d", "accounts", integer("id"), text("amount"))
    stream.insert(account, {"id": 1, "amount": "one hundred EUR"})
    stream.commit()
    writer = TopicWriter(kafka.bootstrap, stream)
    writer.publish()
    flip_bit(kafka, writer.topic, b"one hundred EUR")
    with Subscriber(kafka.bootstrap, writer.topic) as subscriber:
        with pytest.raises(Retryable, match="CRC32C") as refused:
            list(subscriber.read_to_end())
        assert refused.value.code == "MR-3501"
        assert "disk" in refused.value.fix
        assert subscriber.place.offset == 0


def _store(kafka: KafkaServer, topic: str, **options: Any) -> KafkaSchemaStore:
    return KafkaSchemaStore(Brokers(kafka.bootstrap), topic=topic, **options)


def test_registry_loads_no_damaged_schema(kafka: KafkaServer) -> None:
    """A registry that starts on damaged entries does not serve them."""
    topic = f"damaged-{next(_topics)}"
    store = _store(kafka, topic)
    assert list(store.load()) == []
    store.append([Entry("subject", 1, 1, '{"type": "string"}')])
    store.close()
    flip_bit(kafka, topic, b'\\"string\\')
    with pytest.raises(Retryable, match="CRC32C") as refused:
        list(_store(kafka, topic).load())
    assert refused.value.code == "MR-6020"


def test_open_transaction_hides_no_schema_from_a_registry(kafka: KafkaServer) -> None:
    """A start fails while another program's open transaction hides an entry: its ID would be given again."""
    topic = f"hidden-{next(_topics)}"
    first = _store(kafka, topic)
    assert list(first.load()) == []
    foreign = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"{topic}/x"})
    foreign.init_transactions(60)
    foreign.begin_transaction()
    foreign.produce(topic, b"open", key=b"open", partition=0)
    assert foreign.flush(WAIT_S) == 0
    entry = Entry("subject", 1, 1, '{"type": "string"}')
    first.append([entry])
    first.close()
    with pytest.raises(Retryable, match="not to its end") as refused:
        list(_store(kafka, topic, timeout_s=5.0).load())
    assert refused.value.code == "MR-6020"
    assert "find-hanging" in refused.value.fix
    foreign.abort_transaction(60)
    assert list(_store(kafka, topic).load()) == [entry]
