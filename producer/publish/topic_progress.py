"""Looks at a topic without writing to it: whether it exists, and its progress. For an operator's decision.

The progress is that of the committed records, as a start would read it (``tail``). It is final only while no task
writes the topic. A topic whose end can't be read has an error instead: MR-3011, MR-3012.
"""

from dataclasses import dataclass

from millrace.errors import Fatal
from producer.publish.codec import RecordCodec
from producer.publish.config import PublisherConfig
from producer.publish.driver import Driver
from producer.publish.tail import read_tail
from schemas.progress import Progress


@dataclass(frozen=True, slots=True)
class TopicLook:
    """``progress`` is None if the topic has no committed record, or with ``unreadable``."""

    exists: bool
    progress: Progress | None = None
    unreadable: Fatal | None = None


def look_at_topic(driver: Driver, config: PublisherConfig) -> TopicLook:
    """The topic's state. Errors of the brokers as in ``errors``."""
    if driver.admin().settings() is None:
        return TopicLook(exists=False)
    partition = driver.partition()
    try:
        tail = read_tail(partition, partition.ends(), RecordCodec(config, {}))
    except Fatal as error:
        if error.code not in ("MR-3011", "MR-3012"):
            raise
        return TopicLook(exists=True, unreadable=error)
    finally:
        partition.close()
    return TopicLook(exists=True, progress=tail.progress if tail is not None else None)
