"""How long a set topic keeps its records, as the brokers say it, and the age of one of them."""

import time
from contextlib import closing

import pytest
from confluent_kafka.admin import AdminClient

from millrace.deploy.servers import KafkaServer
from millrace.drivers.kafka.access import GivenAccess
from millrace.drivers.kafka.reader import Retention, TopicIdentity
from millrace.errors import MillraceError, Retryable
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import RecordStream, TopicWriter
from tests.kit.kafka_topics import make_topic, remove_records_before
from tests.kit.waiting import answered


def test_retention_and_age_of_the_first_record_that_waits(kafka: KafkaServer) -> None:
    """A removed beginning is passed: the next record that exists has the time."""
    stream = RecordStream()
    rows = table("kept", "t", integer("id"))
    for number in range(20):
        stream.insert(rows, {"id": number})
        stream.commit()
    writer = TopicWriter(kafka.bootstrap, stream)
    began_ms = time.time_ns() // 1_000_000
    writer.publish()
    topic = TopicIdentity(GivenAccess(kafka.bootstrap), writer.topic)
    with closing(topic):
        sample = answered(lambda: topic.sample(0, 20), MillraceError)
        assert sample is not None
        assert began_ms - 1000 <= sample.at_ms <= time.time_ns() // 1_000_000 + 1000
        assert 20 < sample.bytes_per_offset < 2000
        client = AdminClient({"bootstrap.servers": kafka.bootstrap})
        remove_records_before(client, writer.topic, 30)
        assert answered(lambda: topic.sample(0, 40), MillraceError) is not None


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        ({"retention.ms": "5000", "retention.bytes": "7000"}, Retention(5000, 7000)),
        ({"cleanup.policy": "compact"}, Retention(-1, -1)),
    ],
)
def test_retention_is_that_of_the_topic(
    kafka: KafkaServer, config: dict[str, str], kept: Retention
) -> None:
    """A topic that is compacted alone removes no record by its age."""
    client = AdminClient({"bootstrap.servers": kafka.bootstrap})
    name = f"kept-{len(config)}-{time.monotonic_ns()}"
    make_topic(client, name, config=config)
    with closing(TopicIdentity(GivenAccess(kafka.bootstrap), name)) as topic:
        assert answered(topic.retention, Retryable) == kept
