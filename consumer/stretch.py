"""A stretch of records as they come from the topic: rows to apply, what control records say, where a barrier stands.

    rows            walked up to the barrier or the end
    learned         schemas that the stretch showed
    resolved        the last ``resolved`` or ``fence`` before a record, for the mark
    barrier         the first record that all lanes wait for: a DDL, or a schema whose id meant another one before

Guarantees: every row that is not behind the mark has the next seq (a hole or a step back is Fatal MR-5030); the
epoch of the control records never goes down (MR-5034). Not done here: I/O, but for the look-up of a schema that the
caller gives.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from consumer.applied import not_applied
from consumer.book import Book, Ints
from consumer.kernel import walk
from consumer.rows import Rows, Values, walk_values
from consumer.target.progress import Mark
from consumer.workshop import Workshop
from millrace.errors import Fatal
from schemas.control import DdlRecord, FenceRecord, RecordKind, ResolvedRecord, SchemaRecord
from schemas.framing import peek_kind
from schemas.gtid import Flavour, parse_gtid, parse_gtid_set
from schemas.record import decode_control

LookUp = Callable[[int], str]

_BODY = 5  # the first byte of the Avro body: 0 or 2 for a row


@dataclass(frozen=True, slots=True)
class Barrier:
    """The record that everything before it must be applied for."""

    offset: int
    value: bytes


@dataclass(frozen=True)
class Stretch:
    """Walked records with their offsets in the topic; ``waiting``: the numbers of rows that are still to be applied."""

    rows: Rows
    offsets: Ints
    waiting: Ints
    learned: dict[int, str]
    resolved: tuple[tuple[int, ResolvedRecord | FenceRecord], ...]
    barrier: Barrier | None

    def mark_after(self, end: int, *, before: Mark) -> Mark:
        """The mark when the first ``end`` records are applied and ``before`` was the mark at the stretch's start."""
        seqs = self.rows.column(walk.SEQ)[:end]
        seq = int(seqs.max(initial=before.seq))
        last = [record for number, record in self.resolved if number < end]
        return advanced(
            before, last[-1] if last else None, seq=seq, next_offset=int(self.offsets[end - 1]) + 1
        )


def advanced(
    before: Mark, resolved: ResolvedRecord | FenceRecord | None, *, seq: int, next_offset: int
) -> Mark:
    """The mark moved to ``seq`` and ``next_offset``, with what a ``resolved`` record on the way said."""
    gtid_set, flavour, epoch, past_start = (
        before.gtid_set,
        before.flavour,
        before.topic_epoch,
        before.past_start,
    )
    if resolved is not None:
        position = resolved.progress.gtid_set
        epoch, seq = resolved.epoch, max(seq, resolved.progress.seq)
        if (
            past_start
            or before.gtid_set == ""
            or position.includes(parse_gtid_set(position.flavour, before.gtid_set))
        ):
            gtid_set, flavour, past_start = str(position), str(position.flavour), True
    return Mark(seq, next_offset, gtid_set, flavour, before.topic, epoch, past_start)


def read_stretch(
    values: Values, offsets: Ints, *, workshop: Workshop, seen: Mark, applied: Ints, look_up: LookUp
) -> Stretch:
    """Read records up to the first barrier. ``seen`` is the mark as of the record before: its seq is what comes before.
    Rows at or below ``applied`` or covered by the start are passed over."""
    starts = values.offsets[:-1] + _BODY
    if len(values) and int(values.sizes().min()) <= _BODY:
        raise Fatal("MR-5032", "a record is shorter than its frame")
    controls = np.flatnonzero(values.payload[starts] > 2)
    learned: dict[int, str] = {}
    resolved: list[tuple[int, ResolvedRecord | FenceRecord]] = []
    barrier = None
    end = len(values)
    for number in map(int, controls):
        value = values.value(number)
        kind = peek_kind(value)
        if kind is RecordKind.DDL:
            barrier = Barrier(int(offsets[number]), value)
        elif kind is RecordKind.SCHEMA:
            record = decode_control(value)
            assert isinstance(record, SchemaRecord)
            if _redefines(record, workshop.book, learned):
                barrier = Barrier(int(offsets[number]), value)
            elif record.table:
                learned[record.value.id] = record.value.schema.text
        else:
            passed = decode_control(value)
            assert isinstance(passed, ResolvedRecord | FenceRecord)
            _check_epoch(passed, resolved[-1][1].epoch if resolved else seen.topic_epoch)
            resolved.append((number, passed))
        if barrier is not None:
            end = number
            break
    _learn(workshop, learned)
    rows = _walked(values.part(0, end), workshop, learned, look_up)
    _check_seqs(rows.column(walk.SEQ)[rows.column(walk.SLOT) >= 0], seen.seq)
    waiting = _waiting(rows, seen, applied)
    return Stretch(rows, offsets[:end], waiting, learned, tuple(resolved), barrier)


