"""Reads the partition of a topic by offset, read_committed.

A reader joins no consumer group and commits no offset, so it leaves no trace. Its errors are those of its ``Errors``.
Not done here: what a record means.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeAlias

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec  # type: ignore[attr-defined]

from millrace.drivers.kafka.access import KafkaAccess, Settings, driver_log
from millrace.drivers.kafka.errors import SILENCE, Errors, Kind
from millrace.drivers.kafka.names import READER_GROUP
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.schemas.record.record import seq_of

DriverMessage: TypeAlias = Message

PARTITION = 0  # each of our topics has one
ASK_TIMEOUT_S = 10.0  # one request to a broker that usually answers in a millisecond
IDENTITY_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 30.0  # for offsets that exist; a broker restart takes 5 to 10 s
_CHUNK_RECORDS = 5000  # 1 MB of 200 B records at a time
_FOLLOW_WAIT_S = 0.5
# `next_record` skips up to this many records by reading on; beyond that by a new fetch
_FORWARD_RECORDS_MAX = 500
# a Kafka transaction ends with its resolved record and a marker; markers may be repeated
LAST_OFFSETS = 8
LAST_WAIT_S = 0.5

_SETTINGS: Settings = {
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
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # sixteen zero bytes


class NoTopic(Fatal):
    """The topic that an operator named does not exist."""


class RecordRemoved(Retryable):
    """The next record was removed from the partition (by retention or an operator), or never existed."""


READING = Errors(
    code="MR-3501",
    # an operator named the topic, and our starts do not create it
    branches={Kind.TOPIC_MISSING: NoTopic},
    away_fix="Check that a broker answers at the address in --kafka or in the task's document."
    " This machine must be able to reach it.",
)


@dataclass(frozen=True, slots=True)
class TopicRecord:
    offset: int
    key: bytes | None
    value: bytes
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class Ends:
    """Offsets: the first kept record, the end for read_committed readers, the end of the log (-1: not asked)."""

    low: int
    stable: int
    high: int = -1


@dataclass(frozen=True, slots=True)
class Retention:
    """How long a topic keeps records. -1: without a limit."""

    ms: int
    bytes: int


def retention_of(config: Mapping[str, Any]) -> Retention:
    """From a broker's answer about a topic."""
    if "delete" not in config["cleanup.policy"].value:
        return Retention(-1, -1)
    return Retention(int(config["retention.ms"].value), int(config["retention.bytes"].value))


@dataclass(frozen=True, slots=True)
class TopicSample:
    """Some offsets of a topic. ``at_ms``: Kafka's time of the first record. Sizes are those before compression."""

    at_ms: int
    bytes_per_offset: float


