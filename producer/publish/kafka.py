"""The clients of one set topic, and its transactional producer. ``kafka_topic`` reads the topic.

Guarantees: each call returns a value or raises a Millrace error; the limits of the config bound each wait; a discarded
instance sends nothing more. The broker's answer to the commit confirms delivery, not per-record callbacks: librdkafka
refuses to commit a transaction in which a record failed.
Not done here: retries, new instances, decisions about progress.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import confluent_kafka
import numpy as np
from confluent_kafka import KafkaError, KafkaException

from drivers.kafka.access import Settings, driver_log
from millrace.errors import MillraceError, Retryable
from producer.publish.bulk import BatchSender, Unavailable
from producer.publish.config import PublisherConfig
from producer.publish.driver import PARTITION, Bounds, Octets
from producer.publish.errors import error_of, kafka_call
from producer.publish.kafka_topic import KafkaPartition, KafkaTopicAdmin

# queued per call: at 200 B, 1.6 MB are copied before the sender threads see them
_CHUNK_RECORDS = 8192
_CHUNK_BYTES = 32 * 1024 * 1024
_BACK_PRESSURE_S = 0.05  # one wait while the client's queue is full
FATAL_WAIT_S = 5.0  # for the cause of librdkafka's "fatal", which a callback reports soon after
# librdkafka's own queue. It is flushed when half of its bytes are used, so that no call finds it full.
_QUEUE_RECORDS_MAX = 1_000_000
_QUEUE_KBYTES_MAX = 512 * 1024


class KafkaDriver:
    """Makes the clients of one topic of one cluster."""

    def __init__(self, config: PublisherConfig) -> None:
        self._config = config

    def _common(self) -> Settings:
        return {
            **self._config.brokers.settings(),
            "client.id": f"millrace-{self._config.worker}",
            "socket.nagle.disable": True,
            "reconnect.backoff.max.ms": 1000,
        }

    def admin(self) -> KafkaTopicAdmin:
        """The topic's admin client."""
        return KafkaTopicAdmin(self._common(), self._config.topic, self._config.options)

    def partition(self) -> KafkaPartition:
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
                "linger.ms": 20,  # `flush` ends it; measured: 5 ms makes bulk batches small and costs a quarter
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
        self._last_error = ""  # the client's last error about its connections, for messages only
        self._producer: confluent_kafka.Producer | None = kafka_call(
            "making a producer",
            lambda: confluent_kafka.Producer(
                {**settings, "error_cb": self._note_error}, logger=driver_log
            ),
        )
        self._queued_bytes = 0  # since the queue was last seen empty
        found = self._find_sender(str(settings["client.id"]))
        self._sender = found if isinstance(found, BatchSender) else None
        self.slow_path = found.reason if isinstance(found, Unavailable) else ""

    def _note_error(self, reported: KafkaError) -> None:
        """Note the client's error, for messages only: the call that failed also returns it."""
        self._last_error = f"{reported.name()} {reported.str()}"

    def _find_sender(self, name: str) -> BatchSender | Unavailable:
        return BatchSender.create(
            self._producer,
            package=Path(confluent_kafka.__file__).parent,
            version=metadata.version("confluent-kafka"),
            topic=self._topic,
            name=name,
        )

    @property
    def _live(self) -> confluent_kafka.Producer:
        if self._producer is None:
            raise Retryable("MR-3002", "the producer instance has been discarded")
        return self._producer

    def init(self) -> None:
        """Fence older instances."""
        producer = self._live
        kafka_call("initialising transactions", lambda: producer.init_transactions(self._timeout_s))

    def begin(self) -> None:
        """Begin a Kafka transaction."""
        kafka_call("beginning a Kafka transaction", self._live.begin_transaction)

    def add(self, records: Iterable[tuple[bytes | None, bytes]]) -> int | None:
        """Queue records; the index of the first over the limit."""
        for index, (key, value) in enumerate(records):
            if not self._queue(value, key):
                return index
        return None

    def add_slices(self, buffer: Octets, bounds: Bounds) -> int | None:
        """Queue slices; the index of the first over the limit."""
        first = 0
        for stop in _chunk_stops(bounds):
            rows = bounds[first:stop]
            refused = self._add_bulk(buffer, rows) if self._sender else self._add_rows(buffer, rows)
            if refused is not None:
                return first + refused
            first = stop
        return None

    def _add_bulk(self, buffer: Octets, rows: Bounds) -> int | None:
        """Queue all rows in one call. The queue has room for them."""
        assert self._sender is not None
        chunk_bytes = int(_sizes(rows).sum())
        is_full = self._queued_bytes + chunk_bytes > _QUEUE_KBYTES_MAX * 1024 // 2
        if is_full or len(self._live) + len(rows) > _QUEUE_RECORDS_MAX:
            self.flush()
        self._queued_bytes += chunk_bytes
        refusal = self._sender.queue(buffer, rows)
        if refusal is None:
            return None
        if refusal.code == KafkaError.MSG_SIZE_TOO_LARGE:
            return refusal.index
        raise self._not_queued(KafkaError(refusal.code))

    def _add_rows(self, buffer: Octets, rows: Bounds) -> int | None:
        """Queue each row in its own call, through the binding."""
        start = int(np.where(rows[:, 0] < 0, rows[:, 2], np.minimum(rows[:, 0], rows[:, 2])).min())
        octets = buffer[start : int(rows[:, 1::2].max())].tobytes()
        return self._add_octets(octets, (rows - start).tolist())

    def _add_octets(self, octets: bytes, rows: list[list[int]]) -> int | None:
        """The hot loop. A key start below 0 is -1 minus the chunk's start: no key."""
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
            pass  # the slow path below meets the same record again and handles it
        for key_start, key_end, value_start, value_end in rows[index:]:
            key = None if key_start < 0 else octets[key_start:key_end]
            if not self._queue(octets[value_start:value_end], key):
                return index
            index += 1
        return None

    def _queue(self, value: bytes, key: bytes | None) -> bool:
        """Queue one record, waiting while the client's queue is full; False if it is over the limit."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                self._live.produce(self._topic, value, key, PARTITION)
            except BufferError as full:
                producer = self._live
                kafka_call("sending records", lambda: producer.poll(_BACK_PRESSURE_S))  # noqa: B023
                if time.monotonic() > deadline:
                    raise Retryable(
                        "MR-3001", "the broker accepts no records: the queue stays full"
                    ) from full
            except KafkaException as failure:
                reported = failure.args[0]
                if reported.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                    return False
                raise self._not_queued(reported) from failure
            else:
                return True

    def _not_queued(self, reported: KafkaError) -> MillraceError:
        """The error for a refused record. For librdkafka's "fatal" it is the cause (such as fenced), which a
        callback reports."""
        producer, doing = self._live, "queueing records"
        deadline = time.monotonic() + FATAL_WAIT_S
        while reported.code() == KafkaError._FATAL and time.monotonic() < deadline:
            try:
                kafka_call(doing, lambda: producer.poll(_BACK_PRESSURE_S))
            except MillraceError as cause:
                return cause
        return error_of(reported.name(), reported.str(), doing=doing)

    def flush(self) -> None:
        """Wait for the broker's answers."""
        producer = self._live
        outstanding = kafka_call("sending records", lambda: producer.flush(self._timeout_s))
        if outstanding:
            raise Retryable(
                "MR-3001",
                f"the broker has not accepted {outstanding} records in {self._timeout_s:g} s: "
                + (self._last_error or "it does not answer"),
            )
        self._queued_bytes = 0

    def commit(self) -> float:
        """Commit and return the seconds it took."""
        producer = self._live
        began = time.monotonic()
        kafka_call("committing", lambda: producer.commit_transaction(self._timeout_s))
        return time.monotonic() - began

    def abort(self) -> None:
        """Abort."""
        producer = self._live
        kafka_call("aborting", lambda: producer.abort_transaction(self._timeout_s))

    def discard(self) -> None:
        """Purge and destroy the instance. Not ``close``: that would abort, and an abort is one more request that
        can be late."""
        producer, self._producer = self._producer, None
        if self._sender is not None:
            self._sender.close()
        if producer is not None:
            with suppress(KafkaException):  # the fatal error for which it was discarded
                producer.purge()


def _sizes(bounds: Bounds) -> Bounds:
    """The size of each record: key and value, in bytes."""
    keys = np.where(bounds[:, 0] < 0, 0, bounds[:, 1] - bounds[:, 0])
    sizes: Bounds = bounds[:, 3] - bounds[:, 2] + keys
    return sizes


def _chunk_stops(bounds: Bounds) -> Iterator[int]:
    """The ends of the chunks: bounded in records and bytes, at least one record each."""
    ends = np.cumsum(_sizes(bounds))
    first = 0
    while first < len(bounds):
        begun_bytes = int(ends[first - 1]) if first else 0
        fitting = int(np.searchsorted(ends, begun_bytes + _CHUNK_BYTES, side="right"))
        first = min(max(fitting, first + 1), first + _CHUNK_RECORDS, len(bounds))
        yield first
