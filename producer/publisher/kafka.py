"""The seam's real side: confluent_kafka, known to this module alone.

Guarantees: what leaves here is a value or an error of ours; every wait is bounded by the limits of the config; a
discarded instance sends nothing any more. Records are counted as delivered by the broker's answer to the commit, not
by per-record callbacks: librdkafka refuses to commit a transaction in which a record failed.
Not done here: no second attempt of anything, no new instances, no decision about progress.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import TypeAlias, TypeVar

import confluent_kafka
import numpy as np
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
)

from millrace.errors import MillraceError, Retryable
from millrace.native import unhidden
from producer.publisher.bulk import BulkDoor
from producer.publisher.config import PublisherConfig
from producer.publisher.driver import (
    PARTITION,
    Bounds,
    Ends,
    Octets,
    TopicRecord,
    TopicSettings,
)
from producer.publisher.failures import error_of

T = TypeVar("T")


class _RemovedError(Retryable):
    """What should be read next has been removed from the partition (retention, an operator), or was never there."""


Settings: TypeAlias = dict[str, str | int | float]

_NO_TOPIC_CODE = "MR-3007"
ASK_TIMEOUT_S = 10.0  # one question to a broker that answers in a millisecond
_CHUNK_RECORDS = (
    8192  # queued at a time: at 200 B, 1.6 MB are copied before the sender threads see them
)
_CHUNK_BYTES = 32 * 1024 * 1024
_BACK_PRESSURE_S = 0.05  # one wait while the client's queue is full
_FATAL_WAIT_S = 5.0  # for the error behind "fatal", which is on its way when that is answered
# librdkafka's own queue: it is emptied when half of its bytes are used, so that no call finds it full.
_QUEUE_RECORDS_MAX = 1_000_000
_QUEUE_KBYTES_MAX = 512 * 1024
_FORWARD_RECORDS_MAX = (
    500  # a reader skips so many records by reading on; further ones by a new fetch
)

_READER_SETTINGS: Settings = {
    "group.id": "millrace-publisher",  # the client wants one; no group is joined, no offset committed
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "check.crcs": True,
    "fetch.wait.max.ms": 100,
    "fetch.queue.backoff.ms": 5,
    # It reads behind a busy stream and must not prefetch all of it. One batch comes at least, whatever its size.
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 1024,
    "max.partition.fetch.bytes": 64 * 1024,
    "receive.message.max.bytes": 1024 * 1024 * 1024,
}

_driver_log = logging.getLogger("librdkafka")
_driver_log.addHandler(logging.NullHandler())
_driver_log.propagate = False


def _asking(doing: str, ask: Callable[[], T]) -> T:
    """Run ``ask``; a driver error, or silence, becomes ours."""
    try:
        with unhidden(KafkaException):
            return ask()
    except KafkaException as failure:
        reported = failure.args[0]
        raise error_of(reported.name(), reported.str(), doing=doing) from failure
    except TimeoutError as silence:  # of a future: a broker that takes requests and answers none
        raise Retryable("MR-3001", f"no broker answered while {doing}") from silence


class KafkaDriver:
    """Makes clients for one topic of one cluster."""

    def __init__(self, config: PublisherConfig) -> None:
        self._config = config

    def _common(self) -> Settings:
        return {
            **self._config.client,
            "bootstrap.servers": self._config.bootstrap,
            "client.id": f"millrace-{self._config.worker}",
            "socket.nagle.disable": True,
            "reconnect.backoff.max.ms": 1000,
        }

    def admin(self) -> "KafkaTopicAdmin":
        """The topic."""
        return KafkaTopicAdmin(self._common(), self._config.topic)

    def partition(self) -> "KafkaPartition":
        """A new reader."""
        return KafkaPartition(self._common(), self._config.topic)

    def transactions(self, record_bytes_max: int) -> "KafkaTransactions":
        """A new instance of the task's producer."""
        limits = self._config.limits
        settings = (
            self._common()
            | {
                "transactional.id": self._config.transactional_id,
                "enable.idempotence": True,
                "acks": "all",
                "transaction.timeout.ms": limits.transaction_timeout_ms,
                "retry.backoff.ms": limits.retry_backoff_ms,
                "retry.backoff.max.ms": limits.retry_backoff_ms,
                "message.max.bytes": record_bytes_max,
                "linger.ms": 20,  # `flush` ends it; measured: 5 ms cuts bulk batches small and costs a quarter
                "batch.size": 1024 * 1024,
                "compression.type": "lz4",
                "queue.buffering.max.messages": _QUEUE_RECORDS_MAX,
                "queue.buffering.max.kbytes": _QUEUE_KBYTES_MAX,
                "delivery.report.only.error": True,
            }
        )
        return KafkaTransactions(
            settings, topic=self._config.topic, timeout_s=limits.publish_timeout_s
        )