class TopicReader:
    """Reads partition 0 of one topic. For one thread at a time. ``settings`` are librdkafka's, for this reader."""

    def __init__(
        self,
        brokers: KafkaAccess,
        topic: str,
        *,
        errors: Errors = READING,
        settings: Settings | None = None,
    ) -> None:
        self._topic, self._errors = topic, errors
        own = settings or {}
        self._identity = TopicIdentity(brokers, topic, errors=errors, timeout_s=ASK_TIMEOUT_S)
        everything: Settings = {"logger": driver_log, **brokers.settings(), **_SETTINGS, **own}
        self._consumer = errors.call("creating a consumer", lambda: Consumer(everything))
        self._position = -1  # the next offset to arrive; -1: not known
        self._is_leader_unsure = False  # librdkafka keeps "no leader" until a request for the topic

    def ends(self) -> Ends:
        """The first two, from the broker; an error if the topic does not exist."""
        self._is_leader_unsure = True
        return self._watermarks()

    def all_ends(self) -> Ends:
        """All three. Between the stable end and the end of the log are Kafka transactions that have not ended."""
        ends = self._watermarks()
        return Ends(ends.low, ends.stable, self._identity.end(IsolationLevel.READ_UNCOMMITTED))

    def stable_end(self) -> int:
        """The end of what read_committed readers see."""
        return self._watermarks().stable

    def low_end(self) -> int:
        return self._watermarks().low

    def _ask_for_topic(self) -> None:
        metadata = self._errors.call(
            "asking for the topic", lambda: self._consumer.list_topics(self._topic, ASK_TIMEOUT_S)
        )
        if (error := metadata.topics[self._topic].error) is not None:
            raise self._errors.error(error.name(), error.str(), doing="asking for the topic")

    def _watermarks(self) -> Ends:
        partition, doing = TopicPartition(self._topic, PARTITION), "asking for the partition's ends"
        if self._is_leader_unsure:
            self._ask_for_topic()
        self._is_leader_unsure = True
        ends = self._errors.call(
            doing, lambda: self._consumer.get_watermark_offsets(partition, ASK_TIMEOUT_S)
        )
        self._is_leader_unsure = False
        if ends is None:
            raise self._errors.error(SILENCE, "no broker answered", doing=doing)
        return Ends(*ends)

    def chunks(
        self, start: int, stop: int, *, within_s: float = READ_TIMEOUT_S
    ) -> Iterator[list[TopicRecord]]:
        """The committed records with start <= offset < stop, in order, in chunks of up to 5001.

        ``stop`` is at most the stable end. ``within_s``: how long no record may arrive.
        """
        if start < stop:
            self.assign(start)
        last_read_s = time.monotonic()
        position = start
        while position < stop:
            chunk = self._poll(_FOLLOW_WAIT_S)
            if self._position > position:
                last_read_s, position = time.monotonic(), self._position
                yield [record for record in chunk if record.offset < stop]
            elif time.monotonic() - last_read_s > within_s:
                late = f"offset {position} was not read within {within_s:g} s"
                raise self._errors.error(SILENCE, late, doing="reading")

    def read(self, start: int, stop: int) -> list[TopicRecord]:
        """The records of ``chunks`` together. Fetches nothing more until the next call that reads."""
        records = [
            one for chunk in self.chunks(start, stop, within_s=ASK_TIMEOUT_S) for one in chunk
        ]
        if start < stop:
            self._errors.call("unassigning the partition", self._consumer.unassign)
            self._position = -1
        return records

    def last_before(self, end: int, *, within_s: float) -> TopicRecord | None:
        """The last committed record before ``end``; None if none is close, or if it is not read in time."""
        start = max(end - LAST_OFFSETS, 0)
        if start >= end:
            return None
        self.assign(start)
        last, until_s = None, time.monotonic() + within_s
        while self._position < end and time.monotonic() < until_s:
            before_end = [record for record in self._poll(within_s) if record.offset < end]
            last = before_end[-1] if before_end else last
        return last if self._position >= end else None

    def follow(self, start: int, stop_asked: Callable[[], bool]) -> Iterator[list[TopicRecord]]:
        """Committed records from ``start`` on as they arrive, until ``stop_asked``; chunks may be empty."""
        self.assign(start)
        while not stop_asked():
            yield self._poll(_FOLLOW_WAIT_S)

    def next_record(self, offset: int, *, timeout_s: float) -> TopicRecord | None:
        """The first committed record at or after ``offset``; None if there is none in time.

        It skips offsets that were removed meanwhile, if the errors make them ``RecordRemoved``.
        """
        if self._position < 0 or not 0 <= offset - self._position <= _FORWARD_RECORDS_MAX:
            self.assign(offset)
        deadline = time.monotonic() + timeout_s
        while (wait_s := deadline - time.monotonic()) > 0:
            try:
                messages, _ = self.consume(1, wait_s)
            except RecordRemoved:
                ends = self._watermarks()
                if self._position > ends.stable:
                    raise
                # also if the offset is in the partition: then the error was about an earlier position
                self.assign(max(offset, ends.low))
                continue
            if messages and (messages[0].offset() or 0) >= offset:
                return _record(messages[0])
        return None

    def assign(self, offset: int) -> None:
        """Read from ``offset`` on (negative: from the beginning)."""
        start = TopicPartition(self._topic, PARTITION, offset if offset >= 0 else OFFSET_BEGINNING)
        self._errors.call("assigning the partition", lambda: self._consumer.assign([start]))
        self._position = offset

    def consume(self, count: int, wait_s: float) -> tuple[list[Message], int | None]:
        """The driver's messages, and the end of the partition if it was reached after them.

        With a ``wait_s``, librdkafka waits for all of ``count``.
        """
        messages = self._errors.call("reading", lambda: self._consumer.consume(count, wait_s))
        if not messages:
            return messages, None
        events = [message for message in messages if message.error() is not None]
        if events:
            self._check(events)
            is_end = messages[-1].error() is not None
            messages = [message for message in messages if message.error() is None]
        if messages:
            self._position = (messages[-1].offset() or 0) + 1
        if not events:
            return messages, None
        end = events[-1].offset() or 0
        self._position = max(self._position, end)
        return messages, end if is_end else None

    def _check(self, events: list[Message]) -> None:
        """Raise an error among the messages that are no records; the others report the end of the partition."""
        for event in events:
            error = event.error()
            assert error is not None
            if error.code() == KafkaError._PARTITION_EOF:
                continue
            if error.code() != KafkaError._AUTO_OFFSET_RESET:
                self._position = -1  # the client may have passed a damaged batch
            raise self._errors.error(error.name(), error.str(), doing="reading")

    def _poll(self, wait_s: float) -> list[TopicRecord]:
        messages, _ = self.consume(1, wait_s)
        if messages:
            messages += self.consume(_CHUNK_RECORDS, 0.0)[0]
        return [_record(message) for message in messages]

    def close(self) -> None:
        self._consumer.close()


