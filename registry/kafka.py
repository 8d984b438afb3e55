"""The registry's store: a compacted topic with one partition, in the layout of Confluent's ``_schemas``.

    key     {"keytype": "SCHEMA", "subject": …, "version": …, "magic": 1}
    value   {"subject": …, "version": …, "id": …, "schema": …, "schemaType": "AVRO", "deleted": false}

One writer: the topic's name is the transactional ID of the producer. A registry that starts fences its predecessor
before it reads. The predecessor fails with Fenced MR-6023 at its next registration. ``registry.ownership`` refuses a
start while another registry is alive.
The store reads ``read_committed`` to the end of the log. A start fails with MR-6020 while a transaction of another
program hides entries. It creates a missing topic; other settings than its own are Fatal MR-6022. Errors of the broker
are Retryable MR-6020.

    a crash …                     leaves
    before the commit is sent     nothing: the client asks again
    commit sent, answer lost      perhaps the entry: the next start reads it, and the same schema gets the same ID

A key never changes its value, so compaction loses nothing. Not done here: Confluent's NOOP and CONFIG records.
"""

import json
import time
from collections.abc import Iterator, Sequence

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from drivers.kafka.access import KafkaAccess, Settings
from drivers.kafka.names import REGISTRY_TOPIC, registry_id
from millrace.errors import Fatal, Retryable
from registry.broker import call_kafka, driver_log, kafka_error
from registry.catalog import Entry
from registry.ownership import Ownership

_TIMEOUT_S = 20.0
_TAKE_OVER_S = 120.0  # a broker that has just started loads its coordinator first
_OPEN_FIX = (
    "Another program has a Kafka transaction open in the topic: find it with `kafka-transactions.sh find-hanging`,"
    " abort it, and revoke its right to write. Then start the registry again."
)
_CONTACT_S = 10.0  # for the first answer of a broker, so that a wrong address is reported soon


class KafkaSchemaStore:
    """A ``SchemaStore``. ``append`` is for one thread at a time; the service guarantees that.

    Without ``ownership`` a start always fences its predecessor.
    """

    def __init__(
        self,
        brokers: KafkaAccess,
        *,
        topic: str = REGISTRY_TOPIC,
        ownership: Ownership | None = None,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        self._brokers = brokers
        self._topic = topic
        self._ownership = ownership
        self._timeout_s = timeout_s
        self._producer: Producer | None = None

    def load(self) -> Iterator[Entry]:
        """Fence the previous writer, then read the topic. Fatal MR-6025 if another registry serves it."""
        self._ensure_topic()
        if self._ownership is not None:
            self._ownership.claim()
        settings: Settings = {
            **self._brokers.settings(),
            "transactional.id": registry_id(self._topic),
            "transaction.timeout.ms": int(self._timeout_s * 1000),
            "linger.ms": 0,
        }
        what = "the registry's topic can't be taken over"
        self._producer = producer = call_kafka(what, lambda: Producer(settings, logger=driver_log))
        call_kafka(what, lambda: producer.init_transactions(_TAKE_OVER_S))
        return iter(self._read())

    def append(self, entries: Sequence[Entry]) -> None:
        """Write the entries in one Kafka transaction."""
        producer = self._producer
        if producer is None:
            raise Fatal("MR-9001", "the registry's store was not loaded")

        def commit() -> None:
            producer.begin_transaction()
            for entry in entries:
                producer.produce(self._topic, key=_key(entry), value=_value(entry), partition=0)
            producer.commit_transaction(self._timeout_s)

        call_kafka(f"the schema of {entries[0].subject} was not stored", commit)

    def close(self) -> None:
        """Stop owning the topic. Between two appends nothing is in flight."""
        self._producer = None
        if self._ownership is not None:
            self._ownership.release()

    def _ensure_topic(self) -> None:
        what = f"the registry's topic can't be read on {self._brokers.bootstrap}"
        found = call_kafka(what, self._found_topic)
        if found is not None and found != (1, "compact"):
            partitions, policy = found
            raise Fatal(
                "MR-6022",
                f"topic {self._topic} has {partitions} partitions and cleanup.policy={policy}",
                topic=self._topic,
            )

    def _found_topic(self) -> tuple[int, str] | None:
        """(partitions, cleanup.policy) of the topic; ``None`` if it was missing and has been created."""
        admin = AdminClient(self._brokers.settings(), logger=driver_log)
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
            **self._brokers.settings(),
            "group.id": registry_id(self._topic),  # required by the library; not joined here
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "check.crcs": True,
        }
        what = "the registry's topic can't be read"
        consumer = call_kafka(what, lambda: Consumer(settings, logger=driver_log))
        entries: list[Entry] = []
        end, reached = self._end(), -1
        deadline = time.monotonic() + self._timeout_s
        try:
            beginning = TopicPartition(self._topic, 0, OFFSET_BEGINNING)
            call_kafka(what, lambda: consumer.assign([beginning]))
            while time.monotonic() < deadline:
                message = call_kafka(what, lambda: consumer.poll(0.2))
                if message is None:
                    continue
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        reached = message.offset() or 0
                        if reached >= end:
                            return entries
                        continue  # a transaction that is open hides the rest
                    raise kafka_error(error.name(), f"{what}: {error.str()}")
                deadline = time.monotonic() + self._timeout_s
                entries += self._entry(message.value(), message.offset() or 0)
        finally:
            consumer.close()
        raise Retryable(
            "MR-6020",
            f"topic {self._topic} was read to offset {max(reached, 0)}, not to its end {end}, in {self._timeout_s:g} s",
            fix=_OPEN_FIX if reached >= 0 else "",
        )

    def _end(self) -> int:
        """The end of the log, past every transaction that is open.

        Only this registry writes, and its own transactions have ended. Another program's can hide entries, and their
        IDs would be given again.
        """
        what = f"the end of topic {self._topic} can't be read"
        admin = call_kafka(what, lambda: AdminClient(self._brokers.settings(), logger=driver_log))
        partition = TopicPartition(self._topic, 0)
        found = call_kafka(
            what,
            lambda: admin.list_offsets(
                {partition: OffsetSpec.latest()},  # type: ignore[no-untyped-call]
                isolation_level=IsolationLevel.READ_UNCOMMITTED,
                request_timeout=self._timeout_s,
            )[partition].result(self._timeout_s),
        )
        if found.offset < 0:  # the client's answer after its timeout, without an error
            raise Retryable("MR-6020", f"{what}: no answer within {self._timeout_s:g} s")
        return int(found.offset)

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
                "MR-6022", f"{self._topic} has a record of another kind at offset {offset}: {error}"
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
