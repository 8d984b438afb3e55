"""The set topic on a real broker: reads its partition, reads its settings, creates it.

Guarantees: each call returns a value or raises a Millrace error; each wait has a limit.
Not done here: retries, decisions about progress.
"""

import time
from collections.abc import Mapping
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ClusterMetadata,
    ConfigResource,
    NewTopic,
    OffsetSpec,
)

from drivers.kafka.access import Settings, driver_log
from drivers.kafka.names import PUBLISHER_GROUP
from millrace.errors import Retryable
from producer.publish.driver import PARTITION, Ends, TopicRecord, TopicSettings
from producer.publish.errors import error_of, kafka_call
from schemas.documents import TopicOptions

_NO_TOPIC_CODE = "MR-3007"
CONTACT_S = 5.0  # for the first answer of a broker: a wrong address is reported soon
ASK_TIMEOUT_S = 10.0  # one request to a broker that usually answers in a millisecond
# the reader skips up to this many records by reading on; beyond that by a new fetch
_FORWARD_RECORDS_MAX = 500

_READER_SETTINGS: Settings = {
    "group.id": PUBLISHER_GROUP,
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "check.crcs": True,
    "fetch.wait.max.ms": 100,
    "fetch.queue.backoff.ms": 1,
    # The audit follows a busy writer and must not prefetch all of it. At least one batch arrives, whatever its size.
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 1024,
    "max.partition.fetch.bytes": 64 * 1024,
    "receive.message.max.bytes": 1024 * 1024 * 1024,
}


class _RemovedError(Retryable):
    """The next record to read was removed from the partition (by retention or an operator), or never existed."""


class KafkaPartition:
    """A librdkafka consumer of partition 0, read_committed, without a group; see ``driver.Partition``."""

    def __init__(self, common: Mapping[str, str | int | float], topic: str) -> None:
        self._topic = topic
        self._common = dict(common)
        settings: Settings = {**self._common, **_READER_SETTINGS}
        self._consumer = kafka_call(
            "making a consumer", lambda: confluent_kafka.Consumer(settings, logger=driver_log)
        )
        self._admin: AdminClient | None = None  # for requests that a consumer cannot make
        self._position = -1  # the next offset that poll returns; -1: not assigned

    def ends(self) -> Ends:
        """All three ends of the partition."""
        low, stable = self._watermarks()
        if (
            self._admin is None
        ):  # kept, because a new one sometimes needs seconds for its first request
            self._admin = AdminClient(dict(self._common), logger=driver_log)
        admin, partition = self._admin, TopicPartition(self._topic, PARTITION)
        asked = kafka_call(
            "asking for the end of the log",
            lambda: admin.list_offsets(
                {partition: OffsetSpec.latest()},  # type: ignore[no-untyped-call]
                isolation_level=confluent_kafka.IsolationLevel.READ_UNCOMMITTED,
                request_timeout=ASK_TIMEOUT_S,
            )[partition].result(ASK_TIMEOUT_S),
        )
        if asked.offset < 0:  # the client's answer after its timeout, without an error
            self._admin = None
            raise Retryable("MR-3001", "the broker did not return the end of the log")
        return Ends(low, stable, asked.offset)

    def stable_end(self) -> int:
        """The last stable offset."""
        return self._watermarks()[1]

    def low_end(self) -> int:
        """The log start offset."""
        return self._watermarks()[0]

    def _watermarks(self) -> tuple[int, int]:
        partition = TopicPartition(self._topic, PARTITION)
        found = kafka_call(
            "asking for the stable end",
            lambda: self._consumer.get_watermark_offsets(partition, ASK_TIMEOUT_S),
        )
        if found is None:
            raise Retryable("MR-3001", "the broker did not return the end of the partition")
        low, stable = found
        return low, stable

    def read(self, start: int, stop: int) -> list[TopicRecord]:
        """The committed records of a range."""
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
        """The first record at or after ``offset``; it skips offsets that were removed meanwhile."""
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
                # also if the offset is in the partition: then the error was about an earlier position
                self._seek(max(offset, low))
                continue
            if record is not None and record.offset >= offset:
                return record
        return None

    def _poll(self, wait_s: float, *, end: int | None) -> TopicRecord | None:
        """One record; None after the time, or once the reader has reached ``end``."""
        deadline = time.monotonic() + wait_s
        while (left_s := deadline - time.monotonic()) > 0:
            message = kafka_call("reading", lambda: self._consumer.poll(left_s))
            if message is None:
                return None
            reported = message.error()
            offset = message.offset() or 0
            if reported is None:
                self._position = offset + 1
                return TopicRecord(offset, message.key(), message.value() or b"")
            if reported.code() == KafkaError._AUTO_OFFSET_RESET:
                raise _RemovedError(
                    "MR-3016", f"offset {self._position} is not in the partition: {reported.str()}"
                )
            if reported.code() != KafkaError._PARTITION_EOF:
                self._position = -1  # the client may have passed a damaged batch
                raise error_of(reported.name(), reported.str(), doing="reading")
            self._position = max(self._position, offset)
            if end is not None and offset >= end:
                return None
        return None

    def _seek(self, offset: int) -> None:
        assignment = [TopicPartition(self._topic, PARTITION, offset)]
        kafka_call("assigning the partition", lambda: self._consumer.assign(assignment))
        self._position = offset

    def _pause(self) -> None:
        """Stop fetching until the next seek."""
        kafka_call("unassigning the partition", self._consumer.unassign)
        self._position = -1

    def close(self) -> None:
        """Release connections."""
        self._consumer.close()