def _record(message: Message) -> TopicRecord:
    return TopicRecord(
        message.offset() or 0, message.key(), message.value() or b"", message.timestamp()[1]
    )


class TopicIdentity:
    """Reads the id, the end, and the last ``seq`` of the topic that has a name now.

    A topic that is deleted and created again has another id. After an error the next request has a new client, which
    reads the secrets again.
    """

    def __init__(
        self,
        brokers: KafkaAccess,
        topic: str,
        *,
        errors: Errors = READING,
        timeout_s: float = IDENTITY_TIMEOUT_S,
    ) -> None:
        self._brokers, self._topic, self._errors = brokers, topic, errors
        self._timeout_s = timeout_s
        self._admin: AdminClient | None = None
        self._reader: TopicReader | None = None  # of the last record
        self._last = (0, 0)  # an end, and the seq before it

    def ask(self) -> str:
        """Kafka's topic id as its tools print it; "" if the broker has no topic ids (before 2.8)."""
        names = TopicCollection([self._topic])
        described = self._ask(
            f"reading the id of topic {self._topic}",
            lambda admin: admin.describe_topics(names, request_timeout=self._timeout_s)[
                self._topic
            ].result(),
        )
        return topic_id_text(described.topic_id)

    def end(self, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED) -> int:
        """The end of the records that read_committed can see, with Kafka's markers.

        With READ_UNCOMMITTED, that of all records: beyond the other end, a Kafka transaction has not ended.
        """
        partition = TopicPartition(self._topic, PARTITION)
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        doing = f"asking for the end of topic {self._topic}"
        end = self._ask(
            doing,
            lambda admin: admin.list_offsets(
                {partition: latest},
                isolation_level=isolation,
                request_timeout=self._timeout_s,
            )[partition].result(),
        )
        if end.offset < 0:  # so the client answers after its timeout, without an error
            self._admin = None
            silence = f"no answer within {self._timeout_s:g} s"
            raise self._errors.error(SILENCE, silence, doing=doing)
        return int(end.offset)

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

    def retention(self) -> Retention:
        """The topic's settings. An account without the right DescribeConfigs gets MR-7010."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, self._topic)
        config = self._ask(
            f"asking for the settings of topic {self._topic}",
            lambda admin: admin.describe_configs([resource], request_timeout=self._timeout_s)[
                resource
            ].result(),
        )
        return retention_of(config)

    def sample(self, start: int, stop: int) -> TopicSample | None:
        """Of the offsets from ``start``, or the first that is kept, to ``stop``. Errors: those of a reader."""
        with closing(TopicReader(self._brokers, self._topic, errors=self._errors)) as reader:
            first = max(start, reader.ends().low)
            records = reader.read(first, stop)
        if not records:
            return None
        size = sum(len(record.value) + len(record.key or b"") for record in records)
        return TopicSample(records[0].timestamp_ms, size / (stop - first))

    def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _ask(self, doing: str, request: Callable[[AdminClient], Any]) -> Any:
        if self._admin is None:
            settings = self._brokers.settings()
            self._admin = self._errors.call(
                "creating a client", lambda: AdminClient(settings, logger=driver_log)
            )
        admin = self._admin
        try:
            return self._errors.call(doing, lambda: request(admin))
        except MillraceError:
            self._admin = None
            raise


def topic_id_text(topic_id: object) -> str:
    """A topic id as Kafka's tools print it; "" if the broker has none."""
    text = str(topic_id).replace("+", "-").replace("/", "_")
    return "" if text == _NO_ID else text


def first_offset(brokers: KafkaAccess, topic: str, wanted: int) -> int:
    """The offset at which to start: ``wanted``, or the first kept offset if retention removed the records there.

    The ``seq`` of the next record shows whether a removed record was needed. Fatal MR-5035 if the topic ends before
    ``wanted``.
    """
    with closing(TopicReader(brokers, topic)) as reader:
        ends = reader.ends()
    if ends.stable < wanted:
        raise Fatal(
            "MR-5035", f"topic {topic} ends at {ends.stable}, but the task has read to {wanted}"
        )
    return max(wanted, ends.low)
