"""The registry's store: a compacted topic of one partition, in Confluent's own layout of ``_schemas``.

    key     {"keytype": "SCHEMA", "subject": …, "version": …, "magic": 1}
    value   {"subject": …, "version": …, "id": …, "schema": …, "schemaType": "AVRO", "deleted": false}

One writer: the producer is transactional with the topic's name as its id, so a registry that starts fences the one
before it (Fenced MR-6023 there, at its next registration) before it reads. Reading is ``read_committed`` to the end.
The topic is made if it is missing; one with other settings is Fatal MR-6022. A broker in trouble is Retryable MR-6020.

    a crash …                     leaves
    before the commit is sent     nothing: the client asks again
    commit sent, answer lost      the entry, perhaps: the next start reads it, the same schema gets the same id

Keys never change their values, so compaction loses nothing. Not done here: Confluent's NOOP and CONFIG records.
"""

import json
import logging
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from millrace.errors import Fatal, Fenced, MillraceError, Retryable
from millrace.kafka import Settings, ask_kafka
from millrace.log import get_logger
from registry.catalog import Entry

T = TypeVar("T")

TOPIC = "_millrace_schemas"

_TIMEOUT_S = 20.0
_TAKE_OVER_S = 120.0  # a broker that has just started loads its coordinator first
_CONTACT_S = 10.0  # for the first answer of a broker: a wrong address is reported soon
_LINE_EVERY_S = 10.0  # at most one of the driver's own lines is logged in this time: it repeats one 20 times a second

_FIX = "Check --kafka and that the broker runs there, then start the registry again."

log = get_logger("registry.kafka")
_FENCED = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})


class _Driver(logging.Handler):
    """librdkafka's own lines, among ours and at a bounded rate."""

    def __init__(self) -> None:
        super().__init__()
        self._logged_at_s = float("-inf")

    def emit(self, record: logging.LogRecord) -> None:
        """Log it, or drop it."""
        now_s = time.monotonic()
        if now_s - self._logged_at_s >= _LINE_EVERY_S:
            self._logged_at_s = now_s
            log.warning("the Kafka client says", line=record.getMessage()[:500])


_driver_log = logging.getLogger("librdkafka.registry")
_driver_log.addHandler(_Driver())
_driver_log.propagate = False


class KafkaSchemaStore:
    """A ``SchemaStore``. ``append`` is for one thread at a time (the service sees to that)."""

    def __init__(
        self, bootstrap: str, *, topic: str = TOPIC, timeout_s: float = _TIMEOUT_S
    ) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._timeout_s = timeout_s
        self._producer: Producer | None = None

    def load(self) -> Iterator[Entry]:
        """Fence the writer before us, then everything in the topic."""
        self._ensure_topic()
        settings: Settings = {
            "bootstrap.servers": self._bootstrap,
            "transactional.id": f"registry/{self._topic}",
            "transaction.timeout.ms": int(self._timeout_s * 1000),
            "linger.ms": 0,
        }
        what = "the registry's topic can't be taken over"
        self._producer = producer = _call(what, lambda: Producer(settings, logger=_driver_log))
        _call(what, lambda: producer.init_transactions(_TAKE_OVER_S))
        return iter(self._read())

    def append(self, entry: Entry) -> None:
        """One Kafka transaction with one record."""
        producer = self._producer
        if producer is None:
            raise Fatal("MR-9001", "the registry's store was not loaded")

        def commit() -> None:
            producer.begin_transaction()
            producer.produce(self._topic, key=_key(entry), value=_value(entry), partition=0)
            producer.commit_transaction(self._timeout_s)

        _call(f"the schema of {entry.subject} was not stored", commit)

    def close(self) -> None:
        """Nothing is in flight between two appends."""
        self._producer = None

    def _ensure_topic(self) -> None:
        what = f"the registry's topic can't be looked at on {self._bootstrap}"
        found = _call(what, self._found_topic)
        if found is not None and found != (1, "compact"):
            partitions, policy = found
            raise Fatal(
                "MR-6022",
                f"topic {self._topic} has {partitions} partitions and cleanup.policy={policy}",
                topic=self._topic,
            )

    def _found_topic(self) -> tuple[int, str] | None:
        """Its partitions and cleanup.policy; ``None`` where it was missing and is made now."""
        admin = AdminClient({"bootstrap.servers": self._bootstrap}, logger=_driver_log)
        known = admin.list_topics(timeout=min(self._timeout_s, _CONTACT_S)).topics
        if self._topic not in known:
            wanted = NewTopic(self._topic, num_partitions=1, config={"cleanup.policy": "compact"})
            admin.create_topics([wanted])[self._topic].result(self._timeout_s)
            return None
        resource = ConfigResource(ConfigResource.Type.TOPIC, self._topic)
        settings = admin.describe_configs([resource])[resource].result(self._timeout_s)
        return len(known[self._topic].partitions), settings["cleanup.policy"].value

    def _read(self) -> list[Entry]:
        settings: Settings = {
            "bootstrap.servers": self._bootstrap,
            "group.id": f"registry-{self._topic}",  # asked for by the library, never used
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
        what = "the registry's topic can't be read"
        consumer = _call(what, lambda: Consumer(settings, logger=_driver_log))
        entries: list[Entry] = []
        deadline = time.monotonic() + self._timeout_s
        try:
            beginning = TopicPartition(self._topic, 0, OFFSET_BEGINNING)
            _call(what, lambda: consumer.assign([beginning]))
            while time.monotonic() < deadline:
                message = _call(what, lambda: consumer.poll(0.2))
                if message is None:
                    continue
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        return entries
                    raise _error(error.name(), f"{what}: {error.str()}")
                deadline = time.monotonic() + self._timeout_s
                entries += self._entry(message.value(), message.offset() or 0)
        finally:
            consumer.close()
        raise Retryable(
            "MR-6020", f"topic {self._topic} was not read to its end in {self._timeout_s} s"
        )

    def _entry(self, value: bytes | None, offset: int) -> list[Entry]:
        if value is None:
            return []
        try:
            stored = json.loads(value)
            return [
                Entry(
                    str(stored["subject"]),
                    int(stored["version"]),
                    int(stored["id"]),
                    str(stored["schema"]),
                )
            ]
        except (ValueError, LookupError, TypeError) as error:
            raise Fatal(
                "MR-6022", f"{self._topic} holds something else at offset {offset}: {error}"
            ) from error


def _key(entry: Entry) -> bytes:
    return json.dumps(
        {"keytype": "SCHEMA", "subject": entry.subject, "version": entry.version, "magic": 1}
    ).encode()


def _value(entry: Entry) -> bytes:
    return json.dumps(
        {
            "subject": entry.subject,
            "version": entry.version,
            "id": entry.id,
            "schema": entry.schema,
            "schemaType": "AVRO",
            "deleted": False,
        },
        ensure_ascii=False,
    ).encode()


def _call(what: str, ask: Callable[[], T]) -> T:
    """The result of ``ask``; an error of the driver, or silence, is raised as ours. ``what`` has failed then."""
    return ask_kafka(ask, explain=lambda name, detail: _error(name, f"{what}: {detail}"))


def _error(name: str, message: str) -> MillraceError:
    if name in _FENCED:
        return Fenced("MR-6023", f"{message}: another registry has started on the same topic")
    return Retryable("MR-6020", message, fix=_FIX)
