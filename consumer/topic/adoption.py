"""How a task continues in a topic that capture created again after an operator's ``adopt-topic`` (docs/unsafe.md).

The new topic begins with the schemas of control records, a fence with the adopted progress, and a gap record:

    schema … schema   fence: GTID set G, seq S   gap: seq S + 1   resolved   the source transactions after G

A GTID set names what is applied, whatever the numbers: a target that has applied exactly the source transactions of its
mark continues after the gap, and skips those that come again.

    the mark's GTID set     then the task
    has all of G            continues by itself, if the mark is at the end of a source transaction
    misses some of G        is blocked: MR-5070 names them. They are in no topic
    is inside one           is blocked: MR-5071. It is not known which rows of that source transaction are applied

Pure, except ``read_beginning``. Not done here: moving the mark (``consumer.task.follow_topic``).
"""

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, replace

from millrace.consumer.target.progress import Mark
from millrace.drivers.kafka.access import KafkaAccess
from millrace.drivers.kafka.reader import TopicReader, TopicRecord
from millrace.errors import Fatal
from millrace.schemas.gtid import (
    Flavour,
    has_same_sequence_from_other_server,
    parse_gtid_set,
    shortened,
    unite,
)
from millrace.schemas.progress import Progress
from millrace.schemas.record.control import DdlRecord, FenceRecord, RecordKind
from millrace.schemas.record.framing import peek_kind
from millrace.schemas.record.gap import Gap, gap_of
from millrace.schemas.record.record import decode_control
from millrace.schemas.requests.decision import DecisionKind, missing_between

# the schemas of four kinds of control records, the fence, the gap, and their markers
FIRST_RECORDS_MAX = 16


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first records of an adopted topic: the fence's progress and epoch, and the gap with its place."""

    progress: Progress
    epoch: int
    gap: Gap
    offset: int
    seq: int
    text: str


@dataclass(frozen=True, slots=True)
class Continuation:
    """``after``: the mark after the gap. ``missing``: the source transactions that are lost for the target.

    ``in_doubt``: why it is not known exactly what is applied; "" if it is.
    """

    after: Mark
    missing: str = ""
    in_doubt: str = ""

    @property
    def refusal(self) -> Fatal | None:
        """The reason why only an operator can let the task continue; None if it continues by itself."""
        topic, decision = self.after.topic.name, f"seq {self.after.seq}"
        if self.missing:
            what = (
                f"topic {topic} was created again, and the target misses {shortened(self.missing)}"
            )
            return Fatal("MR-5070", what, decided_at=decision)
        if self.in_doubt:
            what = f"topic {topic} was created again, and {self.in_doubt}"
            return Fatal("MR-5071", what, decided_at=decision)
        return None


def read_beginning(brokers: KafkaAccess, topic: str) -> Beginning | None:
    """The beginning of the topic; None if it was not adopted, or no longer has its first records."""
    with closing(TopicReader(brokers, topic)) as reader:
        ends = reader.ends()
        if ends.low:
            return None
        chunks = reader.chunks(0, min(ends.stable, FIRST_RECORDS_MAX))
        return beginning_of(record for chunk in chunks for record in chunk)


def beginning_of(records: Iterable[TopicRecord]) -> Beginning | None:
    """From the first records; None unless a fence and a gap of ``adopt-topic`` follow the schemas."""
    fence: FenceRecord | None = None
    for found in records:
        if peek_kind(found.value) is RecordKind.ROW:
            return None
        record = decode_control(found.value)
        if isinstance(record, FenceRecord):
            fence = record
        elif isinstance(record, DdlRecord):
            gap = gap_of(record)
            if fence is None or gap is None or gap.kind != DecisionKind.ADOPT_TOPIC:
                return None
            seq, text = record.source.seq, record.statement.sql
            return Beginning(fence.progress, fence.epoch, gap, found.offset, seq, text)
    return None


def continuation(
    mark: Mark, beginning: Beginning, *, topic_id: str, has_bitmaps: bool
) -> Continuation:
    """How a task with this mark continues. Fatal MR-5035 if the topic is of another source or history.

    ``has_bitmaps``: rows above the mark are applied.
    """
    position = beginning.progress.gtid_set
    known = parse_gtid_set(Flavour(mark.flavour or position.flavour), mark.gtid_set)
    if known.flavour is not position.flavour or has_same_sequence_from_other_server(
        known, position
    ):
        raise Fatal("MR-5035", f"topic {mark.topic.name} begins after {position}, not {known}")
    both = unite(known, position)
    topic = replace(mark.topic, id=topic_id, epoch=beginning.epoch, whole_seq=beginning.seq)
    is_past = position.includes(known)
    after = Mark(
        beginning.seq,
        beginning.offset + 1,
        str(position if is_past else both),
        str(position.flavour),
        topic,
        is_past,
        mark.commit_ms,
    )
    missing = missing_between(Progress(known, None, 0), both)
    return Continuation(after, missing, _doubt(mark, has_bitmaps=has_bitmaps))


def _doubt(mark: Mark, *, has_bitmaps: bool) -> str:
    if not mark.past_start:
        return f"the task has not reached its start {shortened(mark.gtid_set)}"
    if has_bitmaps or not mark.is_whole:
        return f"rows after {shortened(mark.gtid_set) or 'the beginning'} are applied, up to seq {mark.seq}"
    return ""
