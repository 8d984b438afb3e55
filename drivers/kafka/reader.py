"""Reads records of a set topic by offset, read_committed.

A reader joins no consumer group and commits no offset, so it leaves no trace. Errors are MR-3501: Retryable if the
broker is unavailable, Fatal if the topic or the permission to read it is missing.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from drivers.kafka.access import KafkaAccess, Settings, ask_kafka, damage_fix, driver_log
from drivers.kafka.names import READER_GROUP
from drivers.kafka.refusals import refusal_of
from millrace.errors import Fatal, MillraceError, Retryable
from schemas.record.record import seq_of

T = TypeVar("T")

PARTITION = 0
ASK_TIMEOUT_S = 10.0
IDENTITY_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 30.0  # for offsets that exist; a broker restart takes 5 to 10 s
_CHUNK_RECORDS = 5000  # 1 MB of 200 B records at a time
_FOLLOW_WAIT_S = 0.5
LAST_OFFSETS = (
    8  # a Kafka transaction ends with its resolved record and a marker; markers may be repeated
)
LAST_WAIT_S = 0.5

READER_SETTINGS: Settings = {
    "group.id": READER_GROUP,
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
_UNREACHABLE = {"_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE"}
_UNREACHABLE_FIX = (
    "Check that a broker answers at the address in --kafka or in the task's document."
    " This machine must be able to reach it."
)
NO_TOPIC = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC")  # as ``answer`` in the context of an MR-3501
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # sixteen zero bytes
_FATAL = {
    "UNKNOWN_TOPIC_OR_PART",
    "_UNKNOWN_TOPIC",
    "_UNKNOWN_PARTITION",
    "_INVALID_ARG",
    "_AUTO_OFFSET_RESET",
    "OFFSET_OUT_OF_RANGE",
}


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """One committed record."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes


@dataclass(frozen=True, slots=True)
class TopicEnds:
    """The first kept offset, and the end of the records that read_committed can see."""

    low: int
    stable: int


class TopicReader:
    """Reads partition 0 of one topic."""

    def __init__(self, brokers: KafkaAccess, topic: str) -> None:
        self._brokers, self._topic = brokers, topic
        settings: Settings = {**brokers.settings(), **READER_SETTINGS}
        self._consumer = kafka_call(
            "creating a consumer", lambda: Consumer(settings, logger=driver_log)
        )

    def ends(self) -> TopicEnds:
        """Both ends, from the broker; Fatal MR-3501 if the topic does not exist."""
        metadata = kafka_call(
            "reading the topic's metadata",
            lambda: self._consumer.list_topics(self._topic, ASK_TIMEOUT_S),
        )
        if (error := metadata.topics[self._topic].error) is not None:
            raise _error(error.name(), f"topic {self._topic}: {error.str()}")
        partition = TopicPartition(self._topic, PARTITION)
        found = kafka_call(
            "reading the partition's ends",
            lambda: self._consumer.get_watermark_offsets(partition, ASK_TIMEOUT_S),
        )
        if found is None:
            raise Retryable("MR-3501", "the broker did not report the partition's ends")
        return TopicEnds(*found)

    def hidden_after(self, stable: int) -> int:
        """How many offsets from this end on belong to Kafka transactions that have not ended."""
        identity = TopicIdentity(self._brokers, self._topic)
        return max(0, identity.end(IsolationLevel.READ_UNCOMMITTED) - stable)

    def chunks(self, start: int, stop: int) -> Iterator[list[TopicRecord]]:
        """The committed records with start <= offset < stop, in order, in chunks of up to 5001."""
        position = start
        if start < stop:
            self._assign(start)
        last_read_s = time.monotonic()
        while position < stop:
            chunk, position_seen = self._poll(_FOLLOW_WAIT_S)
            if chunk or position_seen > position:
                last_read_s = time.monotonic()
                position = max(position, position_seen)
                yield [record for record in chunk if record.offset < stop]
            elif time.monotonic() - last_read_s > READ_TIMEOUT_S:
                raise Retryable(
                    "MR-3501", f"offset {position} was not read within {READ_TIMEOUT_S:g} s"
                )

    def last_before(self, end: int, *, within_s: float) -> TopicRecord | None:
        """The last committed record before ``end``; None if none is close, or if it is not read in time."""
        start = max(end - LAST_OFFSETS, 0)
        if start >= end:
            return None
        self._assign(start)
        last, position, until_s = None, start, time.monotonic() + within_s
        while position < end and time.monotonic() < until_s:
            chunk, seen = self._poll(within_s)
            position = max(position, seen)
            last = next((record for record in reversed(chunk) if record.offset < end), last)
        return last if position >= end else None

    def follow(self, start: int, stop_asked: Callable[[], bool]) -> Iterator[list[TopicRecord]]:
        """Committed records from ``start`` on as they arrive, until ``stop_asked``; chunks may be empty."""
        self._assign(start)
        while not stop_asked():
            yield self._poll(_FOLLOW_WAIT_S)[0]

    def close(self) -> None:
        """Release connections."""
        self._consumer.close()

    def _assign(self, offset: int) -> None:
        assignment = [TopicPartition(self._topic, PARTITION, offset)]
        kafka_call("assigning the partition", lambda: self._consumer.assign(assignment))

    def _poll(self, wait_s: float) -> tuple[list[TopicRecord], int]:
        """The records that are available, and the offset after the last one or marker; -1 if there was none."""
        records: list[TopicRecord] = []
        seen = -1
        messages = kafka_call("reading", lambda: self._consumer.consume(1, wait_s))
        if messages:
            messages += kafka_call("reading", lambda: self._consumer.consume(_CHUNK_RECORDS, 0.0))
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