class KafkaTopicAdmin:
    """Inspects and creates the topic; see ``driver.TopicAdmin``."""

    def __init__(
        self, common: Mapping[str, str | int | float], topic: str, options: TopicOptions
    ) -> None:
        self._topic = topic
        self._options = options
        self._bootstrap = str(common["bootstrap.servers"])
        self._is_reached = False
        self._last_error = ""  # the client's last error about its connections
        settings: dict[str, Any] = {**common, "error_cb": self._note_error}
        self._client = kafka_call(
            "making an admin client", lambda: AdminClient(settings, logger=driver_log)
        )

    def _note_error(self, reported: KafkaError) -> None:
        """Note the client's error; of several, the one that names an address."""
        if reported.code() != KafkaError._ALL_BROKERS_DOWN or not self._last_error:
            self._last_error = reported.str()

    def settings(self) -> TopicSettings | None:
        """The settings that a start checks; None if there is no topic."""
        found = self._metadata().topics[self._topic]
        if found.error is not None:
            if found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise error_of(found.error.name(), found.error.str(), doing="asking for the topic")
        resource = ConfigResource(ConfigResource.Type.TOPIC, self._topic)
        asked = self._client.describe_configs([resource], request_timeout=ASK_TIMEOUT_S)[resource]
        try:
            config = kafka_call(
                "asking for the topic's settings", lambda: asked.result(ASK_TIMEOUT_S)
            )
        except Retryable as missing:
            if missing.code == _NO_TOPIC_CODE:  # just created: not all brokers know it yet
                return None
            raise
        return TopicSettings(
            partition_count=len(found.partitions),
            cleanup_policy=config["cleanup.policy"].value,
            record_bytes_max=int(config["max.message.bytes"].value),
            replication_factor=min(
                (len(partition.replicas) for partition in found.partitions.values()), default=0
            ),
            min_insync_replicas=int(config["min.insync.replicas"].value),
            retention_ms=int(config["retention.ms"].value),
        )

    def planned(self, record_bytes_max: int) -> TopicSettings:
        """The settings of the topic that ``create`` would make: the document's, else the broker's defaults."""
        broker = next(iter(self._metadata().brokers))
        resource = ConfigResource(ConfigResource.Type.BROKER, str(broker))
        asked = self._client.describe_configs([resource], request_timeout=ASK_TIMEOUT_S)[resource]
        config = kafka_call("asking for the defaults", lambda: asked.result(ASK_TIMEOUT_S))
        options = self._options
        return TopicSettings(
            partition_count=1,
            cleanup_policy="delete",
            record_bytes_max=record_bytes_max,
            replication_factor=options.replication_factor
            or int(config["default.replication.factor"].value),
            min_insync_replicas=options.min_insync_replicas
            or int(config["min.insync.replicas"].value),
            retention_ms=options.retention_ms or _retention_ms(config),
        )

    def _metadata(self) -> ClusterMetadata:
        wait_s = ASK_TIMEOUT_S if self._is_reached else CONTACT_S
        try:
            metadata = kafka_call(
                "asking for the topic", lambda: self._client.list_topics(self._topic, wait_s)
            )
        except Retryable as away:
            if self._is_reached or away.code != "MR-3001":
                raise
            self._client.poll(0)  # calls ``_note_error`` with the errors of its connections
            why = f": {self._last_error}" if self._last_error else ""
            raise Retryable(
                "MR-3001", f"no broker answers at {self._bootstrap} within {wait_s:g} s{why}"
            ) from away
        self._is_reached = True
        return metadata

    def create(self, record_bytes_max: int, *, is_trial: bool = False) -> None:
        """Create the topic with one partition; the broker's defaults hold for settings that the document does not
        have. ``is_trial``: the broker only says whether it would."""
        options = self._options
        config = {"cleanup.policy": "delete", "max.message.bytes": str(record_bytes_max)}
        if options.min_insync_replicas is not None:
            config["min.insync.replicas"] = str(options.min_insync_replicas)
        if options.retention_ms is not None:
            config["retention.ms"] = str(options.retention_ms)
        replicas = -1 if options.replication_factor is None else options.replication_factor
        topic = NewTopic(self._topic, num_partitions=1, replication_factor=replicas, config=config)
        created = self._client.create_topics(
            [topic], operation_timeout=ASK_TIMEOUT_S, validate_only=is_trial
        )[self._topic]
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

    def operations(self) -> frozenset[str]:
        """The operations on the topic that the account is allowed, such as ``WRITE``."""
        names = TopicCollection([self._topic])
        asked = self._client.describe_topics(
            names, include_authorized_operations=True, request_timeout=ASK_TIMEOUT_S
        )[self._topic]
        found = kafka_call("asking for the permissions", lambda: asked.result(ASK_TIMEOUT_S))
        return frozenset(operation.name for operation in found.authorized_operations or ())


def _retention_ms(config: Mapping[str, Any]) -> int:
    """The broker's default; the smallest unit that is set counts."""
    for unit, unit_ms in (("ms", 1), ("minutes", 60_000), ("hours", 3_600_000)):
        entry = config.get(f"log.retention.{unit}")
        if entry is not None and entry.value not in (None, ""):
            return max(-1, int(entry.value) * unit_ms)
    return -1