class KafkaTransactions:
    """One librdkafka producer; see ``driver.Transactions``."""

    def __init__(
        self, settings: Mapping[str, str | int | float], *, topic: str, timeout_s: float
    ) -> None:
        self._topic = topic
        self._timeout_s = timeout_s
        self._heard = ""  # what the client last said about its connections, for messages only
        self._producer: confluent_kafka.Producer | None = _asking(
            "making a producer",
            lambda: confluent_kafka.Producer(
                {**settings, "error_cb": self._hear}, logger=_driver_log
            ),
        )
        self._queued_bytes = 0  # since the queue was last seen empty
        self._door = self._opened_door(str(settings["client.id"]))

    def _hear(self, reported: KafkaError) -> None:
        """The error is also the outcome of what was asked; here it only explains."""
        self._heard = f"{reported.name()} {reported.str()}"

    def _opened_door(self, name: str) -> BulkDoor | None:
        return BulkDoor.of(
            self._producer,
            package=Path(confluent_kafka.__file__).parent,
            version=metadata.version("confluent-kafka"),
            topic=self._topic,
            name=name,
        )

    @property
    def _live(self) -> confluent_kafka.Producer:
        if self._producer is None:
            raise Retryable("MR-3002", "the producer instance has been thrown away")
        return self._producer

    def init(self) -> None:
        """Fence older instances."""
        producer = self._live
        _asking("initialising transactions", lambda: producer.init_transactions(self._timeout_s))

    def begin(self) -> None:
        """Begin a Kafka transaction."""
        _asking("beginning a Kafka transaction", self._live.begin_transaction)

    def add(self, records: Iterable[tuple[bytes | None, bytes]]) -> int | None:
        """Queue records; the index of one over the limit."""
        for index, (key, value) in enumerate(records):
            if not self._queue(value, key):
                return index
        return None

    def add_slices(self, buffer: Octets, bounds: Bounds) -> int | None:
        """Queue slices; the index of one over the limit."""
        first = 0
        for stop in _chunk_stops(bounds):
            rows = bounds[first:stop]
            refused = self._add_bulk(buffer, rows) if self._door else self._add_rows(buffer, rows)
            if refused is not None:
                return first + refused
            first = stop
        return None

    def _add_bulk(self, buffer: Octets, rows: Bounds) -> int | None:
        """One call for all; the queue never fills in the middle of it."""
        assert self._door is not None
        chunk_bytes = int(_sizes(rows).sum())
        is_full = self._queued_bytes + chunk_bytes > _QUEUE_KBYTES_MAX * 1024 // 2
        if is_full or len(self._live) + len(rows) > _QUEUE_RECORDS_MAX:
            self.flush()
        self._queued_bytes += chunk_bytes
        refusal = self._door.queue(buffer, rows)
        if refusal is None:
            return None
        if refusal.code == KafkaError.MSG_SIZE_TOO_LARGE:
            return refusal.index
        raise self._not_queued(KafkaError(refusal.code))

    def _add_rows(self, buffer: Octets, rows: Bounds) -> int | None:
        """One call each, through the binding."""
        start = int(np.where(rows[:, 0] < 0, rows[:, 2], np.minimum(rows[:, 0], rows[:, 2])).min())
        octets = buffer[start : int(rows[:, 1::2].max())].tobytes()
        return self._add_octets(octets, (rows - start).tolist())

    def _add_octets(self, octets: bytes, rows: list[list[int]]) -> int | None:
        """The hot loop. A key start below 0 is -1 moved down by the chunk's start: no key."""
        produce, topic = self._live.produce, self._topic
        index = 0
        try:
            for key_start, key_end, value_start, value_end in rows:
                produce(
                    topic,
                    octets[value_start:value_end],
                    None if key_start < 0 else octets[key_start:key_end],
                    PARTITION,
                )
                index += 1
        except (BufferError, KafkaException):
            pass  # the slow path below meets the same record again and sorts it out
        for key_start, key_end, value_start, value_end in rows[index:]:
            key = None if key_start < 0 else octets[key_start:key_end]
            if not self._queue(octets[value_start:value_end], key):
                return index
            index += 1
        return None

    def _queue(self, value: bytes, key: bytes | None) -> bool:
        """Queue one record, waiting while the client's queue is full; False when it is over the limit."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                self._live.produce(self._topic, value, key, PARTITION)
            except BufferError as full:
                producer = self._live
                _asking("sending records", lambda: producer.poll(_BACK_PRESSURE_S))  # noqa: B023
                if time.monotonic() > deadline:
                    raise Retryable(
                        "MR-3001", "the broker takes no records: the queue stays full"
                    ) from full
            except KafkaException as failure:
                reported = failure.args[0]
                if reported.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                    return False
                raise self._not_queued(reported) from failure
            else:
                return True

    def _not_queued(self, reported: KafkaError) -> MillraceError:
        """Ours for a refusal. "Fatal" is none: the error behind it (fenced, perhaps) comes with the callbacks."""
        producer, doing = self._live, "queueing records"
        deadline = time.monotonic() + _FATAL_WAIT_S
        while reported.code() == KafkaError._FATAL and time.monotonic() < deadline:
            try:
                _asking(doing, lambda: producer.poll(_BACK_PRESSURE_S))
            except MillraceError as told:
                return told
        return error_of(reported.name(), reported.str(), doing=doing)

    def flush(self) -> None:
        """Wait for the broker's answers."""
        producer = self._live
        outstanding = _asking("sending records", lambda: producer.flush(self._timeout_s))
        if outstanding:
            raise Retryable(
                "MR-3001",
                f"the broker has not taken {outstanding} records in {self._timeout_s:g} s: "
                + (self._heard or "it is silent"),
            )
        self._queued_bytes = 0

    def commit(self) -> float:
        """Commit; the seconds it took."""
        producer = self._live
        began = time.monotonic()
        _asking("committing", lambda: producer.commit_transaction(self._timeout_s))
        return time.monotonic() - began

    def abort(self) -> None:
        """Abort."""
        producer = self._live
        _asking("aborting", lambda: producer.abort_transaction(self._timeout_s))

    def discard(self) -> None:
        """Purge and destroy. Not ``close``: that would abort, and an abort is one more request that can be late."""
        producer, self._producer = self._producer, None
        if self._door is not None:
            self._door.close()
        if producer is not None:
            with suppress(KafkaException):  # a fatal error it was thrown away for
                producer.purge()


