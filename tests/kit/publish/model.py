"""A model of Kafka for the slots of a publish task: transactions over many partitions, markers, fencing, late requests.

    fate of a commit    what happens                                                     the producer returns
    OK                  committed                                                        at once
    SLOW                committed                                                        after 5 s
    TORN                aborted in some partitions, as by a late request to abort        at once
    LOST                committed, the answer is lost                                    Retryable
    UNSENT              nothing until the next instance aborts it                        Retryable

Markers take an offset; some are written twice. The real code runs over ``patched``.
A test may remove records: ``lows``, or an ``Entry`` without record. Not done here: elections, time.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from random import Random

import pytest

from millrace.consumer.publish import outputs, producers
from millrace.consumer.topic import published
from millrace.drivers.kafka.access import KafkaAccess, Settings
from millrace.drivers.kafka.errors import Errors
from millrace.drivers.kafka.headers import NUMBERS, HeaderedRecords
from millrace.drivers.kafka.partitions import (
    HeaderedRecord,
    PartitionsReader,
    Place,
    Topics,
    TopicShape,
)
from millrace.drivers.kafka.reader import Ends
from millrace.drivers.kafka.topic import TopicSettings
from millrace.errors import Fenced, Retryable

SLOW_S = 5.0


class Fate(Enum):
    OK = auto()
    SLOW = auto()
    TORN = auto()
    LOST = auto()
    UNSENT = auto()


@dataclass
class Entry:
    """One offset. A marker has no record."""

    record: HeaderedRecord | None
    writer: str = ""  # while its transaction is open
    is_aborted: bool = False


@dataclass
class ModelBroker:
    """``fates`` gives that of each commit. ``bootstrap`` makes it a ``KafkaAccess``."""

    random: Random
    fates: Callable[[], Fate] = lambda: Fate.OK
    bootstrap: str = "model"
    topics: dict[str, int] = field(default_factory=dict)
    logs: dict[Place, list[Entry]] = field(default_factory=dict)
    instances: dict[str, object] = field(default_factory=dict)
    lows: dict[Place, int] = field(default_factory=dict)  # 0 where nothing was removed
    ids: dict[str, str] = field(default_factory=dict)  # of topics; else their names
    policies: dict[str, str] = field(default_factory=dict)  # of topics; else delete
    record_bytes_max: int = 1 << 20  # Kafka's default

    def settings(self) -> Settings:
        """None."""
        return {}

    def log(self, place: Place) -> list[Entry]:
        """The entries of a partition, which must exist."""
        assert place[1] < self.topics[place[0]], place
        return self.logs.setdefault(place, [])

    def stable(self, place: Place) -> int:
        """The end before the first open transaction."""
        log = self.log(place)
        return next((offset for offset, entry in enumerate(log) if entry.writer), len(log))

    def end(self, writer: str, places: Collection[Place], *, commit: bool) -> None:
        """End the open transaction of ``writer`` in these partitions."""
        for place in places:
            log = self.log(place)
            for entry in log:
                if entry.writer == writer:
                    entry.writer, entry.is_aborted = "", not commit
            log += [Entry(None)] * (2 if self.random.random() < 0.1 else 1)

    def open_places(self, writer: str) -> list[Place]:
        """Where a writer has an open transaction."""
        return [
            place
            for place, log in sorted(self.logs.items())
            if any(entry.writer == writer for entry in log)
        ]


def _broker(access: KafkaAccess) -> ModelBroker:
    assert isinstance(access, ModelBroker)
    return access


class ModelTopics(Topics):
    """``Topics`` of the model."""

    def __init__(self, brokers: KafkaAccess, *, errors: Errors, timeout_s: float = 1.0) -> None:
        self._broker = _broker(brokers)

    def shapes(self, names: Collection[str]) -> Mapping[str, TopicShape]:
        """All partitions have leaders."""
        topics, ids = self._broker.topics, self._broker.ids
        return {
            name: TopicShape(ids.get(name, name), topics[name], True)
            for name in names
            if name in topics
        }

    def settings(self, names: Collection[str]) -> Mapping[str, TopicSettings]:
        """One replica."""
        topics, policies = self._broker.topics, self._broker.policies
        return {
            name: TopicSettings(topics[name], policies.get(name, "delete"), 1 << 20, 1, 1, -1)
            for name in names
            if name in topics
        }

    def create(self, topics: Mapping[str, int], *, replicas: int, config: dict[str, str]) -> None:
        """Unless they exist."""
        self._broker.topics = {**topics, **self._broker.topics}

    def add_partitions(self, name: str, count: int) -> None:
        """Up to ``count``."""
        self._broker.topics[name] = max(self._broker.topics[name], count)

    def ends(self, places: Collection[Place]) -> Mapping[Place, Ends]:
        """As the log is."""
        broker, lows = self._broker, self._broker.lows
        return {
            place: Ends(lows.get(place, 0), broker.stable(place), len(broker.log(place)))
            for place in places
        }

    def stable_ends(self, places: Collection[Place]) -> Mapping[Place, int]:
        """The ends of readers."""
        return {place: self._broker.stable(place) for place in places}


class ModelReader(PartitionsReader):
    """``PartitionsReader`` of the model."""

    def __init__(
        self,
        brokers: KafkaAccess,
        *,
        errors: Errors,
        is_committed: bool = True,
        settings: Settings | None = None,
    ) -> None:
        self._broker, self._is_committed = _broker(brokers), is_committed

    def visit(
        self,
        ranges: Mapping[Place, tuple[int, int]],
        note: Callable[[Place, HeaderedRecord], object],
        *,
        within_s: float,
    ) -> None:
        """Retryable if a range is not there yet."""
        for place, (start, stop) in ranges.items():
            if stop > self._broker.stable(place):
                raise Retryable("MR-3001", "no record comes")
            assert start >= self._broker.lows.get(place, 0), f"{place} at {start}"
            for entry in self._broker.log(place)[start:stop]:
                if entry.record is not None and not (entry.is_aborted and self._is_committed):
                    note(place, entry.record)

    def close(self) -> None:
        """Nothing."""


class ModelProducer:
    """``TransactionalProducer`` of the model."""

    slow_path = ""

    def __init__(
        self,
        brokers: KafkaAccess,
        topic: str,
        *,
        errors: Errors,
        settings: Settings,
        timeout_s: float,
        partition: int,
    ) -> None:
        self._broker, self._own = _broker(brokers), (topic, partition)
        self._id = str(settings["transactional.id"])

    def init(self) -> None:
        """Fence the former instance, and abort its transaction."""
        self._broker.instances[self._id] = self
        self._broker.end(self._id, self._broker.open_places(self._id), commit=False)

    def _live(self) -> ModelBroker:
        if self._broker.instances.get(self._id) is not self:
            raise Fenced("MR-3003", "a newer instance exists")
        return self._broker

    def learn(self, counts: Mapping[str, int]) -> None:
        """They exist."""
        assert all(self._broker.topics[name] >= count for name, count in counts.items())

    def begin(self) -> None:
        """A former transaction must have ended."""
        assert not self._live().open_places(self._id)

    def _append(
        self, place: Place, key: bytes | None, value: bytes | None, headers: Mapping[str, bytes]
    ) -> None:
        log = self._live().log(place)
        log.append(Entry(HeaderedRecord(len(log), key, value, headers), self._id))

    def add(self, records: Iterable[tuple[bytes | None, bytes | None]]) -> int | None:
        """Into the progress topic."""
        for number, (key, value) in enumerate(records):
            if len(value or b"") > self._broker.record_bytes_max:
                return number
            self._append(self._own, key, value, {})
        return None

    def add_headered(self, records: HeaderedRecords) -> int | None:
        """Into any partitions."""
        octets = records.buffer.tobytes()
        for number, line in enumerate(records.lines.tolist()):
            topic, partition, key, key_end, value, value_end = line[:NUMBERS]
            headers = {
                name: one if isinstance(one, bytes) else b""
                for name, one in records.headers(number)
            }
            self._append(
                (records.topics[topic], partition),
                None if key < 0 else octets[key:key_end],
                None if value_end < 0 else octets[value:value_end],
                headers,
            )
        return None

    def flush(self) -> None:
        """Fenced, or nothing."""
        self._live()

    def commit(self) -> float:
        """As the broker's next fate says."""
        broker, fate = self._live(), self._broker.fates()
        places = broker.open_places(self._id)
        if fate is Fate.UNSENT:
            raise Retryable("MR-3002", "the request was not sent")
        torn = [place for place in places if fate is Fate.TORN and broker.random.random() < 0.5]
        broker.end(self._id, torn, commit=False)
        broker.end(self._id, [place for place in places if place not in torn], commit=True)
        if fate is Fate.LOST:
            raise Retryable("MR-3002", "the answer is lost")
        return SLOW_S if fate is Fate.SLOW else 0.001

    def abort(self) -> None:
        """End it."""
        self._broker.end(self._id, self._live().open_places(self._id), commit=False)

    def discard(self) -> None:
        """A transaction stays open."""


@contextmanager
def patched() -> Iterator[None]:
    """Slots use the model."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (outputs, published):
            patch.setattr(module, "Topics", ModelTopics)
            patch.setattr(module, "PartitionsReader", ModelReader)
        patch.setattr(producers, "TransactionalProducer", ModelProducer)
        yield
