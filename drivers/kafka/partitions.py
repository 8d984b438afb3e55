"""Many partitions of many topics with one client each: what they hold at their ends, and the topics themselves.

``drivers.kafka.reader`` reads one partition fast. Here a few records of each of many are read, with their headers.

Guarantees: each call returns a value or raises an error of its ``Errors``; each wait has a limit.
Not done here: what a record means.
"""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from millrace.drivers.kafka.access import KafkaAccess, Settings, driver_log
from millrace.drivers.kafka.errors import KINDS, SILENCE, Errors, Kind
from millrace.drivers.kafka.names import PUBLISHER_GROUP
from millrace.drivers.kafka.reader import (
    ASK_TIMEOUT_S,
    Ends,
    Retention,
    retention_of,
    topic_id_text,
)
from millrace.drivers.kafka.topic import TopicSettings, settings_of
from millrace.errors import MillraceError, Retryable

Place = tuple[str, int]  # a topic and its partition
K = TypeVar("K")

_READER: Settings = {
    "group.id": PUBLISHER_GROUP,
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "check.crcs": True,
    # a reader looks at ends: an answer without records must come soon, and nothing is fetched ahead
    "fetch.wait.max.ms": 5,
    "fetch.queue.backoff.ms": 1,
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 1024,
    "max.partition.fetch.bytes": 64 * 1024,
}
_POLL_S = 0.5
_LOOK_S = 0.02
_CHUNK_RECORDS = 2000
# `last_before` first looks at this many offsets: a record, and markers after it, which may be repeated
_LAST_OFFSETS = 8
_WIDER = 16


@dataclass(frozen=True, slots=True)
class HeaderedRecord:
    """``headers``: of several with one name, the last."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class FirstRecord:
    """``at_ms``: Kafka's time of the record. ``size``: of key, value and headers, before compression."""

    at_ms: int
    size: int


@dataclass(frozen=True, slots=True)
class TopicShape:
    """``topic_id``: as Kafka's tools print it; "" if the broker has no topic ids (before 2.8)."""

    topic_id: str
    partition_count: int
    has_leaders: bool


def places_of(shapes: Mapping[str, TopicShape]) -> list[Place]:
    """All partitions of these topics."""
    return [
        (name, partition)
        for name, shape in shapes.items()
        for partition in range(shape.partition_count)
    ]


