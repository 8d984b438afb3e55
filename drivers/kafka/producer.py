"""A transactional producer: one instance with its producer epoch.

    after …                   the instance
    an error, a late answer   is discarded; a new one fences it with ``init``
    a newer instance's init   is fenced: each request is Fenced

Guarantees: each call returns a value or raises an error of its ``Errors``; ``timeout_s`` bounds each wait; a discarded
instance sends nothing more. The broker's answer to the commit confirms delivery, not per-record callbacks: librdkafka
refuses to commit a transaction in which a record failed.

The client is released by ``discard``, in the thread that calls it, and by nothing else: librdkafka's threads have ended
when it returns. Use it from one thread at a time.
Not done here: retries, new instances, the contents of records.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from importlib import metadata
from pathlib import Path

import confluent_kafka
import numpy as np
from confluent_kafka import KafkaError, KafkaException

from millrace.drivers.kafka.access import KafkaAccess, Settings, driver_log
from millrace.drivers.kafka.bulk import (
    BareClient,
    Bounds,
    Octets,
    Refusal,
    Unavailable,
    bare_client,
    queue_batch,
)
from millrace.drivers.kafka.errors import SILENCE, Errors, Kind, LastError
from millrace.drivers.kafka.headers import (
    KEY_END,
    KEY_START,
    VALUE_END,
    VALUE_START,
    Header,
    HeaderedRecords,
    queue_headered,
)
from millrace.drivers.kafka.headers import PARTITION as PARTITION_COLUMN
from millrace.drivers.kafka.headers import TOPIC as TOPIC_COLUMN
from millrace.drivers.kafka.reader import PARTITION, RecordRemoved
from millrace.drivers.kafka.wire import refuse_event_hubs
from millrace.errors import MillraceError

# queued per call: at 200 B, 1.6 MB are copied before the sender threads see them
_CHUNK_RECORDS = 8192
_CHUNK_BYTES = 32 * 1024 * 1024
_BACK_PRESSURE_S = 0.05  # one wait while the client's queue is full
FATAL_WAIT_S = 5.0  # for the cause of librdkafka's "fatal", which a callback reports soon after
# librdkafka's own queue. It is flushed when half of its bytes are used, so that no call finds it full.
_QUEUE_RECORDS_MAX = 1_000_000
_QUEUE_KBYTES_MAX = 512 * 1024


# librdkafka aborts the process if a producer is destroyed while it sends AddPartitionsToTxn: it counts the request
# after sending it, and its broker thread fails an uncounted one (rd_kafka_txn_handle_AddPartitionsToTxn, 2.16.1).
# It sends the request 1 ms after the first record of a transaction.
REGISTRATION_S = 0.05
_SETTINGS: Settings = {
    "enable.idempotence": True,
    "acks": "all",
    "delivery.report.only.error": True,
    "queue.buffering.max.messages": _QUEUE_RECORDS_MAX,
    "queue.buffering.max.kbytes": _QUEUE_KBYTES_MAX,
}


# The errors of every writer of a topic: capture's, and those of publish tasks.
#
#     branch     code      when
#     Retryable  MR-3001   the broker, or something that it needs, is unavailable
#     Retryable  MR-3002   the instance is unusable or the outcome unknown: a new instance and the tail decide
#     Fenced     MR-3003   a newer instance of the same transactional ID exists
#     Fatal      MR-3004   a record is over the limit
#     Fatal      MR-3005   delegation tokens, principals
#     Fatal      MR-3006   the broker or the client refuses a setting or has no such feature
#     Retryable  MR-3007   the topic does not exist (the next start decides about it)
#     Fatal      MR-3008   an error that a producer should never get
#     Retryable  MR-3016   the next record to read back is no longer in the partition
#
# Refused logins, certificates and rights are MR-70xx.
WRITING = Errors(
    code="MR-3008",
    codes={
        Kind.AWAY: "MR-3001",
        Kind.SPOILED: "MR-3002",
        Kind.FENCED: "MR-3003",
        Kind.OVERSIZE: "MR-3004",
        Kind.UNAUTHORIZED: "MR-3005",
        Kind.UNSUPPORTED: "MR-3006",
        Kind.TOPIC_MISSING: "MR-3007",
        Kind.TOPIC_REPLACED: "MR-3007",
        Kind.OFFSET_REMOVED: "MR-3016",
    },
    branches={Kind.OFFSET_REMOVED: RecordRemoved},
)


# Records as JSON cost 1.6 to 2.7 us of CPU each at level 1, and 5.3 to 7.4 us at zlib's default for a fifth less bytes
_LEVELS: Mapping[str, int] = {"gzip": 1}


def compression(codec: str) -> Settings:
    """The settings of a producer that compresses with ``codec``; "none" for none."""
    level = _LEVELS.get(codec)
    return {"compression.type": codec} | ({} if level is None else {"compression.level": level})


class TransactionalProducer:
    """One librdkafka producer. ``settings``: with ``client.id`` and ``transactional.id``. Fatal MR-3023 for Event Hubs.

    ``add`` and ``add_slices`` write ``topic`` and ``partition``, ``add_headered`` the partitions of the records.
    """

    def __init__(
        self,
        brokers: KafkaAccess,
        topic: str,
        *,
        errors: Errors,
        settings: Settings,
        timeout_s: float,
        partition: int = PARTITION,
    ) -> None:
        refuse_event_hubs(brokers)
        self._topic, self._partition = topic, partition
        self._errors, self._timeout_s = errors, timeout_s
        self._last_error = LastError()
        everything = {
            "logger": driver_log,
            **brokers.settings(),
            **_SETTINGS,
            **settings,
            "error_cb": self._last_error.note,
        }
        self._producer: confluent_kafka.Producer | None = errors.call(
            "creating a producer", lambda: confluent_kafka.Producer(everything)
        )
        self._queued_bytes = 0  # since the queue was last seen empty
        self._is_registering = False  # records are queued, and none of them is known to be accepted
        client = bare_client(
            self._producer,
            package=Path(confluent_kafka.__file__).parent,
            version=metadata.version("confluent-kafka"),
            name=str(settings["client.id"]),
        )
        self._client = client if isinstance(client, BareClient) else None
        self.slow_path = client.reason if isinstance(client, Unavailable) else ""

    @property
    def _live(self) -> confluent_kafka.Producer:
        """For one expression: a reference in a frame would outlive ``discard`` in an error's traceback."""
        if self._producer is None:
            raise self._errors.error("_STATE", "the instance has been discarded", doing="sending")
        return self._producer

    def init(self, *, within_s: float = 0.0) -> None:
        """Fence older instances, and end their transactions. ``within_s``: instead of ``timeout_s``."""
        wait_s = within_s or self._timeout_s
        self._errors.call("initialising transactions", lambda: self._live.init_transactions(wait_s))

    def learn(self, counts: Mapping[str, int]) -> None:
        """Wait until the client knows that these topics have at least so many partitions.

        It asks for a topic's partitions every five minutes, and refuses records for others until then.
        """
        doing, deadline = "asking for topics", time.monotonic() + self._timeout_s
        for name, count in counts.items():
            ask = partial(self._partition_count, name)
            while self._errors.call(doing, ask) < count:
                if time.monotonic() > deadline:
                    raise self._errors.error(
                        SILENCE, f"{name} has fewer than {count} partitions", doing=doing
                    )
                time.sleep(_BACK_PRESSURE_S)

    def _partition_count(self, name: str) -> int:
        return len(self._live.list_topics(name, self._timeout_s).topics[name].partitions)

    def begin(self) -> None:
        # a bound method would be a reference in a frame
        begin = lambda: self._live.begin_transaction()  # noqa: E731, PLW0108
        self._errors.call("beginning a Kafka transaction", begin)

    def add(self, records: Iterable[tuple[bytes | None, bytes | None]]) -> int | None:
        """Queue (key, value) records; the index of the first that is over the limit, else None."""
        self._is_registering = True
        for index, (key, value) in enumerate(records):
            if not self._queue(self._topic, self._partition, value, key):
                return index
        return None

    def add_slices(self, buffer: Octets, bounds: Bounds) -> int | None:
        """Queue slices of a buffer; the index of the first that is over the limit, else None."""
        self._is_registering |= len(bounds) > 0
        first = 0
        for stop in _chunk_stops(bounds):
            rows = bounds[first:stop]
            refused = self._add_bulk(buffer, rows) if self._client else self._add_rows(buffer, rows)
            if refused is not None:
                return first + refused
            first = stop
        return None

    def _add_bulk(self, buffer: Octets, rows: Bounds) -> int | None:
        """Queue all rows in one call. The queue has room for them."""
        assert self._client is not None
        self._make_room(rows)
        refusal = queue_batch(self._client, self._topic, self._partition, buffer, rows)
        return None if refusal is None else self._refused(refusal)

    def add_headered(self, records: HeaderedRecords) -> int | None:
        """Queue records for any partitions; the number of the first that is over the limit, else None."""
        self._is_registering |= len(records) > 0
        first = 0
        for stop in _chunk_stops(records.bounds):
            part = records.part(first, stop)
            refused = (
                self._add_bulk_headered(part) if self._client else self._add_rows_headered(part)
            )
            if refused is not None:
                return first + refused
            first = stop
        return None

    def _add_bulk_headered(self, records: HeaderedRecords) -> int | None:
        assert self._client is not None
        self._make_room(records.bounds)
        refusal = queue_headered(self._client, records)
        return None if refusal is None else self._refused(refusal)

    def _add_rows_headered(self, records: HeaderedRecords) -> int | None:
        """Queue each record in its own call, through the binding."""
        octets = records.buffer
        for number, line in enumerate(records.lines.tolist()):
            key = (
                octets[line[KEY_START] : line[KEY_END]].tobytes() if line[KEY_START] >= 0 else None
            )
            value = (
                octets[line[VALUE_START] : line[VALUE_END]].tobytes()
                if line[VALUE_END] >= 0
                else None
            )
            topic, headers = records.topics[line[TOPIC_COLUMN]], records.headers(number)
            if not self._queue(topic, line[PARTITION_COLUMN], value, key, headers):
                return number
        return None

    def _make_room(self, rows: Bounds) -> None:
        """Wait until the client's queue has room for the rows."""
        chunk_bytes = int(_sizes(rows).sum())
        is_full = self._queued_bytes + chunk_bytes > _QUEUE_KBYTES_MAX * 1024 // 2
        if is_full or len(self._live) + len(rows) > _QUEUE_RECORDS_MAX:
            self.flush()
        self._queued_bytes += chunk_bytes

    def _refused(self, refusal: Refusal) -> int:
        """The number of a record that is over the limit; otherwise raises."""
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
        produce, topic, partition = self._live.produce, self._topic, self._partition
        index = 0
        try:
            for key_start, key_end, value_start, value_end in rows:
                produce(
                    topic,
                    octets[value_start:value_end],
                    None if key_start < 0 else octets[key_start:key_end],
                    partition,
                )
                index += 1
        except (BufferError, KafkaException):
            pass  # the slow path below meets the same record again and handles it
        del produce
        for key_start, key_end, value_start, value_end in rows[index:]:
            key = None if key_start < 0 else octets[key_start:key_end]
            if not self._queue(topic, partition, octets[value_start:value_end], key):
                return index
            index += 1
        return None

    def _queue(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        key: bytes | None,
        headers: list[Header] | None = None,
    ) -> bool:
        """Queue one record, waiting while the client's queue is full; False if it is over the limit."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                self._live.produce(topic, value, key, partition, headers=headers)
            except BufferError as full:
                self._errors.call("sending records", lambda: self._live.poll(_BACK_PRESSURE_S))
                if time.monotonic() > deadline:
                    raise self._errors.error(
                        SILENCE, "the queue stays full", doing="sending records"
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
        doing = "queueing records"
        deadline = time.monotonic() + FATAL_WAIT_S
        while reported.code() == KafkaError._FATAL and time.monotonic() < deadline:
            try:
                self._errors.call(doing, lambda: self._live.poll(_BACK_PRESSURE_S))
            except MillraceError as cause:
                return cause
        return self._errors.error(reported.name(), reported.str(), doing=doing)

    def flush(self) -> None:
        """Wait until the broker has answered for each queued record."""
        outstanding = self._errors.call(
            "sending records", lambda: self._live.flush(self._timeout_s)
        )
        if outstanding:
            why = self._last_error.text or "it does not answer"
            raise self._errors.error(
                SILENCE,
                f"the broker has not accepted {outstanding} records in {self._timeout_s:g} s: {why}",
                doing="sending records",
            )
        self._queued_bytes = 0
        self._is_registering = False

    def commit(self) -> float:
        """Commit and return the seconds it took."""
        began = time.monotonic()
        self._errors.call("committing", lambda: self._live.commit_transaction(self._timeout_s))
        self._is_registering = False
        return time.monotonic() - began

    def abort(self) -> None:
        """Abort all open transactions of the transactional ID."""
        self._errors.call("aborting", lambda: self._live.abort_transaction(self._timeout_s))
        self._is_registering = False

    def discard(self) -> None:
        """Release the client, in this thread: nothing more is sent. Repeated calls do nothing.

        Not ``close`` of the driver: it would abort, and an abort is one more request that can be late.
        """
        producer, self._producer = self._producer, None
        if producer is None:
            return
        if self._client is not None:
            self._client.close()
        with suppress(KafkaException):  # the fatal error for which it was discarded
            producer.purge()
        if self._is_registering:
            time.sleep(REGISTRATION_S)
        del producer  # the last reference: librdkafka's threads end here


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
