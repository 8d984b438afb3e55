"""Records of a set topic by offset, read_committed; confluent_kafka is known to this module alone.

No consumer group is joined and no offset committed: a reader leaves no trace. Errors are MR-3501, Retryable where the
broker is away and Fatal where the topic or the right to read it is missing.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from millrace.errors import Fatal, MillraceError, Retryable

T = TypeVar("T")
Settings: TypeAlias = dict[str, str | int | float]

PARTITION = 0
ASK_TIMEOUT_S = 10.0
SILENCE_S = 30.0  # a read of offsets that exist: a broker that restarts takes 5 to 10 s
_CHUNK_RECORDS = 5000  # 1 MB of 200 B records at a time
_FOLLOW_WAIT_S = 0.5

_READER_SETTINGS: Settings = {
    "group.id": "millrace-topic",  # the client wants one; no group is joined
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "check.crcs": True,
    "fetch.wait.max.ms": 100,
    "queued.max.messages.kbytes": 32 * 1024,
    "receive.message.max.bytes": 1024 * 1024 * 1024,
}
_SILENT = {"_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE"}
_NO_ANSWER = (
    "Check that a broker answers at the address of --kafka, or of the task's document, from here."
)
_MISSING = {
    "UNKNOWN_TOPIC_OR_PART",
    "_UNKNOWN_TOPIC",
    "_UNKNOWN_PARTITION",
    "TOPIC_AUTHORIZATION_FAILED",
    "SASL_AUTHENTICATION_FAILED",
    "_AUTHENTICATION",
    "_SSL",
    "_INVALID_ARG",
    "_AUTO_OFFSET_RESET",
    "OFFSET_OUT_OF_RANGE",
}

_driver_log = logging.getLogger("librdkafka")
_driver_log.addHandler(logging.NullHandler())
_driver_log.propagate = False


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """One committed record."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes


@dataclass(frozen=True, slots=True)
class TopicEnds:
    """First kept offset, and the end of what read_committed may see."""

    low: int
    stable: int


class TopicReader:
    """Reads partition 0 of one topic; ``client`` holds further librdkafka settings (security)."""

    def __init__(
        self, bootstrap: str, topic: str, *, client: Mapping[str, str] | None = None
    ) -> None:
        self._topic = topic
        settings: Settings = {
            **(client or {}),
            "bootstrap.servers": bootstrap,
            **_READER_SETTINGS,
        }
        self._consumer = _asking(
            "making a consumer", lambda: Consumer(settings, logger=_driver_log)
        )

    def ends(self) -> TopicEnds:
        """Both ends, asked of the broker; Fatal MR-3501 when there is no such topic."""
        metadata = _asking(
            "asking for the topic", lambda: self._consumer.list_topics(self._topic, ASK_TIMEOUT_S)
        )
        if (error := metadata.topics[self._topic].error) is not None:
            raise _error(error.name(), f"topic {self._topic}: {error.str()}")
        partition = TopicPartition(self._topic, PARTITION)
        found = _asking(
            "asking for the ends",
            lambda: self._consumer.get_watermark_offsets(partition, ASK_TIMEOUT_S),
        )
        if found is None:
            raise Retryable("MR-3501", "the broker did not say where the partition ends")
        return TopicEnds(*found)

    def chunks(self, start: int, stop: int) -> Iterator[list[TopicRecord]]:
        """The committed records with start <= offset < stop, in order, some thousands at a time."""
        position = start
        if start < stop:
            self._assign(start)
        heard_s = time.monotonic()
        while position < stop:
            chunk, position_seen = self._poll(_FOLLOW_WAIT_S)
            if chunk or position_seen > position:
                heard_s = time.monotonic()
                position = max(position, position_seen)
                yield [record for record in chunk if record.offset < stop]
            elif time.monotonic() - heard_s > SILENCE_S:
                raise Retryable("MR-3501", f"offset {position} was not read in {SILENCE_S:g} s")

    def follow(self, start: int, stop_asked: Callable[[], bool]) -> Iterator[list[TopicRecord]]:
        """Committed records from ``start`` on as they come, until ``stop_asked``; chunks may be empty."""
        self._assign(start)
        while not stop_asked():
            yield self._poll(_FOLLOW_WAIT_S)[0]

    def close(self) -> None:
        """Release connections."""
        self._consumer.close()

    def _assign(self, offset: int) -> None:
        assignment = [TopicPartition(self._topic, PARTITION, offset)]
        _asking("assigning the partition", lambda: self._consumer.assign(assignment))

    def _poll(self, wait_s: float) -> tuple[list[TopicRecord], int]:
        """What is there, and the offset behind all that was seen (markers too); -1 if nothing was."""
        records: list[TopicRecord] = []
        seen = -1
        messages = _asking("reading", lambda: self._consumer.consume(1, wait_s))
        if messages:
            messages += _asking("reading", lambda: self._consumer.consume(_CHUNK_RECORDS, 0.0))
        for message in messages:
            error = message.error()
            offset = message.offset() or 0
            if error is None:
                records.append(
                    TopicRecord(
                        offset, message.timestamp()[1], message.key(), message.value() or b""
                    )
                )
                seen = offset + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                seen = max(seen, offset)
            else:
                raise _error(error.name(), error.str())
        return records, seen


def first_offset(bootstrap: str, topic: str, wanted: int) -> int:
    """Where reading begins that should begin at ``wanted``: later if retention removed what stood there.

    What that was, ``seq`` tells. Fatal MR-5030 where the topic ends in front of ``wanted``: it is another one.
    """
    reader = TopicReader(bootstrap, topic)
    try:
        ends = reader.ends()
    finally:
        reader.close()
    if ends.stable < wanted:
        raise Fatal(
            "MR-5030", f"topic {topic} ends at {ends.stable}, the task has read to {wanted}"
        )
    return max(wanted, ends.low)


def _asking(doing: str, ask: Callable[[], T]) -> T:
    try:
        return ask()
    except KafkaException as failure:
        reported = failure.args[0]
        raise _error(reported.name(), f"{doing}: {reported.str()}") from failure


def _error(name: str, detail: str) -> MillraceError:
    told = f"Kafka answered {name}: {detail}"
    if name in _MISSING:
        return Fatal("MR-3501", told)
    return Retryable("MR-3501", told, fix=_NO_ANSWER if name in _SILENT else "")
