"""Reads and verifies published topics at their brokers: all partitions of all topics at once, headers alone.

    PublishedTail   the records of a topic, for people
    TopicResult     one topic: the result of each partition, and how much of it was not read
    is_published    whether a topic has records of a publish task, not those of a capture task

One client reads all partitions, so the brokers send them in parallel; its queue bounds the memory. Kafka sends whole
records: the values of all of them pass the network once.
"""

import json
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass

from millrace.consumer.publish.mark import Definition, Mark, marks_in
from millrace.consumer.topic.verify_published import PartitionSummary, PartitionVerifier
from millrace.drivers.kafka.access import KafkaAccess, Settings
from millrace.drivers.kafka.names import READER_GROUP
from millrace.drivers.kafka.partitions import (
    HeaderedRecord,
    PartitionsReader,
    Place,
    Topics,
    places_of,
)
from millrace.drivers.kafka.reader import READ_TIMEOUT_S, READING, Ends, NoTopic

# for throughput; ``PartitionsReader`` is made for a few records at an end
_BULK: Settings = {
    "group.id": READER_GROUP,  # the group that a subscriber has the right to
    "fetch.wait.max.ms": 100,
    "fetch.queue.backoff.ms": 10,
    "queued.min.messages": 100_000,
    "queued.max.messages.kbytes": 64 * 1024,
    "max.partition.fetch.bytes": 1024 * 1024,
}
_LOOK_OFFSETS = 64


@dataclass(frozen=True, slots=True)
class TopicResult:
    """``partitions``: the result of each. ``ends``: what was read of it, and where its log ends.

    ``policy``: Kafka's ``cleanup.policy``. If it compacts, n proves nothing about missing records.
    """

    partitions: tuple[PartitionSummary, ...]
    ends: tuple[Ends, ...]
    policy: str

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.policy

    @property
    def violation_count(self) -> int:
        return sum(one.violation_count for one in self.partitions)

    @property
    def record_count(self) -> int:
        return sum(one.records for one in self.partitions)

    @property
    def hidden(self) -> int:
        """Offsets of Kafka transactions that have not ended, so nothing after them is read."""
        return sum(max(0, end.high - end.stable) for end in self.ends)


def is_published(brokers: KafkaAccess, topic: str) -> bool:
    """Whether the first record of a partition has the headers of a publish task."""
    topics = Topics(brokers, errors=READING)
    places = _places(topics, [topic])
    if len(places) > 1:
        return True
    ends = topics.ends(places)
    with closing(PartitionsReader(brokers, errors=READING, settings=_BULK)) as reader:
        headers: list[Mapping[str, bytes]] = []
        width = _LOOK_OFFSETS
        [(place, end)] = ends.items()
        start = end.low
        while start < end.stable and not headers:  # aborted records have offsets, too
            stop = min(start + width, end.stable)
            reader.visit(
                {place: (start, stop)},
                lambda _, record: headers.append(record.headers),
                within_s=READ_TIMEOUT_S,
            )
            start, width = stop, 4 * width
    return bool(headers) and "n" in headers[0]


@dataclass(frozen=True, slots=True)
class PublishedRecord:
    """A record of an output topic with its partition."""

    partition: int
    record: HeaderedRecord

    @property
    def seq(self) -> int:
        """The seq of the set topic; -1 in a foreign record."""
        seq = self.record.headers.get("seq", b"")
        return int(seq) if seq.isdigit() else -1

    def line(self) -> str:
        """One line of text: the place, seq and n, key and value."""
        n = self.record.headers.get("n", b"").decode("utf-8", "replace")
        key, value = (
            "-" if part is None else part.decode("utf-8", "replace")
            for part in (self.record.key, self.record.value)
        )
        return f"{self.partition}:{self.record.offset} seq={self.seq} n={n}  {key}  {value}"

    def plain(self) -> dict[str, object]:
        """A JSON object; a key or value that is no JSON is text."""
        record = self.record
        headers = {name: value.decode("utf-8", "replace") for name, value in record.headers.items()}
        return {
            "partition": self.partition,
            "offset": record.offset,
            "headers": headers,
            "key": _as_json(record.key),
            "value": _as_json(record.value),
        }


def _as_json(octets: bytes | None) -> object:
    try:
        return None if octets is None else json.loads(octets)
    except ValueError:
        return (octets or b"").decode("utf-8", "replace")


