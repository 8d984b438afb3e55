"""What stands in the topic of the source transaction that is published in part: its records, read back in order.

    … resolved │ schema row row resolved │ fence │ row row resolved │ fence      ← the tail; ``progress.open`` is set
      ^ in front of it      the part: rows and statements, in one or more Kafka transactions, under one or more owners

The front is looked for backwards in steps that double, then everything is read on from there, one record at a time.

Guarantees: all of the part, or an error: Fatal MR-3019 when retention took its beginning. Nobody else writes to the
partition meanwhile (the publisher is open). Not done here: comparing it with anything (``producer.resume``).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from millrace.errors import Fatal, Retryable
from producer.publish.driver import Partition, TopicRecord
from producer.publish.positions import Mark, Marks, Step
from producer.publish.tail import read_tail
from schemas.progress import OpenTransaction
from schemas.record.control import RecordKind
from schemas.record.framing import peek_kind

_OFFSETS_AT_FIRST = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedPart:
    """Between the offsets ``start`` (in front of it) and ``stop`` (behind it)."""

    partition: Partition
    marks: Marks
    opened: OpenTransaction
    start: int
    stop: int
    timeout_s: float

    def units(self) -> Iterator[bytes]:
        """The values of its rows and statements. Retryable MR-3016."""
        is_inside = False
        for record in _records(self.partition, self.start, self.stop, self.timeout_s):
            if not is_inside or peek_kind(record.value) is not RecordKind.ROW:
                found = self.marks.read(record.value)
                if not isinstance(found, Step) or found.gtid != self.opened.gtid:
                    continue
            is_inside = True
            yield record.value

    def close(self) -> None:
        """Release connections."""
        self.partition.close()


def find_part(
    partition: Partition, marks: Marks, opened: OpenTransaction, *, timeout_s: float
) -> PublishedPart:
    """The part of ``opened`` that stands there. Fatal MR-3019; Retryable MR-3016."""
    ends = partition.ends()
    tail = read_tail(partition, ends, marks)
    if tail is None or tail.progress.open != opened:
        raise Retryable("MR-3002", "the tail changed while no Kafka transaction was open")
    width = _OFFSETS_AT_FIRST
    while True:
        start = max(ends.low, tail.offset - width)
        if not _is_inside(partition, marks, opened, start, tail.offset, timeout_s):
            break
        if start == ends.low:
            raise Fatal(
                "MR-3019",
                f"the first rows of {opened.gtid} have gone from the topic",
                low=ends.low,
                gtid=opened.gtid,
                rows=opened.rows,
            )
        width *= 2
    return PublishedPart(
        partition=partition,
        marks=marks,
        opened=opened,
        start=start,
        stop=tail.offset,
        timeout_s=timeout_s,
    )


def _is_inside(
    partition: Partition,
    marks: Marks,
    opened: OpenTransaction,
    start: int,
    stop: int,
    timeout_s: float,
) -> bool:
    """Whether what follows ``start`` belongs to the part, so that its front lies before."""
    for record in _records(partition, start, stop + 1, timeout_s):
        match marks.read(record.value):
            case Mark(progress):
                return progress.open is not None and progress.open.gtid == opened.gtid
            case Step(gtid):
                return gtid == opened.gtid
    return True


def _records(
    partition: Partition, start: int, stop: int, timeout_s: float
) -> Iterator[TopicRecord]:
    """Committed records from ``start`` on, those before ``stop``; one stands at or behind ``stop - 1``."""
    offset = start
    while offset < stop:
        record = partition.next_record(offset, timeout_s=timeout_s)
        if record is None:
            raise Retryable("MR-3016", f"no record came from offset {offset} on", offset=offset)
        if record.offset >= stop:
            return
        yield record
        offset = record.offset + 1
