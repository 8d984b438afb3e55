"""The output topics of a task: creates them, and reads the tails of their partitions.

    a partition …                                        its tail
    ends where the mark says                             the mark's
    has committed records after that end                 the headers of the last one
    has only aborted records and markers after it        the mark's, with the new end
    has lost records to retention, and has others left   the headers of the last one
    was emptied, and ends elsewhere                      Fatal MR-3104: nothing proves what it had
    has been compacted after that end, without a rest    Fatal MR-3104
    has been compacted, and has records left             the headers of the last one; n rises, with jumps
    ends before the mark's end, or does not follow it    Fatal MR-3105: the broker lost records
    belongs to another topic of the same name, or none   Fatal MR-3103
    ends with a record that is not the task's            Fatal MR-3102
    ends with a greater epoch                            Fenced MR-3010

Not done here: which slot owns a partition (``slot``); the contents of records.
"""

import time
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from millrace.consumer.publish.mark import Tail
from millrace.consumer.publish.outgoing import headers_of
from millrace.drivers.kafka.access import KafkaAccess
from millrace.drivers.kafka.names import transactional_id
from millrace.drivers.kafka.open_transactions import find_open_writer
from millrace.drivers.kafka.partitions import (
    HeaderedRecord,
    PartitionsReader,
    Place,
    Topics,
    TopicShape,
    places_of,
)
from millrace.drivers.kafka.producer import WRITING
from millrace.drivers.kafka.reader import Ends
from millrace.errors import Fatal, Fenced, Retryable
from millrace.faults import fault_point, register
from millrace.schemas.documents.model import progress_topic_of

BEFORE_CREATE = register("slot.before_create")
AFTER_CREATE = register("slot.after_create")

_LOOK_S = 0.01


@dataclass(frozen=True, slots=True)
class SlotLimits:
    """Timeouts and bounds of a slot; those of ``producer.publish.config`` for the same reasons."""

    retry_backoff_ms: int = 1000
    transaction_timeout_ms: int = 60_000
    publish_timeout_s: float = 20.0
    ask_timeout_s: float = 10.0  # one question about topics or their ends
    stable_timeout_s: float = 10.0
    audit_timeout_s: float = 30.0
    # the position of a task whose topic has no rows for it is stored at most this often
    position_interval_s: float = 1.0
    record_bytes_max: int = 64 * 1024 * 1024

    @property
    def suspicious_s(self) -> float:
        """A commit slower than this may hide a retry, whose late duplicate could end a later transaction."""
        return 0.8 * self.retry_backoff_ms / 1000