class PublishedTail:
    """Reads what all partitions of one output topic have got since the last call. For one thread."""

    def __init__(self, brokers: KafkaAccess, topic: str) -> None:
        self._topics = Topics(brokers, errors=READING)
        self._reader = PartitionsReader(brokers, errors=READING, settings=_BULK)
        self._ends = self._topics.ends(_places(self._topics, [topic]))
        self._next = {place: end.low for place, end in self._ends.items()}

    def skip_to_last(self, count: int) -> None:
        """Begin so late that each partition has about ``count`` records. Markers have offsets, too."""
        for place, end in self._ends.items():
            self._next[place] = max(end.low, end.stable - 2 * count)

    def read(self) -> list[PublishedRecord]:
        """The committed records, by seq."""
        stable = self._topics.stable_ends(list(self._next))
        records: list[PublishedRecord] = []
        ranges = {place: (self._next[place], stop) for place, stop in stable.items()}
        self._reader.visit(
            ranges,
            lambda place, record: records.append(PublishedRecord(place[1], record)),
            within_s=READ_TIMEOUT_S,
        )
        self._next |= stable
        return sorted(records, key=lambda one: one.seq)

    def close(self) -> None:
        """Release connections."""
        self._reader.close()


def topics_of(brokers: KafkaAccess, progress_topic: str) -> Mapping[Place, int]:
    """The output partitions of a task with the n of their last records, by its progress."""
    last: dict[Place, int] = {}
    for mark in _marks(brokers, progress_topic):
        for output, tail in mark.tails.items():
            last[output] = max(tail.n, last.get(output, 0))
    return last


def history_of(brokers: KafkaAccess, progress_topic: str) -> tuple[Definition, ...]:
    """The definitions that a task has written under, by its progress; () without it."""
    try:
        marks = _marks(brokers, progress_topic)
    except NoTopic:
        return ()
    return max((mark.definitions for mark in marks), key=len, default=())


def _marks(brokers: KafkaAccess, progress_topic: str) -> list[Mark]:
    topics = Topics(brokers, errors=READING)
    ends = topics.ends(_places(topics, [progress_topic]))
    ranges = {place: (end.low, end.stable) for place, end in ends.items()}
    with closing(PartitionsReader(brokers, errors=READING, settings=_BULK)) as reader:
        return list(marks_in(reader, ranges, within_s=READ_TIMEOUT_S).values())


def verify_topics(
    brokers: KafkaAccess,
    names: Collection[str],
    *,
    task: str = "",
    last_n: Mapping[Place, int] | None = None,
) -> dict[str, TopicResult]:
    """The result of each topic. ``task``: all records must be of it. ``last_n``: what its progress says."""
    topics = Topics(brokers, errors=READING)
    settings = topics.settings(names)
    policies = {name: one.cleanup_policy for name, one in settings.items()}
    ends = topics.ends(_places(topics, names))
    verifiers = {
        place: PartitionVerifier(
            task=task, from_beginning=end.low == 0, is_compacted=settings[place[0]].is_compacted
        )
        for place, end in ends.items()
    }
    with closing(PartitionsReader(brokers, errors=READING, settings=_BULK)) as reader:
        reader.visit(
            {place: (end.low, end.stable) for place, end in ends.items()},
            lambda place, record: verifiers[place].feed(record.offset, record.headers),
            within_s=READ_TIMEOUT_S,
        )
        after = topics.ends(list(ends))
    expected = last_n or {}
    results: dict[str, TopicResult] = {}
    for name in names:
        own = sorted(place for place in ends if place[0] == name)
        results[name] = TopicResult(
            tuple(verifiers[place].finish(n_at_least=expected.get(place, 0)) for place in own),
            tuple(verified_ends(ends[one], after[one]) for one in own),
            policies[name],
        )
    return results


def verified_ends(before: Ends, after: Ends) -> Ends:
    """The ends of a partition that was read up to ``before``. A transaction hides the offsets above its stable end.

    Only if the stable end is still the same ``after`` that: a running task writes meanwhile, and ends its transactions.
    """
    high = before.stable if after.stable > before.stable else after.high
    return Ends(before.low, before.stable, high)


def _places(topics: Topics, names: Collection[str]) -> list[Place]:
    """All partitions; an error if a topic does not exist."""
    shapes = topics.shapes(names)
    if missing := [name for name in names if name not in shapes]:
        raise NoTopic("MR-3501", f"the topic {missing[0]} does not exist", topic=missing[0])
    return places_of(shapes)
