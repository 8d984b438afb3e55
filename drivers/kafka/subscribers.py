"""How far the named subscribers of a task's topics are: a few requests for all of them, each with a limit in time.

    the task's topics         one request for all names, one for the ends of their partitions, one for their settings
    the consumer groups       one request for all states, one client for the committed offsets of each group
    what a group has not read the first record of each partition that has some: its time, whether it is one at all

Offsets are not records: Kafka's markers and aborted records have offsets, too, and removed records of a compacted topic
keep theirs. So a lag is at least the records that wait. A partition with no record after the committed offset has none.

Guarantees: raises nothing that a broker can cause. What it can't find out is unknown, with the reason.
"""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from millrace.drivers.kafka.groups import Groups
from millrace.drivers.kafka.partitions import (
    FirstRecord,
    PartitionsReader,
    Place,
    Topics,
    places_of,
)
from millrace.drivers.kafka.reader import READING, Ends, Retention
from millrace.drivers.kafka.retention import Growth, time_to_loss_s
from millrace.errors import MillraceError, Retryable
from millrace.schemas.documents import TaskDocument, address_of
from millrace.schemas.documents.subscriber import Subscriber, is_topic_of
from millrace.schemas.stages import GroupState, SubscriberStage

ANSWER_S = 10.0  # one request
READ_S = 10.0  # the first records of all partitions of one subscriber


@dataclass(frozen=True, slots=True)
class _Topics:
    """The topics of a task: the ends of their partitions, and how long each keeps records; without it, unknown."""

    ends: Mapping[Place, Ends]
    retentions: Mapping[str, Retention]
    why: str = ""

    def read_by(self, subscriber: Subscriber) -> dict[Place, Ends]:
        return {place: ends for place, ends in self.ends.items() if subscriber.reads(place[0])}


class SubscriberMeter:
    """Measures the subscribers of one task, again and again. For one thread."""

    def __init__(self, task: TaskDocument) -> None:
        self._task, self._brokers = task, address_of(task).brokers
        self._former: tuple[float, Mapping[Place, Ends]] = (0.0, {})  # when, and the ends then

    def measure(self, subscribers: Sequence[Subscriber]) -> tuple[SubscriberStage, ...]:
        """One stage for each. After an error that may pass, such as a coordinator that has moved, it asks once more."""
        try:
            try:
                return self._measured(subscribers)
            except Retryable:
                return self._measured(subscribers)
        except MillraceError as error:
            return tuple(_unknown(one, str(error)) for one in subscribers)

    def _measured(self, subscribers: Sequence[Subscriber]) -> tuple[SubscriberStage, ...]:
        groups = Groups(self._brokers, errors=READING, timeout_s=ANSWER_S)
        states = groups.states()
        topics = self._topics(subscribers)
        pace = self._pace(topics.ends)
        with closing(PartitionsReader(self._brokers, errors=READING)) as reader:
            measure = _Measure(groups, reader, topics, pace)
            return tuple(
                measure.stage(one, states.get(one.group, GroupState.MISSING)) for one in subscribers
            )

    def _topics(self, subscribers: Sequence[Subscriber]) -> _Topics:
        topics = Topics(self._brokers, errors=READING, timeout_s=ANSWER_S)
        names = [
            name
            for name in topics.names()
            if any(is_topic_of(one, self._task, name) for one in subscribers)
        ]
        ends = topics.ends(places_of(topics.shapes(names)))
        try:
            return _Topics(ends, topics.retentions(names))
        except MillraceError as error:
            return _Topics(ends, {}, str(error))

    def _pace(self, ends: Mapping[Place, Ends]) -> Mapping[Place, float]:
        """Offsets a second of each partition since the last measurement."""
        now_s = time.monotonic()
        (then_s, former), self._former = self._former, (now_s, ends)
        return {
            place: (each.stable - former[place].stable) / max(now_s - then_s, 1.0)
            for place, each in ends.items()
            if place in former
        }