@dataclass(frozen=True, slots=True)
class OutputShape:
    """How an output topic is created. ``replicas`` -1 and missing settings: the broker's."""

    partitions: int = 1
    replicas: int = -1
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.config.get("cleanup.policy", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOrder:
    """A publish task under one lease. ``epoch``: the lease's. ``suffix``: of the names of a rebuild (``rebuild``)."""

    task: str
    epoch: int
    slots: int
    brokers: KafkaAccess
    worker: str
    shape: OutputShape = field(default_factory=OutputShape)
    compression: str = "gzip"
    limits: SlotLimits = field(default_factory=SlotLimits)
    suffix: str = ""

    @property
    def progress_topic(self) -> str:
        return progress_topic_of(self.task + self.suffix)


def slot_of(place: Place, slots: int) -> int:
    """The slot that owns an output partition."""
    topic, partition = place
    return (zlib.crc32(topic.encode()) + partition) % slots


class Outputs:
    """Reads the output partitions and the progress partitions of one task."""

    def __init__(self, order: TaskOrder) -> None:
        self._order, self._limits = order, order.limits
        self.topics = Topics(order.brokers, errors=WRITING, timeout_s=order.limits.ask_timeout_s)
        self.reader = PartitionsReader(order.brokers, errors=WRITING)
        self._compacted: dict[str, bool] = {}

    def close(self) -> None:
        self.reader.close()

    def tails(
        self, marked: Mapping[Place, Tail], *, abort: Callable[[Collection[Place]], None]
    ) -> dict[Place, Tail]:
        """The tail of each partition of the mark, once no Kafka transaction is open (``wait_stable``)."""
        self._check_topics(marked)
        ends = self.wait_stable(marked, abort=abort)
        tails, ranges = dict(marked), {}
        for place, tail in marked.items():
            end = ends[place]
            if end.stable < tail.end:
                raise _lost(place, tail, end)
            if end.stable > tail.end:
                ranges[place] = (max(tail.end, end.low), end.stable)
        within_s = self._limits.audit_timeout_s
        last = self.read_on(ranges, marked)
        rest = {
            place: ends[place]
            for place in ranges
            if place not in last and ends[place].low > marked[place].end
        }
        last.update(
            (place, self.read_tail(place, record))
            for place, record in self.reader.last_before(rest, within_s=within_s).items()
        )
        for place in ranges:
            tail, end = marked[place], ends[place]
            if place in last:
                tails[place] = replace(last[place], topic_id=tail.topic_id, end=end.stable)
            elif self._is_proven(place, tail, end):
                tails[place] = replace(tail, end=end.stable)
            else:
                raise Fatal(
                    "MR-3104",
                    f"{_name(place)} has lost its last records to retention or compaction",
                    remembered_end=tail.end,
                    end=end.stable,
                )
        return tails

    def _check_topics(self, marked: Mapping[Place, Tail]) -> None:
        shapes = self.topics.shapes({topic for topic, _ in marked})
        for (topic, _), tail in marked.items():
            shape = shapes.get(topic)
            if shape is None:
                raise Fatal("MR-3103", f"the topic {topic} no longer exists")
            if shape.topic_id != tail.topic_id:
                raise Fatal("MR-3103", f"the topic {topic} was deleted and created again")

    def _is_proven(self, place: Place, tail: Tail, end: Ends) -> bool:
        """Whether a partition without a record after the mark's end has got none since.

        A repeated marker is one offset. Kafka never compacts the newest records of a partition, except for tombstones.
        """
        if end.low > tail.end:
            return False
        is_compacted = self._order.shape.is_compacted or self._is_compacted(place[0])
        if not is_compacted or end.stable - tail.end == 1:
            return True
        with_aborted = PartitionsReader(self._order.brokers, errors=WRITING, is_committed=False)
        try:
            ranges = {place: (tail.end, end.stable)}
            return bool(with_aborted.last(ranges, within_s=self._limits.audit_timeout_s))
        finally:
            with_aborted.close()

    def read_on(
        self, ranges: Mapping[Place, tuple[int, int]], before: Mapping[Place, Tail]
    ) -> dict[Place, Tail]:
        """Read the committed records of these offsets: the last tail of each partition that has some.

        They must be the task's, and follow ``before`` without a gap if the range begins at its end. In a compacted
        topic ``n`` must rise: the records between may have been removed.
        """
        last: dict[Place, Tail] = {}

        def note(place: Place, record: HeaderedRecord) -> None:
            tail, previous = self.read_tail(place, record), last.get(place, before[place])
            is_next = tail.n == previous.n + 1
            has_later_begin = place not in last and ranges[place][0] > before[place].end
            if not is_next and (has_later_begin or self._is_compacted(place[0])):
                is_next = tail.n > previous.n
            if not is_next or (tail.seq, tail.part) <= (previous.seq, previous.part):
                raise Fatal(
                    "MR-3105",
                    f"{_name(place)} has record {tail.n} after record {previous.n}",
                    offset=record.offset,
                )
            last[place] = tail

        self.reader.visit(ranges, note, within_s=self._limits.audit_timeout_s)
        return last

    def _is_compacted(self, topic: str) -> bool:
        """Asked once for each topic: an operator may have changed the policy."""
        if topic not in self._compacted:
            settings = self.topics.settings([topic]).get(topic)
            self._compacted[topic] = settings is not None and settings.is_compacted
        return self._compacted[topic]

    def read_tail(self, place: Place, record: HeaderedRecord) -> Tail:
        """The tail in the headers of a record; Fatal MR-3102 if it is foreign, Fenced if a newer owner wrote it."""
        headers = headers_of(record.headers)
        if headers is None or headers.task != self._order.task.encode():
            raise Fatal(
                "MR-3102",
                f"{_name(place)} has a record that this task did not write",
                offset=record.offset,
            )
        if headers.epoch > self._order.epoch:
            raise fenced_by(headers.epoch, self._order, _name(place))
        return Tail("", record.offset + 2, headers.n, headers.seq, headers.part)

    def take_up(
        self, counts: Mapping[str, int], is_new: Callable[[Place], bool]
    ) -> dict[Place, Tail]:
        """The partitions that get their first record now; creates missing topics and partitions.

        ``counts``: of partitions that a topic needs at least. ``is_new``: whether a partition is the slot's and not in
        its mark. Fatal MR-3102 if one has records.
        """
        shapes = self._ensure(counts)
        ends = self.topics.ends([place for place in places_of(shapes) if is_new(place)])
        records = self.reader.last_before(ends, within_s=self._limits.audit_timeout_s)
        for place, end in ends.items():
            if place in records:
                self.read_tail(place, records[place])
            if place in records or end.low > 0:
                raise Fatal(
                    "MR-3102",
                    f"the topic {place[0]} has records that this task did not write",
                    partition=place[1],
                )
        return {place: Tail(shapes[place[0]].topic_id, end.stable) for place, end in ends.items()}

    def _ensure(self, counts: Mapping[str, int]) -> Mapping[str, TopicShape]:
        """The topics, which have at least the partitions of the document."""
        wanted = self._order.shape
        needed = {name: max(count, wanted.partitions) for name, count in counts.items()}
        shapes = self.topics.shapes(needed)
        missing = {name: count for name, count in needed.items() if name not in shapes}
        small = [name for name, one in shapes.items() if one.partition_count < needed[name]]
        if not missing and not small:
            return shapes
        fault_point(BEFORE_CREATE)
        if missing:
            config = {"max.message.bytes": str(self._limits.record_bytes_max), **wanted.config}
            self.topics.create(missing, replicas=wanted.replicas, config=config)
        for name in small:
            self.topics.add_partitions(name, needed[name])
        shapes = self.wait_created(needed)
        fault_point(AFTER_CREATE)
        return shapes

    def wait_created(self, counts: Mapping[str, int]) -> Mapping[str, TopicShape]:
        """The topics, once all have so many partitions, with leaders."""
        deadline = time.monotonic() + self._limits.stable_timeout_s
        while True:
            shapes = self.topics.shapes(counts)
            if len(shapes) == len(counts) and all(
                shape.has_leaders and shape.partition_count >= counts[name]
                for name, shape in shapes.items()
            ):
                break
            if time.monotonic() > deadline:
                raise Retryable("MR-3007", "created topics do not appear", topics=list(counts))
            time.sleep(_LOOK_S)
        self.topics.ends_of_new(places_of(shapes), within_s=self._limits.stable_timeout_s)
        return shapes

    def wait_stable(
        self, places: Collection[Place], *, abort: Callable[[Collection[Place]], None]
    ) -> Mapping[Place, Ends]:
        """The ends once no Kafka transaction is open. The abort for a previous owner takes milliseconds.

        If a broker lost the marker of one of the task's own, ``abort`` ends it (``producer.publish.opening`` has the
        reasons): Retryable MR-3001. Fatal MR-3013 if it is another writer's.
        """
        deadline = time.monotonic() + self._limits.stable_timeout_s
        while still := _still_open(ends := self.topics.ends(places)):
            if time.monotonic() > deadline:
                self._end_open(still, ends, abort)
            time.sleep(_LOOK_S)
        return ends

    def _end_open(
        self,
        places: list[Place],
        ends: Mapping[Place, Ends],
        abort: Callable[[Collection[Place]], None],
    ) -> None:
        own_ids = transactional_id(self._order.progress_topic).removesuffix("0")
        for place in places:
            topic, partition = place
            writer = find_open_writer(
                self._order.brokers, topic, offset=ends[place].stable, partition=partition
            )
            if writer and not writer.startswith(own_ids):
                raise _blocked_by(writer, place, ends[place].stable)
        abort(places)
        deadline = time.monotonic() + self._limits.stable_timeout_s
        while still := _still_open(self.topics.ends(places)):
            if time.monotonic() > deadline:
                raise _blocked_by("unknown", still[0], ends[still[0]].stable)
            time.sleep(_LOOK_S)
        raise Retryable(
            "MR-3001",
            f"the broker lost the end marker of our transaction in {_name(places[0])}",
            fix="Nothing to do: the transaction is aborted, and its records, which no reader saw, are sent again.",
        )


def _still_open(ends: Mapping[Place, Ends]) -> list[Place]:
    return [place for place, end in ends.items() if end.stable != end.high]


def fenced_by(epoch: int, order: TaskOrder, where: str) -> Fenced:
    """The error to raise if ``where`` has a greater epoch."""
    return Fenced(
        "MR-3010",
        f"epoch {epoch} has written to {where}; this owner has epoch {order.epoch}",
        epoch=order.epoch,
        found=epoch,
    )


def _blocked_by(writer: str, place: Place, stable_end: int) -> Fatal:
    return Fatal(
        "MR-3013",
        f"another writer holds a Kafka transaction open in {_name(place)} since offset {stable_end}",
        transactional_id=writer,
        stable_end=stable_end,
    )


def _lost(place: Place, tail: Tail, end: Ends) -> Fatal:
    return Fatal(
        "MR-3105",
        f"{_name(place)} ends at {end.stable}, but had verified records up to {tail.end}",
    )


def _name(place: Place) -> str:
    return f"partition {place[1]} of topic {place[0]}"