def _redefines(record: SchemaRecord, book: Book, learned: dict[int, str]) -> bool:
    known = learned.get(record.value.id, book.texts.get(record.value.id))
    return bool(record.table) and known is not None and known != record.value.schema.text


def _learn(workshop: Workshop, learned: dict[int, str]) -> None:
    book = workshop.book
    for number, text in learned.items():
        book = book.learned(number, text)
    if book is not workshop.book:
        workshop.learn(book)


def _walked(values: Values, workshop: Workshop, learned: dict[int, str], look_up: LookUp) -> Rows:
    while True:
        rows = walk_values(values, workshop.programs)
        if len(rows) == len(values):
            return rows
        value = values.value(len(rows))
        if rows.status != walk.UNKNOWN_SCHEMA:
            raise Fatal("MR-5032", f"record of {len(value)} bytes: reason {rows.status}")
        number = int.from_bytes(value[1:5], "big")
        learned[number] = look_up(number)
        workshop.learn(workshop.book.learned(number, learned[number]))


def _check_epoch(record: ResolvedRecord | FenceRecord, before: int) -> None:
    if record.epoch < before:
        raise Fatal("MR-5034", f"epoch {record.epoch} stands behind epoch {before}")


def _check_seqs(seqs: Ints, seen: int) -> None:
    """``seen`` -1: any first seq. A replay may begin at or before what was seen; from there on no hole."""
    if not len(seqs):
        return
    if seen >= 0 and seqs[0] > seen + 1:
        code = "MR-5031" if seen == 0 else "MR-5030"
        raise Fatal(code, f"seq {seqs[0]} follows seq {seen}", seq=int(seqs[0]))
    wrong = np.flatnonzero(np.diff(seqs) != 1)
    if len(wrong):
        where = int(wrong[0])
        raise Fatal(
            "MR-5030", f"seq {seqs[where + 1]} follows seq {seqs[where]}", seq=int(seqs[where + 1])
        )


def _waiting(rows: Rows, seen: Mark, applied: Ints) -> Ints:
    is_row = rows.column(walk.SLOT) >= 0
    numbers = np.flatnonzero(
        is_row & not_applied(rows.column(walk.SEQ), mark=seen.seq, applied=applied)
    )
    if seen.past_start or not len(numbers):
        return numbers
    flavour = Flavour(seen.flavour)
    covered: dict[str, bool] = {}
    keep = np.ones(len(numbers), np.bool_)
    start = parse_gtid_set(flavour, seen.gtid_set)
    for place, number in enumerate(map(int, numbers)):
        gtid = rows.gtid(number)
        if gtid not in covered:
            covered[gtid] = start.covers(parse_gtid(flavour, gtid))
        keep[place] = not covered[gtid]
    return numbers[keep]


def is_covered(record: DdlRecord, seen: Mark) -> bool:
    """Whether the start covers a statement, so that it is passed over."""
    if seen.past_start:
        return False
    flavour = Flavour(seen.flavour)
    start = parse_gtid_set(flavour, seen.gtid_set)
    return start.covers(parse_gtid(flavour, record.source.place.gtid))
