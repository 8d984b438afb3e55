"""Records with headers for many partitions, through the compiled loop and through the Python binding."""

import time

import confluent_kafka
import numpy as np
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from millrace.deploy.servers import KafkaServer
from millrace.drivers.kafka import bulk
from millrace.drivers.kafka.access import GivenAccess
from millrace.drivers.kafka.headers import HeaderedRecords
from millrace.drivers.kafka.producer import WRITING, TransactionalProducer
from millrace.errors import Fatal
from tests.kit.kafka_topics import ANSWER_S, make_topic
from tests.kit.waiting import eventually

Line = tuple[object, ...]
COUNT = 9_000  # more than a chunk
PARTITIONS = 3
OTHERS = ("old", "new")
TEXTS = ("id", "time")


@pytest.fixture
def topics(kafka: KafkaServer) -> tuple[str, str]:
    """Two topics of this test."""
    names = tuple(f"headers-{name}-{time.time_ns()}" for name in "ab")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for name in names:
        make_topic(admin, name, partition_count=PARTITIONS)
    return names[0], names[1]


def _records(topics: tuple[str, str]) -> HeaderedRecords:
    """Keys, empty keys and none; values, empty and none; counters of one to nineteen digits; other headers; texts."""
    number = np.arange(COUNT)
    octets = np.frombuffer(b"".join(b"%06d" % each for each in number), np.uint8)
    lines = np.zeros((COUNT, 15), np.int64)
    lines[:, 0], lines[:, 1] = number % 2, number % PARTITIONS
    lines[:, 2], lines[:, 3] = number * 6, number * 6 + number % 4
    lines[number % 5 == 0, 2:4] = -1
    lines[:, 4], lines[:, 5] = number * 6, number * 6 + number % 7
    lines[number % 11 == 0, 4:6] = -1
    lines[:, 6], lines[:, 7] = number, 2**63 - 1 - number
    lines[:, 8] = number % 3 - 1
    lines[:, 9], lines[:, 10] = number * 6, number * 6 + number % 6
    lines[:, 11], lines[:, 12] = number * 6, number * 6 + number % 3
    lines[:, 13], lines[:, 14] = number * 6 + 1, number * 6 + 5
    lines[number % 4 == 0, 11:13] = -1
    lines[number % 3 == 0, 13:15] = -1
    constants = (("task", b"shop"), ("none", b""))
    return HeaderedRecords(topics, octets, lines, constants, ("n", "seq"), OTHERS, TEXTS)


def _expected(records: HeaderedRecords) -> set[Line]:
    octets = records.buffer.tobytes()
    return {
        (
            records.topics[topic],
            partition,
            None if key < 0 else octets[key:key_end],
            None if value_end < 0 else octets[value:value_end],
            (
                ("task", b"shop"),
                ("none", b""),
                ("n", b"%d" % n),
                ("seq", b"%d" % seq),
                *([(OTHERS[other], octets[first:end])] if other >= 0 else []),
                *([(TEXTS[0], octets[texts[0] : texts[1]])] if texts[0] >= 0 else []),
                *([(TEXTS[1], octets[texts[2] : texts[3]])] if texts[2] >= 0 else []),
            ),
        )
        for topic, partition, key, key_end, value, value_end, n, seq, other, first, end, *texts in (
            records.lines.tolist()
        )
    }


@pytest.mark.parametrize("door", ["compiled", "binding"])
def test_records_arrive_with_their_keys_values_and_headers(
    kafka: KafkaServer, topics: tuple[str, str], door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Byte for byte, each in its partition and in order."""
    if door == "binding":
        monkeypatch.setattr(bulk, "TESTED", frozenset())
    producer = _producer(kafka, topics[0])
    assert bool(producer.slow_path) == (door == "binding")
    records = _records(topics)
    producer.init()
    producer.begin()
    assert producer.add_headered(records) is None
    producer.flush()
    producer.commit()
    producer.discard()

    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": kafka.bootstrap, "group.id": "x", "isolation.level": "read_committed"}
    )
    reader.assign([TopicPartition(name, part, 0) for name in topics for part in range(PARTITIONS)])
    arrived: list[Line] = []

    def read() -> bool:
        for one in reader.consume(COUNT, 0.1):
            headers = tuple(one.headers() or ())
            arrived.append((one.topic(), one.partition(), one.key(), one.value(), headers))
        return len(arrived) >= COUNT

    eventually(read, what="all records")
    reader.close()
    assert set(arrived) == _expected(records)
    numbers: dict[Line, list[int]] = {}
    for topic, partition, _, _, headers in arrived:
        assert isinstance(headers, tuple)
        numbers.setdefault((topic, partition), []).append(int(headers[2][1]))
    assert all(each == sorted(each) for each in numbers.values())


def test_record_with_headers_over_the_limit_is_named(
    kafka: KafkaServer, topics: tuple[str, str]
) -> None:
    """The number of the record; slices outside of the buffer are a defect."""
    producer = _producer(kafka, topics[0], **{"message.max.bytes": 1000})
    lines = np.zeros((2, 6), np.int64)
    lines[:, 2] = -1
    lines[1, 5] = 2000
    producer.init()
    producer.begin()
    octets = np.zeros(2000, np.uint8)
    assert producer.add_headered(HeaderedRecords(topics, octets, lines)) == 1
    with pytest.raises(Fatal, match="outside"):
        producer.add_headered(HeaderedRecords(topics, octets[:9], lines))
    outside = np.array([[0, 0, -1, -1, 0, 1, 0, -1, 1], [0, 0, -1, -1, 0, 1, 0, 9, 10]])
    for line in outside:
        with pytest.raises(Fatal, match="outside"):
            producer.add_headered(
                HeaderedRecords(topics, octets[:9], line.reshape(1, -1), (), (), OTHERS)
            )
    producer.discard()


def _producer(kafka: KafkaServer, topic: str, **settings: int) -> TransactionalProducer:
    return TransactionalProducer(
        GivenAccess(kafka.bootstrap),
        topic,
        errors=WRITING,
        settings={"client.id": "headers", "transactional.id": topic, **settings},
        timeout_s=ANSWER_S,
    )
