"""One topic for a look, in which each batch is a Kafka transaction. Apart: a broker is not needed without it."""

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from millrace.drivers.kafka.partitions import Topics
from millrace.drivers.kafka.producer import WRITING, TransactionalProducer, compression
from millrace.schemas.documents import Brokers

_TIMEOUT_S = 30.0


@contextmanager
def opened_topic(
    bootstrap: str, topic: str
) -> Iterator[Callable[[Sequence[tuple[bytes | None, bytes | None]]], None]]:
    """Creates the topic, and gives a function that sends records. Errors: ``WRITING``."""
    brokers = Brokers(bootstrap)
    topics = Topics(brokers, errors=WRITING)
    topics.create({topic: 1}, replicas=-1, config={})
    settings = {
        "client.id": "millrace-try",
        "transactional.id": f"millrace-try/{uuid.uuid4()}",
        **compression("gzip"),
    }
    producer = TransactionalProducer(
        brokers, topic, errors=WRITING, settings=settings, timeout_s=_TIMEOUT_S
    )
    try:
        producer.init()

        def send(records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
            if records:
                producer.begin()
                producer.add(records)
                producer.flush()
                producer.commit()

        yield send
    finally:
        producer.discard()
