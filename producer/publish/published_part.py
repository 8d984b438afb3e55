"""The published part of a source transaction: its records in the topic, read back in order.

    … resolved │ schema row row resolved │ fence │ row row resolved │ fence      ← the tail; ``progress.open`` is set
      ^ before it           the part: rows and statements, in one or more Kafka transactions, of one or more owners

The start is searched backwards in steps that double. From there the records are read forward, one at a time.

Guarantees: the whole part, or an error: Fatal MR-3019 if retention removed its beginning. No other writer changes the
partition meanwhile (the publisher is open). Not done here: comparing the part (``producer.task.resume``).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from millrace.drivers.kafka.reader import TopicRecord
from millrace.errors import Fatal, Retryable
from millrace.producer.publish.driver import Partition
from millrace.producer.publish.positions import ChangeRecord, Codec, ProgressRecord
from millrace.producer.publish.tail import read_tail
from millrace.schemas.progress import OpenTransaction
from millrace.schemas.record.control import RecordKind
from millrace.schemas.record.framing import peek_kind

_OFFSETS_AT_FIRST = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedPart:
    """The records between the offsets ``start`` (before the part) and ``stop`` (after it)."""

    partition: Partition
    codec: Codec
    opened: OpenTransaction
    start: int
    stop: int
    timeout_s: float

    def units(self) -> Iterator[bytes]:
        """The values of its rows and statements. Retryable MR-3016."""
        is_inside = False
        for record in _records(self.partition, self.start, self.stop, self.timeout_s):
            if not is_inside or peek_kind(record.value) is not RecordKind.ROW:
                found = self.codec.read(record.value)
                if not isinstance(found, ChangeRecord) or found.gtid != self.opened.gtid:
                    continue
            is_inside = True
            yield record.value

    def close(self) -> None:
        self.partition.close()


def find_published_part(
    partition: Partition, codec: Codec, opened: OpenTransaction, *, timeout_s: float
) -> PublishedPart:
    """Find the published part of ``opened``. Fatal MR-3019; Retryable MR-3016."""
    ends = partition.all_ends()
    tail = read_tail(partition, ends, codec)
    if tail is None or tail.progress.open != opened:
        raise Retryable("MR-3002", "the tail changed while no Kafka transaction was open")
    width = _OFFSETS_AT_FIRST
    while True:
        start = max(ends.low, tail.offset - width)
        if not _is_inside(partition, codec, opened, start, tail.offset, timeout_s):
            break
        if start == ends.low:
            raise Fatal(
                "MR-3019",
                f"the first rows of {opened.gtid} are no longer in the topic",
                low=ends.low,
                gtid=opened.gtid,
                rows=opened.rows,
            )
        width *= 2
    return PublishedPart(
        partition=partition,
        codec=codec,
        opened=opened,
        start=start,
        stop=tail.offset,
        timeout_s=timeout_s,
    )


def _is_inside(
    partition: Partition,
    codec: Codec,
    opened: OpenTransaction,
    start: int,
    stop: int,
    timeout_s: float,
) -> bool:
    """Whether the first record after ``start`` belongs to the part, so that the part begins earlier."""
    for record in _records(partition, start, stop + 1, timeout_s):
        match codec.read(record.value):
            case ProgressRecord(progress):
                return progress.open is not None and progress.open.gtid == opened.gtid
            case ChangeRecord(gtid):
                return gtid == opened.gtid
    return True


def _records(
    partition: Partition, start: int, stop: int, timeout_s: float
) -> Iterator[TopicRecord]:
    """Committed records from ``start`` to before ``stop``. There is one at or after ``stop - 1``."""
    offset = start
    while offset < stop:
        record = partition.next_record(offset, timeout_s=timeout_s)
        if record is None:
            raise Retryable("MR-3016", f"no record arrived from offset {offset} on", offset=offset)
        if record.offset >= stop:
            return
        yield record
        offset = record.offset + 1