class Topics:
    """Asks about many topics, and creates them."""

    def __init__(
        self, brokers: KafkaAccess, *, errors: Errors, timeout_s: float = ASK_TIMEOUT_S
    ) -> None:
        self._errors, self._timeout_s = errors, timeout_s
        settings: Settings = {"logger": driver_log, **brokers.settings()}
        self._client = errors.call("creating an admin client", lambda: AdminClient(settings))

    def shapes(self, names: Collection[str]) -> Mapping[str, TopicShape]:
        """The topics of these names that exist."""
        shapes = {}
        for name, topic in self._described(names).items():
            leaders = [partition.leader for partition in topic.partitions]
            shapes[name] = TopicShape(
                topic_id_text(topic.topic_id),
                len(leaders),
                all(leader is not None and leader.id >= 0 for leader in leaders),
            )
        return shapes

    def settings(self, names: Collection[str]) -> Mapping[str, TopicSettings]:
        """The settings of the topics of these names that exist."""
        described = self._described(names)
        return {
            name: settings_of(
                config, [len(partition.replicas) for partition in described[name].partitions]
            )
            for name, config in self._configs(described).items()
        }

    def names(self) -> tuple[str, ...]:
        """Every topic that the account sees."""
        answer = self._errors.call(
            "asking for all topics", lambda: self._client.list_topics(timeout=self._timeout_s)
        )
        return tuple(sorted(answer.topics))

    def retentions(self, names: Collection[str]) -> Mapping[str, Retention]:
        """How long each of these topics that exist keeps records. Fatal MR-7010 without the right DescribeConfigs."""
        return {name: retention_of(config) for name, config in self._configs(names).items()}

    def _configs(self, names: Collection[str]) -> Mapping[str, Any]:
        """Kafka's own answer for each of these topics that exist."""
        if not names:
            return {}
        doing = "asking for the settings of topics"
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
        answers = self._errors.call(
            doing,
            lambda: self._client.describe_configs(resources, request_timeout=self._timeout_s),
        )
        configs = {
            resource.name: self._answer(answer, doing, missing=Kind.TOPIC_MISSING)
            for resource, answer in answers.items()
        }
        return {name: config for name, config in configs.items() if config is not None}

    def _described(self, names: Collection[str]) -> Mapping[str, Any]:
        doing = "asking for topics"
        if not names:
            return {}
        answers = self._errors.call(
            doing,
            lambda: self._client.describe_topics(
                TopicCollection(list(names)), request_timeout=self._timeout_s
            ),
        )
        topics = {
            name: self._answer(answer, doing, missing=Kind.TOPIC_MISSING)
            for name, answer in answers.items()
        }
        return {name: topic for name, topic in topics.items() if topic is not None}

    def create(self, topics: Mapping[str, int], *, replicas: int, config: dict[str, str]) -> None:
        """Create topics with these numbers of partitions, unless another client creates them first.

        ``replicas`` -1: the broker's default, as for each setting that ``config`` does not have.
        """
        doing = "creating topics"
        wanted = [
            NewTopic(name, num_partitions=count, replication_factor=replicas, config=config)
            for name, count in topics.items()
        ]
        answers = self._errors.call(
            doing,
            lambda: self._client.create_topics(wanted, operation_timeout=self._timeout_s),
        )
        for answer in answers.values():
            self._answer(answer, doing, missing=None, allowed=("TOPIC_ALREADY_EXISTS",))

    def add_partitions(self, name: str, count: int) -> None:
        """Give the topic ``count`` partitions; it may have them already."""
        doing = f"adding partitions to topic {name}"
        answers = self._errors.call(
            doing, lambda: self._client.create_partitions([NewPartitions(name, count)])
        )
        for answer in answers.values():
            self._answer(answer, doing, missing=None, allowed=("INVALID_PARTITIONS",))

    def ends(self, places: Collection[Place]) -> Mapping[Place, Ends]:
        """The three ends of each partition."""
        if not places:
            return {}
        low = self._offsets(places, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)  # type: ignore[no-untyped-call]
        stable = self.stable_ends(places)
        high = self._offsets(places, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)  # type: ignore[no-untyped-call]
        return {place: Ends(low[place], stable[place], high[place]) for place in places}

    def ends_of_new(self, places: Collection[Place], *, within_s: float) -> Mapping[Place, Ends]:
        """``ends`` of topics that were just created: a broker lists a partition before it leads it."""
        deadline = time.monotonic() + within_s
        while True:
            try:
                return self.ends(places)
            except Retryable:
                if time.monotonic() > deadline:
                    raise
                # librdkafka keeps "no leader" until a request for metadata
                self._errors.call(
                    "asking for topics", lambda: self._client.list_topics(timeout=self._timeout_s)
                )
                time.sleep(_LOOK_S)

    def stable_ends(self, places: Collection[Place]) -> Mapping[Place, int]:
        """The end of each partition for read_committed readers."""
        return self._offsets(places, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)  # type: ignore[no-untyped-call]

    def _offsets(
        self, places: Collection[Place], spec: OffsetSpec, isolation: IsolationLevel
    ) -> Mapping[Place, int]:
        doing = "asking for the ends of partitions"
        wanted = {TopicPartition(*place): spec for place in places}
        answers = self._errors.call(
            doing,
            lambda: self._client.list_offsets(
                wanted, isolation_level=isolation, request_timeout=self._timeout_s
            ),
        )
        ends = {}
        for partition, answer in answers.items():
            offset = self._answer(answer, doing, missing=None).offset
            if offset < 0:  # so the client answers after its timeout, without an error
                silence = f"no answer within {self._timeout_s:g} s"
                raise self._errors.error(SILENCE, silence, doing=doing)
            ends[partition.topic, partition.partition] = int(offset)
        return ends

    def _answer(
        self, answer: Any, doing: str, *, missing: Kind | None, allowed: Collection[str] = ()
    ) -> Any:
        """The result of a future; None for an error of this kind or these names."""
        try:
            return self._errors.call(doing, lambda: answer.result(2 * self._timeout_s))
        except MillraceError as error:
            cause = error.__cause__
            name = cause.args[0].name() if isinstance(cause, KafkaException) else ""
            if name in allowed or (missing is not None and KINDS.get(name) is missing):
                return None
            raise