def _sizes(bounds: Bounds) -> Bounds:
    """Bytes of key and value."""
    keys = np.where(bounds[:, 0] < 0, 0, bounds[:, 1] - bounds[:, 0])
    sizes: Bounds = bounds[:, 3] - bounds[:, 2] + keys
    return sizes


def _chunk_stops(bounds: Bounds) -> Iterator[int]:
    """Where chunks end: bounded in records and bytes, at least one record each."""
    ends = np.cumsum(_sizes(bounds))
    first = 0
    while first < len(bounds):
        begun_bytes = int(ends[first - 1]) if first else 0
        fitting = int(np.searchsorted(ends, begun_bytes + _CHUNK_BYTES, side="right"))
        first = min(max(fitting, first + 1), first + _CHUNK_RECORDS, len(bounds))
        yield first


class KafkaPartition:
    """A librdkafka consumer of partition 0, read_committed, without a group; see ``driver.Partition``."""

    def __init__(self, common: Mapping[str, str | int | float], topic: str) -> None:
        self._topic = topic
        self._common = dict(common)
        settings: Settings = {**self._common, **_READER_SETTINGS}
        self._consumer = _asking(
            "making a consumer", lambda: confluent_kafka.Consumer(settings, logger=_driver_log)
        )
        self._admin: AdminClient | None = None  # for what a consumer can't ask
        self._position = -1  # the next offset that poll gives; -1: not assigned

    def ends(self) -> Ends:
        """All three ends."""
        low, stable = self._watermarks()
        if self._admin is None:  # kept: now and then a new one needs seconds for its first question
            self._admin = AdminClient(dict(self._common), logger=_driver_log)
        admin, partition = self._admin, TopicPartition(self._topic, PARTITION)
        asked = _asking(
            "asking for the end of the log",
            lambda: admin.list_offsets(
                {partition: OffsetSpec.latest()},  # type: ignore[no-untyped-call]
                isolation_level=confluent_kafka.IsolationLevel.READ_UNCOMMITTED,
                request_timeout=ASK_TIMEOUT_S,
            )[partition].result(ASK_TIMEOUT_S),
        )
        return Ends(low, stable, asked.offset)

    def stable_end(self) -> int:
        """The last stable offset."""
        return self._watermarks()[1]

    def low_end(self) -> int:
        """The log start offset."""
        return self._watermarks()[0]

    def _watermarks(self) -> tuple[int, int]:
        partition = TopicPartition(self._topic, PARTITION)
        found = _asking(
            "asking for the stable end",
            lambda: self._consumer.get_watermark_offsets(partition, ASK_TIMEOUT_S),
        )
        if found is None:
            raise Retryable("MR-3001", "the broker did not say where the partition ends")
        low, stable = found
        return low, stable

    def read(self, start: int, stop: int) -> list[TopicRecord]:
        """Committed records of a range."""
        records: list[TopicRecord] = []
        if start >= stop:
            return records
        self._seek(start)
        deadline = time.monotonic() + ASK_TIMEOUT_S
        while self._position < stop:
            record = self._poll(deadline - time.monotonic(), end=stop)
            if record is None:
                if self._position >= stop:
                    break
                raise Retryable(
                    "MR-3001", f"reading offsets {start} to {stop} took over {ASK_TIMEOUT_S:g} s"
                )
            if record.offset < stop:
                records.append(record)
        self._pause()
        return records

    def next_record(self, offset: int, *, timeout_s: float) -> TopicRecord | None:
        """The first record at or behind ``offset``; what was removed on the way there is passed over."""
        ahead = offset - self._position
        if self._position < 0 or not 0 <= ahead <= _FORWARD_RECORDS_MAX:
            self._seek(offset)
        deadline = time.monotonic() + timeout_s
        while (wait_s := deadline - time.monotonic()) > 0:
            try:
                record = self._poll(wait_s, end=None)
            except _RemovedError:
                low, stable = self._watermarks()
                if self._position > stable:
                    raise
                # also where it does stand in the partition: what was said then is of an earlier place
                self._seek(max(offset, low))
                continue
            if record is not None and record.offset >= offset:
                return record
        return None

    def _poll(self, wait_s: float, *, end: int | None) -> TopicRecord | None:
        """One record; None in vain, or once the reader has come to ``end``."""
        deadline = time.monotonic() + wait_s
        while (left_s := deadline - time.monotonic()) > 0:
            message = _asking("reading", lambda: self._consumer.poll(left_s))
            if message is None:
                return None
            reported = message.error()
            offset = message.offset() or 0
            if reported is None:
                self._position = offset + 1
                return TopicRecord(offset, message.key(), message.value() or b"")
            if reported.code() == KafkaError._AUTO_OFFSET_RESET:
                raise _RemovedError(
                    "MR-3016", f"offset {self._position} is not there: {reported.str()}"
                )
            if reported.code() != KafkaError._PARTITION_EOF:
                raise error_of(reported.name(), reported.str(), doing="reading")
            self._position = max(self._position, offset)
            if end is not None and offset >= end:
                return None
        return None

    def _seek(self, offset: int) -> None:
        assignment = [TopicPartition(self._topic, PARTITION, offset)]
        _asking("assigning the partition", lambda: self._consumer.assign(assignment))
        self._position = offset

    def _pause(self) -> None:
        """Stop fetching until the next seek."""
        _asking("unassigning the partition", self._consumer.unassign)
        self._position = -1

    def close(self) -> None:
        """Release connections."""
        self._consumer.close()


