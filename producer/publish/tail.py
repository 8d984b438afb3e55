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

from dataclasses import dataclass

from millrace.errors import Fatal, MillraceError
from producer.publish.driver import Ends, Partition, TopicRecord
from producer.publish.positions import Mark, Marks, Step, stepped
from schemas.progress import Progress

_WINDOW_OFFSETS_MIN = 64
_WINDOW_OFFSETS_MAX = (
    65_536  # bounds the time of one read; a longer run of aborted records takes several reads
)


@dataclass(frozen=True, slots=True)
class Tail:
    """Progress after the last committed record, which is at ``offset``; ``epoch`` of the last record with progress."""

    progress: Progress
    epoch: int
    offset: int
    is_torn: bool  # rows follow the last record with progress


def read_tail(partition: Partition, ends: Ends, marks: Marks) -> Tail | None:
    """The tail of a partition that is read up to ``ends.stable``; None if it holds no committed record."""
    behind: list[tuple[int, Step]] = []  # changes after the last record with progress, newest first
    found_any = False
    stop, window = ends.stable, _WINDOW_OFFSETS_MIN
    while stop > ends.low:
        start = max(ends.low, stop - window)
        for record in reversed(partition.read(start, stop)):
            found_any = True
            match _meaning(record, marks):
                case Mark() as mark:
                    return _tail(mark, record.offset, behind)
                case Step() as step:
                    behind.append((record.offset, step))
                case None:
                    pass
        stop, window = start, min(window * 2, _WINDOW_OFFSETS_MAX)
    if found_any:
        raise Fatal(
            "MR-3012",
            "the topic has records but no resolved or fence record",
            low=ends.low,
            end=ends.stable,
        )
    return None


def _meaning(record: TopicRecord, marks: Marks) -> Mark | Step | None:
    try:
        return marks.read(record.value)
    except Fatal as unreadable:
        raise Fatal(
            "MR-3011",
            f"the record at offset {record.offset} was not written by a capture task: {unreadable.message}",
            offset=record.offset,
        ) from unreadable


def _tail(mark: Mark, offset: int, behind: list[tuple[int, Step]]) -> Tail:
    progress = mark.progress
    for at, step in reversed(behind):
        if step.seq != progress.seq + 1:
            raise Fatal("MR-3012", f"seq {step.seq} follows seq {progress.seq}", offset=at)
        try:
            progress = stepped(progress, step)
        except MillraceError as refused:
            raise Fatal("MR-3012", refused.message, offset=at) from refused
    last = behind[0][0] if behind else offset
    return Tail(progress, mark.epoch, last, is_torn=bool(behind))