class PartitionsReader:
    """Reads records of many partitions, with ``is_committed`` only committed ones. For one thread at a time.

    ``settings`` are librdkafka's, for this reader.
    """

    def __init__(
        self,
        brokers: KafkaAccess,
        *,
        errors: Errors,
        is_committed: bool = True,
        settings: Settings | None = None,
    ) -> None:
        self._errors = errors
        isolation = "read_committed" if is_committed else "read_uncommitted"
        everything: Settings = {"logger": driver_log, **brokers.settings(), **_READER}
        everything |= {"isolation.level": isolation, **(settings or {})}
        self._consumer = errors.call("creating a consumer", lambda: Consumer(everything))

    def last(
        self, ranges: Mapping[Place, tuple[int, int]], *, within_s: float
    ) -> Mapping[Place, HeaderedRecord]:
        """The last committed record of each partition with start <= offset < stop, where there is one.

        A ``stop`` beyond the stable end is waited for. ``within_s``: how long none may come nearer to its stop.
        """
        last: dict[Place, HeaderedRecord] = {}

        def note(place: Place, record: HeaderedRecord) -> None:
            last[place] = record

        self.visit(ranges, note, within_s=within_s)
        return last

    def last_before(
        self, ends: Mapping[Place, Ends], *, within_s: float
    ) -> Mapping[Place, HeaderedRecord]:
        """The last committed record of each partition before its stable end, however far back it is."""
        last: dict[Place, HeaderedRecord] = {}
        width = _LAST_OFFSETS
        stops = {place: each.stable for place, each in ends.items() if each.low < each.stable}
        while stops:
            ranges = {
                place: (max(ends[place].low, stop - width), stop) for place, stop in stops.items()
            }
            last.update(self.last(ranges, within_s=within_s))
            stops = {
                place: start
                for place, (start, _) in ranges.items()
                if place not in last and start > ends[place].low
            }
            width *= _WIDER
        return last

    def visit(
        self,
        ranges: Mapping[Place, tuple[int, int]],
        note: Callable[[Place, HeaderedRecord], object],
        *,
        within_s: float,
    ) -> None:
        """``note`` each committed record with start <= offset < stop, in order in each partition."""
        stops = {place: stop for place, (start, stop) in ranges.items() if start < stop}
        if not stops:
            return
        starts = [TopicPartition(*place, ranges[place][0]) for place in stops]
        self._errors.call("assigning partitions", lambda: self._consumer.assign(starts))
        progress_s = time.monotonic()
        try:
            while stops:
                messages = self._consume()
                for message in messages:
                    self._note(message, stops, note)
                if messages:
                    progress_s = time.monotonic()
                elif time.monotonic() - progress_s > within_s:
                    (topic, partition), stop = next(iter(stops.items()))
                    late = (
                        f"offset {stop - 1} of partition {partition} of topic {topic} was not read"
                    )
                    raise self._errors.error(
                        SILENCE, f"{late} within {within_s:g} s", doing="reading"
                    )
        finally:
            self._errors.call("unassigning partitions", self._consumer.unassign)

    def firsts(
        self, ranges: Mapping[Place, tuple[int, int]], *, within_s: float
    ) -> Mapping[Place, FirstRecord]:
        """The first committed record of each partition with start <= offset < stop, where there is one.

        None of a partition whose ``start`` was removed meanwhile. ``within_s``: for all together.
        """
        firsts: dict[Place, FirstRecord] = {}
        stops = {place: stop for place, (start, stop) in ranges.items() if start < stop}
        if not stops:
            return firsts
        starts = [TopicPartition(*place, ranges[place][0]) for place in stops]
        self._errors.call("assigning partitions", lambda: self._consumer.assign(starts))
        until_s = time.monotonic() + within_s
        try:
            while stops:
                if time.monotonic() > until_s:
                    late = f"{len(stops)} partitions were not read within {within_s:g} s"
                    raise self._errors.error(SILENCE, late, doing="reading")
                passed = [self._note_first(one, stops, firsts) for one in self._consume()]
                ended = [TopicPartition(*place) for place in passed if place is not None]
                if ended:  # so that nothing more of them is fetched
                    drop = partial(self._consumer.incremental_unassign, ended)
                    self._errors.call("unassigning partitions", drop)
        finally:
            self._errors.call("unassigning partitions", self._consumer.unassign)
        return firsts

    def _note_first(
        self, message: Message, stops: dict[Place, int], firsts: dict[Place, FirstRecord]
    ) -> Place | None:
        """The partition, if nothing more is read of it."""
        place = (str(message.topic()), int(message.partition() or 0))
        error, stop = message.error(), stops.pop(place, None)
        if stop is None:
            return None
        if error is None:
            if (message.offset() or 0) < stop:
                pairs: Any = message.headers() or ()
                parts = [message.key(), message.value(), *(value for _, value in pairs)]
                size = sum(len(part) for part in parts if part)
                firsts[place] = FirstRecord(message.timestamp()[1], size)
        elif error.code() not in (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET):
            raise self._errors.error(error.name(), error.str(), doing="reading")
        return place

    def _consume(self) -> list[Message]:
        messages = self._errors.call("reading", lambda: self._consumer.consume(1, _POLL_S))
        if messages:  # with a timeout it would wait for all
            messages += self._errors.call(
                "reading", lambda: self._consumer.consume(_CHUNK_RECORDS, 0.0)
            )
        return messages

    def _note(
        self,
        message: Message,
        stops: dict[Place, int],
        note: Callable[[Place, HeaderedRecord], object],
    ) -> None:
        place = (str(message.topic()), int(message.partition() or 0))
        offset, stop = message.offset() or 0, stops.get(place, -1)
        error = message.error()
        if error is None:
            if offset < stop:
                pairs: Any = message.headers() or ()
                headers = {name: value or b"" for name, value in pairs}
                note(place, HeaderedRecord(offset, message.key(), message.value(), headers))
            reached = offset + 1
        elif error.code() == KafkaError._PARTITION_EOF:
            reached = offset
        else:
            raise self._errors.error(error.name(), error.str(), doing="reading")
        if reached >= stop:
            stops.pop(place, None)

    def close(self) -> None:
        self._consumer.close()