@dataclass(frozen=True, slots=True)
class _Measure:
    groups: Groups
    reader: PartitionsReader
    topics: _Topics
    pace: Mapping[Place, float]

    def stage(self, subscriber: Subscriber, state: GroupState) -> SubscriberStage:
        """Unknown in part if the brokers refuse or do not answer."""
        ends = self.topics.read_by(subscriber)
        if not ends:
            return replace(_unknown(subscriber, "none of its topics exists yet"), state=state)
        try:
            committed = self._committed(subscriber, ends)
        except MillraceError as error:
            return replace(
                _unknown(subscriber, str(error)), topics=len({topic for topic, _ in ends})
            )
        if committed is None:
            why = "the account may not see the consumer group (Describe)"
            unknown = _unknown(subscriber, why)
            return replace(unknown, topics=len({topic for topic, _ in ends}))
        read = committed
        if not read and state is GroupState.EMPTY:
            state = GroupState.NEVER_READ
        starts = {
            place: min(max(read.get(place, 0), each.low), each.stable)
            for place, each in ends.items()
        }
        stage = SubscriberStage(
            name=subscriber.name,
            group=subscriber.group,
            state=state,
            lag=sum(ends[place].stable - start for place, start in starts.items()),
            lost=sum(max(ends[place].low - offset, 0) for place, offset in read.items()),
            topics=len({topic for topic, _ in ends}),
            begun=len({topic for topic, _ in read}),
            measured_ms=time.time_ns() // 1_000_000,
            why=self.topics.why,
        )
        waiting = {place: (start, ends[place].stable) for place, start in starts.items()}
        try:
            firsts = self.reader.firsts(waiting, within_s=READ_S)
        except MillraceError as error:
            return replace(stage, why=str(error))
        return self._with_times(stage, waiting, firsts, read)

    def _committed(
        self, subscriber: Subscriber, places: Collection[Place]
    ) -> Mapping[Place, int] | None:
        """Asks once more if a broker is no longer, or not yet, the group's coordinator."""
        try:
            return self.groups.offsets(subscriber.group, places)
        except Retryable:
            return self.groups.offsets(subscriber.group, places)

    def _with_times(
        self,
        stage: SubscriberStage,
        waiting: Mapping[Place, tuple[int, int]],
        firsts: Mapping[Place, FirstRecord],
        read: Collection[Place],
    ) -> SubscriberStage:
        """The stage with what the first records say."""
        lag = sum(stop - start for place, (start, stop) in waiting.items() if place in firsts)
        stage = replace(stage, lag=lag)
        if firsts:
            oldest = min(firsts, key=lambda place: firsts[place].at_ms)
            stage = replace(stage, oldest_ms=firsts[oldest].at_ms, oldest_topic=oldest[0])
        now_ms = stage.measured_ms
        if stage.lost:
            return replace(stage, loss_at_ms=now_ms)
        left_s = min(self._losses(waiting, firsts, read, now_ms=now_ms), default=None)
        return replace(stage, loss_at_ms=0 if left_s is None else now_ms + round(left_s * 1000))

    def _losses(
        self,
        waiting: Mapping[Place, tuple[int, int]],
        firsts: Mapping[Place, FirstRecord],
        read: Collection[Place],
        *,
        now_ms: int,
    ) -> Iterator[float]:
        """How long each partition keeps what the group has not read. Only of partitions that it reads."""
        for place in read:
            retention, first = self.topics.retentions.get(place[0]), firsts.get(place)
            if retention is None:
                continue
            age_s, growth = 0.0, Growth()
            if first is not None:
                start, stop = waiting[place]
                age_s = max(now_ms - first.at_ms, 0) / 1000
                pace = self.pace.get(place)
                bytes_s = None if pace is None else pace * first.size
                growth = Growth((stop - start) * first.size, bytes_s)
            left_s = time_to_loss_s(retention, age_s=age_s, growth=growth)
            if left_s is not None:
                yield left_s


def _unknown(subscriber: Subscriber, why: str) -> SubscriberStage:
    return SubscriberStage(
        name=subscriber.name,
        group=subscriber.group,
        state=GroupState.UNKNOWN,
        measured_ms=time.time_ns() // 1_000_000,
        why=why,
    )