class TopicIdentity:
    """Reads the id, the end, and the last ``seq`` of the topic that has a name now.

    A topic that is deleted and created again has another id. After an error the next request has a new client, which
    reads the secrets again.
    """

    def __init__(self, brokers: KafkaAccess, topic: str) -> None:
        self._brokers = brokers
        self._topic = topic
        self._admin: AdminClient | None = None
        self._reader: TopicReader | None = None  # of the last record
        self._last = (0, 0)  # an end, and the seq before it

    def ask(self) -> str:
        """Kafka's topic id as its tools print it; "" if the broker has no topic ids (before 2.8). MR-3501."""
        names = TopicCollection([self._topic])
        found = self._ask(
            f"reading the id of topic {self._topic}",
            lambda admin: admin.describe_topics(names, request_timeout=IDENTITY_TIMEOUT_S)[
                self._topic
            ].result(),
        )
        topic_id = str(found.topic_id).replace("+", "-").replace("/", "_")
        return "" if topic_id == _NO_ID else topic_id

    def end(self, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED) -> int:
        """The end of the records that read_committed can see, with Kafka's markers. MR-3501.

        With READ_UNCOMMITTED, that of all records: beyond the other end, a Kafka transaction has not ended.
        """
        partition = TopicPartition(self._topic, PARTITION)
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        found = self._ask(
            f"reading the end of topic {self._topic}",
            lambda admin: admin.list_offsets(
                {partition: latest},
                isolation_level=isolation,
                request_timeout=IDENTITY_TIMEOUT_S,
            )[partition].result(),
        )
        if found.offset < 0:  # so the client answers after its timeout, without an error
            self._admin = None
            silence = (
                f"reading the end of topic {self._topic}: no answer within {IDENTITY_TIMEOUT_S:g} s"
            )
            raise _error("_TIMED_OUT", silence)
        return int(found.offset)

    def seq_before(self, end: int) -> int | None:
        """The ``seq`` of the last record before this end; None if it can't be read within ``LAST_WAIT_S``."""
        if self._last[0] == end:
            return self._last[1]
        try:
            if self._reader is None:
                self._reader = TopicReader(self._brokers, self._topic)
            record = self._reader.last_before(end, within_s=LAST_WAIT_S)
            if record is not None:
                self._last = (end, seq_of(record.value))
                return self._last[1]
        except MillraceError:  # a reader of the records reports why they can't be read
            self.close()
        return None

    def close(self) -> None:
        """Release connections."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _ask(self, doing: str, request: Callable[[AdminClient], Any]) -> Any:
        if self._admin is None:
            settings = self._brokers.settings()
            self._admin = kafka_call(
                "creating a client", lambda: AdminClient(settings, logger=driver_log)
            )
        admin = self._admin
        try:
            return kafka_call(doing, lambda: request(admin))
        except MillraceError:
            self._admin = None
            raise


def first_offset(brokers: KafkaAccess, topic: str, wanted: int) -> int:
    """The offset at which to start: ``wanted``, or the first kept offset if retention removed the records there.

    The ``seq`` of the next record shows whether a removed record was needed. Fatal MR-5035 if the topic ends before
    ``wanted``.
    """
    reader = TopicReader(brokers, topic)
    try:
        ends = reader.ends()
    finally:
        reader.close()
    if ends.stable < wanted:
        raise Fatal(
            "MR-5035", f"topic {topic} ends at {ends.stable}, but the task has read to {wanted}"
        )
    return max(wanted, ends.low)


def kafka_call(doing: str, ask: Callable[[], T]) -> T:
    """The result of ``ask``; an error of the driver, or silence, is raised as MR-3501."""
    return ask_kafka(ask, explain=lambda name, detail: _error(name, f"{doing}: {detail}"))


def _error(name: str, detail: str) -> MillraceError:
    message = f"Kafka answered {name}: {detail}"
    if (refusal := refusal_of(name, message)) is not None:
        return refusal
    if name in _FATAL:
        return Fatal("MR-3501", message, answer=name)
    fix = _UNREACHABLE_FIX if name in _UNREACHABLE else damage_fix(name)
    return Retryable("MR-3501", message, fix=fix, answer=name)
