"""The end of the partition: the authoritative progress of capture.

The last committed record usually has the progress, because each Kafka transaction ends with a ``resolved`` record:

    … row row row resolved ⟨marker⟩ │ row row ⟨abort marker⟩ │ stable end
                  ^ the progress      aborted: read_committed skips them

Aborted records and markers have offsets too. So the tail is searched backwards from the stable end, in windows that
double. A late end of a Kafka transaction can have made its first part visible (rows after the last ``resolved``). Each
record has its exact position, so progress then reaches exactly to the last of them.

Guarantees: None only if no committed record is left. MR-3012 if records are left but none with progress, or if the
records after it have gaps. Not done here: decisions about progress (``opening``).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from millrace.drivers.kafka.reader import Ends, TopicRecord
from millrace.errors import Fatal, MillraceError
from millrace.producer.publish.driver import Partition
from millrace.producer.publish.positions import ChangeRecord, Codec, ProgressRecord, progress_after
from millrace.schemas.progress import Progress

_WINDOW_OFFSETS_MIN = 64
# bounds the time of one read; a longer run of aborted records takes several reads
_WINDOW_OFFSETS_MAX = 65_536


@dataclass(frozen=True, slots=True)
class Tail:
    """Progress after the last committed record, which is at ``offset``; ``epoch`` of the last record with progress."""

    progress: Progress
    epoch: int
    offset: int
    is_torn: bool  # rows follow the last record with progress


def read_tail(partition: Partition, ends: Ends, codec: Codec) -> Tail | None:
    """The tail of a partition that is read up to ``ends.stable``; None if it holds no committed record."""
    later: list[tuple[int, ChangeRecord]] = []  # after the last progress record, newest first
    found_any = False
    for record in _backwards(partition, ends):
        found_any = True
        match _decode(record, codec):
            case ProgressRecord() as found:
                return _tail(found, record.offset, later)
            case ChangeRecord() as change:
                later.append((record.offset, change))
            case None:
                pass
    if found_any:
        raise Fatal(
            "MR-3012",
            "the topic has records but no resolved or fence record",
            low=ends.low,
            end=ends.stable,
        )
    return None


def last_decision(partition: Partition, ends: Ends, codec: Codec) -> str:
    """The ID of the decision whose gap record is the last row or statement before ``ends.stable``; "" if none is."""
    for record in _backwards(partition, ends):
        if isinstance(_decode(record, codec), ChangeRecord):
            return codec.decision_of(record.value)
    return ""


def _backwards(partition: Partition, ends: Ends) -> Iterator[TopicRecord]:
    """The committed records before ``ends.stable``, the last one first, read in windows that double."""
    stop, window = ends.stable, _WINDOW_OFFSETS_MIN
    while stop > ends.low:
        start = max(ends.low, stop - window)
        yield from reversed(partition.read(start, stop))
        stop, window = start, min(window * 2, _WINDOW_OFFSETS_MAX)


def _decode(record: TopicRecord, codec: Codec) -> ProgressRecord | ChangeRecord | None:
    try:
        return codec.read(record.value)
    except Fatal as unreadable:
        raise Fatal(
            "MR-3011",
            f"the record at offset {record.offset} was not written by a capture task: {unreadable.message}",
            offset=record.offset,
        ) from unreadable


def _tail(last: ProgressRecord, offset: int, later: list[tuple[int, ChangeRecord]]) -> Tail:
    progress = last.progress
    for at, change in reversed(later):
        if change.seq != progress.seq + 1:
            raise Fatal("MR-3012", f"seq {change.seq} follows seq {progress.seq}", offset=at)
        try:
            progress = progress_after(progress, change)
        except MillraceError as refused:
            raise Fatal("MR-3012", refused.message, offset=at) from refused
    end = later[0][0] if later else offset
    return Tail(progress, last.epoch, end, is_torn=bool(later))