class KafkaTopicAdmin:
    """Asks and creates; see ``driver.TopicAdmin``."""

    def __init__(self, common: Mapping[str, str | int | float], topic: str) -> None:
        self._topic = topic
        self._client = _asking(
            "making an admin client", lambda: AdminClient(dict(common), logger=_driver_log)
        )

    def settings(self) -> TopicSettings | None:
        """Partitions, cleanup.policy, max.message.bytes."""
        metadata = _asking(
            "asking for the topic", lambda: self._client.list_topics(self._topic, ASK_TIMEOUT_S)
        )
        found = metadata.topics[self._topic]
        if found.error is not None:
            if found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise error_of(found.error.name(), found.error.str(), doing="asking for the topic")
        resource = ConfigResource(ConfigResource.Type.TOPIC, self._topic)
        asked = self._client.describe_configs([resource], request_timeout=ASK_TIMEOUT_S)[resource]
        try:
            config = _asking("asking for the topic's settings", lambda: asked.result(ASK_TIMEOUT_S))
        except Retryable as missing:
            if missing.code == _NO_TOPIC_CODE:  # just made: not every broker knows it yet
                return None
            raise
        return TopicSettings(
            partition_count=len(found.partitions),
            cleanup_policy=config["cleanup.policy"].value,
            record_bytes_max=int(config["max.message.bytes"].value),
        )

    def create(self, record_bytes_max: int) -> None:
        """One partition, replicas as the broker's default."""
        topic = NewTopic(
            self._topic,
            num_partitions=1,
            config={"cleanup.policy": "delete", "max.message.bytes": str(record_bytes_max)},
        )
        created = self._client.create_topics([topic], operation_timeout=ASK_TIMEOUT_S)[self._topic]
        try:
            created.result(ASK_TIMEOUT_S)
        except TimeoutError as silence:
            raise Retryable("MR-3001", "no broker answered while creating the topic") from silence
        except KafkaException as failure:
            reported = failure.args[0]
            if reported.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise error_of(
                    reported.name(), reported.str(), doing="creating the topic"
                ) from failure
