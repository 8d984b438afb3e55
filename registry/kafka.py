"""The registry's store: a compacted topic with one partition, in the layout of Confluent's ``_schemas``.

    key     {"keytype": "SCHEMA", "subject": …, "version": …, "magic": 1}
    value   {"subject": …, "version": …, "id": …, "schema": …, "schemaType": "AVRO", "deleted": false}

One writer: the topic's name is the transactional ID of the producer. A registry that starts fences its predecessor
before it reads. The predecessor fails with Fenced MR-6023 at its next registration. ``registry.ownership`` refuses a
start while another registry is alive.
The store reads ``read_committed`` to the end of the log. A start fails with MR-6020 while a transaction of another
program hides entries. It creates a missing topic; other settings than its own are Fatal MR-6022. Errors of the broker
are Retryable MR-6020, and a request that it refuses is Fatal MR-6022.

    a crash …                     leaves
    before the commit is sent     nothing: the client asks again
    commit sent, answer lost      perhaps the entry: the next start reads it, and the same schema gets the same ID

A key never changes its value, so compaction loses nothing. Not done here: Confluent's NOOP and CONFIG records.

The first ID of an empty topic follows from Kafka's id of the topic: ``first_id_of``. Two topics have the same with a
probability of 1 in 200,000. A topic that has entries continues after its greatest ID.
"""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from hashlib import sha256

from millrace.drivers.kafka.access import KafkaAccess
from millrace.drivers.kafka.names import REGISTRY_TOPIC, registry_id
from millrace.drivers.kafka.producer import TransactionalProducer
from millrace.drivers.kafka.reader import TopicIdentity, TopicReader
from millrace.drivers.kafka.topic import TopicAdmin
from millrace.errors import Fatal, Retryable
from millrace.registry.broker import CLIENT, ERRORS
from millrace.registry.catalog import Entry
from millrace.registry.ownership import Ownership

_TIMEOUT_S = 20.0
_TAKE_OVER_S = 120.0  # a broker that has just started loads its coordinator first
_OPEN_FIX = (
    "Another program has a Kafka transaction open in the topic: find it with `kafka-transactions.sh find-hanging`,"
    " abort it, and revoke its right to write. Then start the registry again."
)
_LOOK_S = 0.1
_BLOCKS, _BLOCK_IDS = 200_000, 10_000  # the last ID of the last block is below 2^31


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
        self._producer: TransactionalProducer | None = None
        self.first_id = 1

    def load(self) -> Iterator[Entry]:
        """Fence the previous writer, then read the topic. Fatal MR-6025 if another registry serves it."""
        self._ensure_topic()
        if self._ownership is not None:
            self._ownership.claim()
        self._discard()  # of a load before: its outcome may be unknown
        self._producer = producer = TransactionalProducer(
            self._brokers,
            self._topic,
            errors=ERRORS,
            settings={
                **CLIENT,
                "transactional.id": registry_id(self._topic),
                "transaction.timeout.ms": int(self._timeout_s * 1000),
                "linger.ms": 0,
            },
            timeout_s=self._timeout_s,
        )
        producer.init(within_s=_TAKE_OVER_S)
        with closing(TopicIdentity(self._brokers, self._topic, errors=ERRORS)) as topic:
            self.first_id = first_id_of(topic.ask())
        return iter(self._read())

    def append(self, entries: Sequence[Entry]) -> None:
        producer = self._producer
        if producer is None:
            raise Fatal("MR-9001", "the registry's store was not loaded")
        producer.begin()
        refused = producer.add((_key(entry), _value(entry)) for entry in entries)
        if refused is not None:
            raise Fatal("MR-6022", f"the schema of {entries[refused].subject} is too large for it")
        producer.commit()

    def close(self) -> None:
        """Stop owning the topic. Between two appends nothing is in flight."""
        self._discard()
        if self._ownership is not None:
            self._ownership.release()

    def _discard(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.discard()

    def _ensure_topic(self) -> None:
        """Create a missing topic. Fatal MR-6022 for other settings than ours."""
        admin = TopicAdmin(
            self._brokers, self._topic, errors=ERRORS, cleanup_policy="compact", settings=CLIENT
        )
        settings = admin.settings()
        if settings is None:
            admin.create()
            deadline_s = time.monotonic() + self._timeout_s
            while admin.settings() is None and time.monotonic() < deadline_s:
                time.sleep(_LOOK_S)
        elif (settings.partition_count, settings.cleanup_policy) != (1, "compact"):
            raise Fatal(
                "MR-6022",
                f"topic {self._topic} has {settings.partition_count} partitions and"
                f" cleanup.policy={settings.cleanup_policy}",
                topic=self._topic,
            )

    def _read(self) -> list[Entry]:
        """All entries, past every transaction that is open.

        Only this registry writes, and its own transactions have ended. Another program's can hide entries, and their
        IDs would be given again.
        """
        settings = {**CLIENT, "group.id": registry_id(self._topic)}  # not joined here
        with closing(
            TopicReader(self._brokers, self._topic, errors=ERRORS, settings=settings)
        ) as reader:
            deadline_s = time.monotonic() + self._timeout_s
            while (ends := reader.all_ends()).stable < ends.high:
                if time.monotonic() > deadline_s:
                    raise Retryable(
                        "MR-6020",
                        f"topic {self._topic} can be read to offset {ends.stable}, not to its end {ends.high}",
                        fix=_OPEN_FIX,
                    )
                time.sleep(_LOOK_S)
            chunks = reader.chunks(ends.low, ends.stable, within_s=self._timeout_s)
            return [
                entry
                for chunk in chunks
                for one in chunk
                for entry in self._entry(one.value, one.offset)
            ]

    def _entry(self, value: bytes, offset: int) -> list[Entry]:
        if not value:  # deleted by another program
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


def first_id_of(topic_id: str) -> int:
    """The first ID of a new topic: the begin of one of many blocks. 1 if the broker has no topic ids."""
    if not topic_id:
        return 1
    number = int.from_bytes(sha256(topic_id.encode()).digest()[:8], "big")
    return (1 + number % _BLOCKS) * _BLOCK_IDS + 1


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
