"""A plain subscriber: confluent_kafka's consumer with read_committed, and the registry over HTTP.

``Subscriber`` reads from an offset in a thread while servers are killed and come back. ``read_again`` reads the same
offsets once more. Both keep a digest of each record, and the digests must be equal.
"""

import hashlib
import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPException

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka import Message as KafkaMessage

from tests.kit.waiting import answered
from tests.oracle.record import Message, Schema, parse_schema, read_message

ASK_S = 300.0  # for a server that restarts, and for all reads on a busy machine
POLL_S = 0.2
DIGEST_BYTES = 8
_PASSING = {"_ALL_BROKERS_DOWN", "_TRANSPORT", "_TIMED_OUT", "_RESOLVE", "REQUEST_TIMED_OUT"}
_PASSING |= {"LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "NOT_LEADER_OR_FOLLOWER"}
_PASSING |= {"COORDINATOR_NOT_AVAILABLE", "BROKER_NOT_AVAILABLE", "OFFSET_NOT_AVAILABLE"}


@dataclass(frozen=True, slots=True)
class Topic:
    """The topic to read; ``registry`` is a URL."""

    bootstrap: str
    name: str
    registry: str


@dataclass(slots=True)
class Registry:
    """Schemas by ID, each requested once; requests are retried while the registry is down."""

    url: str
    known: dict[int, Schema] = field(default_factory=dict)

    def schema(self, number: int) -> Schema:
        """The schema of this ID."""
        if number not in self.known:
            path = f"/schemas/ids/{number}"
            answer = answered(lambda: self._get(path), OSError, HTTPException)
            self.known[number] = parse_schema(json.loads(answer)["schema"])
        return self.known[number]

    def _get(self, path: str) -> bytes:
        with urllib.request.urlopen(self.url + path, timeout=5) as answer:
            return bytes(answer.read())


def _consumer(topic: Topic) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": topic.bootstrap,
            "group.id": "ledger-oracle",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "log_level": 0,
            "reconnect.backoff.max.ms": 500,
        }
    )


def end_of(topic: Topic) -> int:
    """The end of the committed records."""
    consumer = _consumer(topic)
    try:
        _, stable = consumer.get_watermark_offsets(TopicPartition(topic.name, 0), timeout=ASK_S)
        return int(stable)
    finally:
        consumer.close()


def records(
    topic: Topic, start: int, is_over: Callable[[int], bool]
) -> Iterator[tuple[int, bytes | None, bytes]]:
    """Offset, key and value of each committed record from ``start`` on; ends when ``is_over(position)`` at the end."""
    consumer = _consumer(topic)
    consumer.assign([TopicPartition(topic.name, 0, start)])
    position = start
    try:
        while True:
            found: KafkaMessage | None = consumer.poll(POLL_S)
            if found is None:
                if is_over(position):
                    return
                continue
            if (error := found.error()) is None:
                offset, value = found.offset(), found.value()
                assert offset is not None
                assert value is not None, f"offset {offset}: no value"
                position = offset + 1
                yield offset, found.key(), value
            elif error.code() == KafkaError._PARTITION_EOF:
                position = max(position, found.offset() or 0)
                if is_over(position):
                    return
            else:
                assert error.name() in _PASSING, error
    finally:
        consumer.close()


def digest(key: bytes | None, value: bytes) -> bytes:
    """The digest of a record's bytes."""
    return hashlib.sha256(b"\0" if key is None else b"\1" + key + value).digest()[:DIGEST_BYTES]


@dataclass(slots=True)
class Reading:
    """The records that were read: offsets and digests, in order."""

    seen: list[tuple[int, bytes]] = field(default_factory=list)

    def note(self, offset: int, key: bytes | None, value: bytes) -> None:
        """Add a record."""
        self.seen.append((offset, digest(key, value)))

    def check_begins(self, other: "Reading") -> None:
        """``other`` must begin with this reading; AssertionError names the first record that differs."""
        for mine, theirs in zip(self.seen, other.seen, strict=False):
            assert mine == theirs, f"read first: offset {mine[0]}; read again: offset {theirs[0]}"
        assert len(self.seen) <= len(other.seen), (
            f"offset {self.seen[len(other.seen)][0]} was read first and is missing when read again"
        )


class Subscriber:
    """Reads in a thread and passes each message to ``feed`` until ``stop``, which raises errors of ``feed``."""

    def __init__(self, topic: Topic, start: int, feed: Callable[[Message], None]) -> None:
        self.reading = Reading()
        self.position = start
        self._topic = topic
        self._start = start
        self._feed = feed
        self._until: int | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="ledger-subscriber", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, until: int) -> None:
        """End when offset ``until`` is reached; raises the thread's error."""
        self._until = until
        self._thread.join(ASK_S)
        if self._failure is not None:
            raise self._failure
        assert not self._thread.is_alive(), f"the subscriber is at {self.position}, not at {until}"

    @property
    def is_reading(self) -> bool:
        """True until ``stop`` or ``abandon``."""
        return self._until is None

    @property
    def has_failed(self) -> bool:
        """Whether the thread failed; ``stop`` raises its error."""
        return self._failure is not None

    def abandon(self) -> None:
        """End immediately and keep ``reading``."""
        if self._until is None:
            self._until = -1
        self._thread.join(ASK_S)

    def _run(self) -> None:
        registry = Registry(self._topic.registry)
        try:
            for offset, key, value in records(self._topic, self._start, self._is_over):
                self.reading.note(offset, key, value)
                self._feed(read_message(offset, value, registry.schema))
                if self._until == -1:
                    return
        except BaseException as failure:  # noqa: BLE001 - raised again by ``stop``
            self._failure = failure

    def _is_over(self, position: int) -> bool:
        self.position = position
        return self._until is not None and position >= self._until


def read_again(topic: Topic, start: int, end: int, reading: Reading) -> Iterator[Message]:
    """Yield every message in [start, end) and add it to ``reading``."""
    registry = Registry(topic.registry)
    deadline = time.monotonic() + ASK_S

    def is_over(position: int) -> bool:
        assert time.monotonic() < deadline or position >= end, f"read to {position}, not to {end}"
        return position >= end

    for offset, key, value in records(topic, start, is_over):
        if offset >= end:
            return
        reading.note(offset, key, value)
        yield read_message(offset, value, registry.schema)
