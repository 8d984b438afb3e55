"""One slot of a publish task: writes records for the partitions it owns, each exactly once.

    step of a Kafka transaction                  a crash after it leaves
    1 the last one verified (rule 4)             nothing
    2 new topics created and put into the mark   topics without records, in the mark or not
    3 begin; the mark of the last transaction    an open transaction, which the next start aborts
    4 records                                    the same
    5 commit                                     all records, or those of some partitions if a late request tore it; the
                                                 next start reads each tail and resumes at the mark of the last one

``write`` leaves out what a partition has, so the caller may repeat any part of the set topic from ``position`` on. What
it repeats must give the same records: the same definition, the same ``seq`` and ``part``.

After an error a slot has released its clients: open another. One thread uses it at a time (``writer``).
Not done here: conversion; which records make a transaction; retries; the start of the task (``opening``).
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from millrace.consumer.kernel.compiled import Ints
from millrace.consumer.kernel.partitions import assign_numbers
from millrace.consumer.publish.mark import Mark, Position, Tail
from millrace.consumer.publish.outgoing import (
    COUNTERS,
    OTHER,
    OTHERS,
    PART,
    PARTITION,
    SEQ,
    TOPIC,
    VALUE_END,
    Outgoing,
)
from millrace.consumer.publish.outputs import Outputs, TaskOrder, slot_of
from millrace.consumer.publish.producers import OVERSIZE_CODE, SlotProducer, read_mark
from millrace.drivers.kafka.headers import HeaderedRecords
from millrace.drivers.kafka.partitions import HeaderedRecord, Place
from millrace.errors import Fatal, Retryable
from millrace.faults import fault_point, register
from millrace.log import get_logger

log = get_logger("consumer.publish")

AFTER_INIT = register("slot.after_init")
AFTER_TAILS = register("slot.after_tails")
BEFORE_MARK = register("slot.before_mark")
AFTER_MARK = register("slot.after_mark")
BEFORE_BEGIN = register("slot.before_begin")
AFTER_BEGIN = register("slot.after_begin")
MID_WRITE = register("slot.mid_write")
BEFORE_COMMIT = register("slot.before_commit")
AFTER_COMMIT = register("slot.after_commit")
AFTER_VERIFY = register("slot.after_verify")
BEFORE_RENEW = register("slot.before_renew")

_OF_OTHERS = ("MR-3102", "MR-3105")


@dataclass(frozen=True, slots=True)
class SlotOrder:
    """Slot number ``slot`` of a task that was started (``opening``) under the same epoch."""

    task: TaskOrder
    slot: int


@dataclass(slots=True)
class _Sent:
    """The tail of each partition after the Kafka transaction under way, or after the last one."""

    tails: dict[Place, Tail] = field(default_factory=dict)
    mark: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    is_open: bool = False


class Slot:
    """See the module's docstring. ``position`` is where the set topic is to be read from."""

    def __init__(self, order: SlotOrder, outputs: Outputs) -> None:
        self._order, self._slot, self._limits = order.task, order.slot, order.task.limits
        self._outputs = outputs
        self._constants = (
            ("task", order.task.task.encode()),
            ("epoch", b"%d" % order.task.epoch),
        )
        self._producer: SlotProducer | None = None
        self._mark = Mark()  # verified
        self._stored = Mark()  # as it is in the topic
        self._mark_end = 0  # of the progress partition
        self._sent = _Sent()
        self._next: Position | None = None  # committed, not verified yet
        self._commit_s = 0.0
        self._stored_at_s = time.monotonic()

    @classmethod
    def open(cls, order: SlotOrder) -> "Slot":
        """Fence older instances of this slot, and read what its partitions have."""
        slot = cls(order, Outputs(order.task))
        try:
            slot._start()
        except BaseException:
            slot._release()
            raise
        if slot._live.kafka.slow_path:
            log.warning("records are sent one by one", why=slot._live.kafka.slow_path)
        return slot

    @property
    def position(self) -> Position:
        """To here, the outputs have all records of the slot."""
        assert self._mark.position is not None
        return self._mark.position

    @property
    def mark(self) -> Mark:
        """The verified progress."""
        return self._mark

    def owns(self, topic: str, partition: int) -> bool:
        return slot_of((topic, partition), self._order.slots) == self._slot

    def _start(self) -> None:
        producer = self._producer = SlotProducer(self._order, self._slot)
        fault_point(AFTER_INIT)
        place = producer.place
        ends = self._outputs.wait_stable([place], abort=producer.abort_in)
        mark = read_mark(self._order, self._outputs, place, ends[place])
        if mark.epoch < self._order.epoch or mark.position is None:
            raise Fatal(
                "MR-3103", f"the topic {place[0]} was deleted, or created again, during a run"
            )
        marked = {place: tail for place, tail in mark.tails.items() if self.owns(*place)}
        tails = self._outputs.tails(marked, abort=producer.abort_in)
        fault_point(AFTER_TAILS)
        self._mark_end = ends[place].stable
        self._stored = mark
        self._mark = replace(mark, tails=tails)

    @property
    def _live(self) -> SlotProducer:
        if self._producer is None:
            raise Retryable("MR-3002", "the slot is closed; open another")
        return self._producer

    # ---- writing -------------------------------------------------------------------------------------

    def write(self, outgoing: Outgoing) -> int:
        """Queue the records that partitions of this slot do not have yet; how many. ``commit`` makes them visible."""
        with self._released_after_error():
            return self._write(outgoing)

    def _write(self, outgoing: Outgoing) -> int:
        if not self._sent.is_open:
            self._verify()
        lines = outgoing.lines
        places, rows = _places(outgoing)
        own = [place for place in places if self.owns(*place)]
        if new := [place for place in own if place not in self._mark.tails]:
            self._take_up(new)
        tails = [self._tail(place) for place in own]
        numbers_of = {place: number for number, place in enumerate(own)}
        own_rows = np.array([numbers_of.get(place, -1) for place in places], np.int64)
        ends = np.array([(tail.seq, tail.part, tail.n) for tail in tails], np.int64).reshape(-1, 3)
        before = ends[:, 2].copy()
        pairs = np.ascontiguousarray(lines[:, [SEQ, PART]])
        counts = assign_numbers(pairs, own_rows[rows] if len(places) else rows, ends)
        if counts.min(initial=0) < 0:
            raise Fatal("MR-9001", "records of a partition are not in the order of their seq")
        chosen = counts > 0
        if not chosen.any():
            return 0
        self._begin()
        own_lines = lines[chosen]
        sent = np.column_stack(
            [own_lines[:, : VALUE_END + 1], pairs[chosen], counts[chosen], own_lines[:, OTHER:]]
        )
        for number, place in enumerate(own):
            seq, part, n = ends[number].tolist()
            if n > before[number]:
                tail = tails[number]
                end = tail.end + n - tail.n
                self._sent.tails[place] = replace(tail, end=end, n=n, seq=seq, part=part)
        self._send(
            HeaderedRecords(
                outgoing.topics,
                outgoing.payload,
                sent,
                (*self._constants, *outgoing.headers),
                COUNTERS,
                OTHERS,
                outgoing.texts,
            )
        )
        return len(sent)

    def _tail(self, place: Place) -> Tail:
        """After the records that are queued."""
        return self._sent.tails.get(place) or self._mark.tails[place]

    def _send(self, records: HeaderedRecords) -> None:
        half = len(records) // 2
        for part in (records.part(0, half), records.part(half, len(records))):
            refused = self._live.kafka.add_headered(part) if len(part) else None
            if refused is not None:
                line = part.lines[refused]
                raise Fatal(
                    "MR-3106",
                    f"a record for topic {records.topics[line[TOPIC]]} is over the limit",
                    seq=int(line[VALUE_END + 1]),
                )
            fault_point(MID_WRITE)

    def _begin(self) -> None:
        """Step 3."""
        if self._sent.is_open:
            return
        fault_point(BEFORE_BEGIN)
        self._live.kafka.begin()
        self._sent = _Sent(is_open=True)
        fault_point(AFTER_BEGIN)
        self._add_mark()

    def _add_mark(self) -> None:
        changed = list(self._mark.records(self._stored).items())
        if self._live.kafka.add(changed) is not None:
            raise Fatal("MR-3106", f"the mark of slot {self._slot} is over the limit")
        self._sent.mark = changed
        self._stored = self._mark

    def _take_up(self, places: Iterable[Place]) -> None:
        """Step 2: rule 6. An open transaction is committed before, without a position."""
        if self._sent.is_open:
            self._commit()
        self._verify()
        tails, counts = self._mark.tails, dict[str, int]()
        for topic, partition in places:
            counts[topic] = max(counts.get(topic, 0), partition + 1)
        new = self._outputs.take_up(counts, lambda place: self.owns(*place) and place not in tails)
        self._live.kafka.learn(counts)
        self._mark = replace(self._mark, tails={**tails, **new})
        fault_point(BEFORE_MARK)
        self._store_mark()
        fault_point(AFTER_MARK)

    def _store_mark(self) -> None:
        """A Kafka transaction of the mark alone, verified."""
        self._live.kafka.begin()
        self._sent = _Sent(is_open=True)
        self._add_mark()
        self._commit()
        self._verify()

    # ---- committing ----------------------------------------------------------------------------------

    def flush(self) -> None:
        """Wait until the broker has what was written."""
        with self._released_after_error():
            self._live.kafka.flush()

    def commit(self, position: Position) -> None:
        """Commit what was written. To ``position``, all records of the set topic were written.

        Without records it is stored from time to time.
        """
        with self._released_after_error():
            self._commit_to(position)

    def _commit_to(self, position: Position) -> None:
        if self._sent.is_open:
            self._commit()
            self._next = position
            return
        self._verify()
        self._mark = replace(self._mark, position=position)
        is_due = time.monotonic() - self._stored_at_s >= self._limits.position_interval_s
        if is_due and self._mark.records(self._stored):
            self._store_mark()

    def _commit(self) -> None:
        kafka = self._live.kafka
        try:
            kafka.flush()
            fault_point(BEFORE_COMMIT)
            self._commit_s = kafka.commit()
        except Fatal as failure:
            if failure.code == OVERSIZE_CODE:
                raise Fatal("MR-3106", failure.message) from failure
            raise
        self._sent.is_open = False
        self._stored_at_s = time.monotonic()
        fault_point(AFTER_COMMIT)

    def verify(self) -> None:
        """Rule 4: read the last record of every partition that the last Kafka transaction touched.

        Retryable MR-3002 if one is missing: a late request tore the transaction.
        """
        with self._released_after_error():
            self._verify()

    def _verify(self) -> None:
        sent = self._sent
        if sent.is_open:
            raise Fatal("MR-9001", "a Kafka transaction is open")
        if not sent.tails and not sent.mark:
            return
        self._sent = _Sent()
        own = self._live.place
        ranges = {place: (tail.end - 1, tail.end) for place, tail in sent.tails.items()}
        if sent.mark:
            end = self._mark_end + len(sent.mark)
            ranges[own] = (end - 1, end)
        within_s = self._limits.audit_timeout_s
        records = self._outputs.reader.last(ranges, within_s=within_s)
        if sent.mark:
            self._verify_mark(sent.mark[-1], records.get(own))
        tails = {
            place: self._verified(place, tail, records.get(place))
            for place, tail in sent.tails.items()
        }
        self._mark = replace(
            self._mark,
            position=self._next or self._mark.position,
            tails={**self._mark.tails, **tails},
        )
        self._next = None
        fault_point(AFTER_VERIFY)
        if self._commit_s >= self._limits.suspicious_s:
            self._renew()

    def _verify_mark(self, last: tuple[bytes, bytes | None], record: HeaderedRecord | None) -> None:
        """``record``: where the last one of the mark is expected. It is later if a marker was repeated before it."""
        place = self._live.place
        if record is None or (record.key, record.value) != last:
            ranges = {place: (self._mark_end, self._outputs.topics.stable_ends([place])[place])}
            within_s = self._limits.audit_timeout_s
            record = self._outputs.reader.last(ranges, within_s=within_s).get(place)
            if record is None or (record.key, record.value) != last:
                raise _torn(place)
        self._mark_end = record.offset + 2  # and the marker

    def _verified(self, place: Place, tail: Tail, record: HeaderedRecord | None) -> Tail:
        """The tail with the end of the partition, if it has what was sent.

        If the last record is elsewhere, all are read: a marker was repeated, or another program wrote.
        """
        end = tail.end + 1  # the marker
        read = self._outputs.read_tail(place, record) if record is not None else None
        if read is None or not _is_same(read, tail):
            before = self._mark.tails
            end = self._outputs.topics.stable_ends([place])[place]
            read = self._outputs.read_on({place: (before[place].end, end)}, before).get(place)
            if read is None or not _is_same(read, tail):
                raise _torn(place)
        return replace(tail, end=end)

    def _renew(self) -> None:
        """Rule 7: replace the instance after a slow commit. The partitions must be as before."""
        fault_point(BEFORE_RENEW)
        mark = self._mark
        self._live.kafka.discard()
        self._start()
        if self._mark.tails != mark.tails:
            raise Retryable("MR-3002", "partitions changed while no Kafka transaction was open")
        self._mark = replace(self._mark, position=mark.position)
        self._commit_s = 0.0
        log.info("replaced the producer instance", slot=self._slot, epoch=self._order.epoch)

    @contextmanager
    def _released_after_error(self) -> Iterator[None]:
        _ = self._live
        try:
            yield
        except Fatal as error:
            if error.code in _OF_OTHERS and not self._sent.is_open:
                self._check_owner()
            self._release()
            raise
        except BaseException:
            self._release()
            raise

    def _check_owner(self) -> None:
        """Fenced if a newer instance exists: then the records of others may be its own."""
        try:
            self._live.kafka.begin()
            self._live.kafka.add(list(self._mark.records().items())[:1])
            self._live.kafka.flush()
            self._live.kafka.commit()
        except BaseException:
            self._release()
            raise

    def close(self) -> None:
        """Verify the last commit, store the mark, release all clients. Repeated calls do nothing."""
        if self._producer is None:
            return
        try:
            if not self._sent.is_open:
                self._verify()
                if self._mark.records(self._stored):
                    self._store_mark()
        finally:
            self._release()

    def discard(self) -> None:
        """Release all clients at once. Repeated calls do nothing."""
        self._release()

    def _release(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.kafka.discard()
        if producer is not None or self._mark == Mark():
            self._outputs.close()


def _is_same(tail: Tail, other: Tail) -> bool:
    return (tail.n, tail.seq, tail.part) == (other.n, other.seq, other.part)


def _torn(place: Place) -> Retryable:
    return Retryable(
        "MR-3002",
        f"partition {place[1]} of topic {place[0]} does not have the last records of a commit",
    )


def _places(outgoing: Outgoing) -> tuple[list[Place], Ints]:
    """The partitions of a batch, and for each line its number in them."""
    lines = outgoing.lines
    count = int(lines[:, PARTITION].max(initial=0)) + 1
    pairs, rows = np.unique(lines[:, TOPIC] * count + lines[:, PARTITION], return_inverse=True)
    return [(outgoing.topics[pair // count], pair % count) for pair in pairs.tolist()], rows
