"""What stands at the end of the partition: the truth of what capture has done.

The last committed record is a mark as a rule, because every Kafka transaction ends with one:

    … row row row resolved ⟨marker⟩ │ row row ⟨abort marker⟩ │ stable end
                  ^ the mark          aborted: read_committed skips them

Aborted records and markers have offsets too, so the tail is looked for in windows that double, backwards from the
stable end. A late end of a Kafka transaction can have made the first part of one visible (rows behind the last mark):
every record carries its exact position, so progress is taken exactly up to the last of them.

Guarantees: None only when no committed record is left at all. MR-3012 when records are left but no mark, or when
the records behind the mark don't follow each other. Not done here: deciding what progress means (``opening``).
"""

from dataclasses import dataclass

from millrace.errors import Fatal, MillraceError
from producer.publish.driver import Ends, Partition, TopicRecord
from producer.publish.positions import Mark, Marks, Step, stepped
from schemas.progress import Progress

_WINDOW_OFFSETS_MIN = 64
_WINDOW_OFFSETS_MAX = 65_536  # bounds one read in time; a longer aborted stretch takes several


@dataclass(frozen=True, slots=True)
class Tail:
    """Progress behind the last committed record, which stands at ``offset``; ``epoch`` of the last mark."""

    progress: Progress
    epoch: int
    offset: int
    is_torn: bool  # rows stand behind the last mark


def read_tail(partition: Partition, ends: Ends, marks: Marks) -> Tail | None:
    """The tail of a partition that is read up to ``ends.stable``; None when it holds no committed record."""
    behind: list[tuple[int, Step]] = []  # steps behind the last mark, newest first
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
            "the topic holds records but no resolved or fence record",
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
            raise Fatal("MR-3012", f"seq {step.seq} stands behind seq {progress.seq}", offset=at)
        try:
            progress = stepped(progress, step)
        except MillraceError as refused:
            raise Fatal("MR-3012", refused.message, offset=at) from refused
    last = behind[0][0] if behind else offset
    return Tail(progress, mark.epoch, last, is_torn=bool(behind))
