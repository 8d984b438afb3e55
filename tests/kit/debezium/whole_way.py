"""A binlog as topics for subscribers: the converter's records in a set topic, and a publish task that reads it."""

from dataclasses import dataclass
from itertools import count

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from millrace.errors import Retryable
from millrace.schemas.documents import PublishTask
from tests.kit.apply.topic import RecordStream
from tests.kit.capture.converter import Conversion, raw_records
from tests.kit.kafka_topics import make_topic
from tests.kit.publish.local import LocalPublisher, publish_task
from tests.kit.publish.rig import PATIENT
from tests.kit.waiting import answered

_topics = count(1)
RECORD_BYTES_MAX = 64 << 20
QUEUED_MAX = 1_000_000  # more than any test has records
ANSWER_S = 60.0


@dataclass(frozen=True, slots=True)
class CopiedTopic:
    """A set topic with all records of a conversion."""

    bootstrap: str
    topic: str

    @classmethod
    def of(cls, conversion: Conversion, bootstrap: str) -> "CopiedTopic":
        """A new topic."""
        copied = cls(bootstrap, f"debezium-set-{next(_topics)}")
        size = str(RECORD_BYTES_MAX)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        make_topic(admin, copied.topic, config={"max.message.bytes": size})
        stream = RecordStream(conversion.flavour)
        stream.fence()
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "message.max.bytes": RECORD_BYTES_MAX,
                "queue.buffering.max.messages": QUEUED_MAX,
            }
        )
        producer.produce(copied.topic, stream.values[0])
        for batch in conversion.batches():
            for key, value in raw_records(batch):
                producer.produce(copied.topic, value, key)
        assert producer.flush(ANSWER_S) == 0
        return copied


def publish(topic: CopiedTopic, **fields: object) -> PublishTask:
    """Publish all that the set topic has, by a task with these fields of its document."""
    task, publisher = publish_task(topic, **fields), LocalPublisher(limits=PATIENT)
    answered(lambda: publisher.run(task), Retryable)  # a busy broker may be late
    return task
