"""A window: records in topic order up to a barrier, checked, with the rows to apply and the control records.

    rows            walked up to the barrier, the end, or ``rows.CELLS_MAX``
    learned         schemas that the window introduces, and ``explained``, the offsets of the records that do so
    resolved        its ``resolved`` and ``fence`` records, for the mark
    barrier         the first record for which all lanes wait: DDL, or a schema record that redefines a known ID

Checks, each Fatal with the offset:

    MR-5030, MR-5031   a row or DDL record has the next seq, and other control records repeat the last one: no gaps
    MR-5032            every value is a record of Millrace
    MR-5034            the epoch of control records never decreases
    MR-5035            seq never decreases, and each ``resolved`` includes the GTID set of the previous one
    MR-5036            a row has the table and set of its schema ID

The caller passes only records at or above the mark's ``next_offset``, so none of them is a replay.
Not done here: I/O, except the schema look-up that the caller passes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from millrace.consumer.kernel import walk
from millrace.consumer.records.numbers import Ints, RecordNumbers, Seqs
from millrace.consumer.records.row_schemas import Programs, RowSchemas, layout_of
from millrace.consumer.records.rows import Rows, Values, walk_values
from millrace.consumer.target.bitmap import not_applied
from millrace.consumer.target.progress import Mark
from millrace.errors import Fatal, MillraceError
from millrace.schemas.gtid import Flavour, GtidPosition, parse_gtid, parse_gtid_set
from millrace.schemas.record.avro_codec import decode
from millrace.schemas.record.control import (
    ControlRecord,
    DdlRecord,
    FenceRecord,
    RecordKind,
    ResolvedRecord,
    SchemaRecord,
    SnapshotRecord,
)
from millrace.schemas.record.framing import peek_kind, unframe
from millrace.schemas.record.record import decode_control

LookUp = Callable[[int], str]
_Repeating = SchemaRecord | ResolvedRecord | FenceRecord | SnapshotRecord

_BODY = 5  # the first byte of the Avro body: 0 or 2 for a row


@dataclass(frozen=True, slots=True)
class Barrier:
    """A record that is processed after all earlier records have been applied."""

    offset: int
    value: bytes


class Plans(Protocol):
    """The plans of a task for the tables of its topic. Implemented for target tables and for published topics."""

    @property
    def schemas(self) -> RowSchemas:
        """The row schemas."""

    @property
    def programs(self) -> Programs:
        """Those that walk rows of these schemas."""

    @property
    def admits_all(self) -> bool:
        """Whether no table can be left out."""

    def learned(self, texts: Mapping[int, str]) -> Self:
        """These plans with more row schemas, by ID; the same object if all are known."""

    def admits(self, slot: int) -> bool:
        """Whether the task takes rows of a slot's table."""

    def through_view(self, rows: Rows, numbers: RecordNumbers) -> tuple[Rows, RecordNumbers]:
        """The rows as the task has them, and the numbers of those that it has. Fatal MR-5201, MR-5202."""


P = TypeVar("P", bound=Plans)


@dataclass(frozen=True)
class Window(Generic[P]):
    """Walked records with their offsets in the topic. ``waiting``: the numbers of the rows that must be applied.

    ``plans``: those of the caller, with the learned schemas.
    """

    rows: Rows
    plans: P
    offsets: Ints
    waiting: RecordNumbers
    learned: dict[int, str]
    explained: dict[int, int]
    resolved: tuple[tuple[int, ResolvedRecord | FenceRecord], ...]
    barrier: Barrier | None

    def ends_at_a_statement(self) -> bool:
        """Whether a DDL statement is its barrier."""
        return self.barrier is not None and peek_kind(self.barrier.value) is RecordKind.DDL

    def part(self, end: int) -> "Window[P]":
        """The first ``end`` records, with all schemas that were learned; the others are the next window."""
        if end == len(self.rows):
            return self
        resolved = tuple((number, record) for number, record in self.resolved if number < end)
        return replace(
            self,
            rows=replace(self.rows, records=self.rows.records[:end]),
            offsets=self.offsets[:end],
            waiting=RecordNumbers(self.waiting[self.waiting < end]),
            resolved=resolved,
            barrier=None,
        )

    def mark_after(self, end: int, *, before: Mark) -> Mark:
        """The mark after the first ``end`` records; ``before`` is the mark at the window's start."""
        last = [record for number, record in self.resolved if number < end]
        seq = before.seq
        if last or not before.is_unproven:
            seq = int(self.rows.column(walk.SEQ)[:end].max(initial=before.seq))
        after = advanced(
            before, last[-1] if last else None, seq=seq, next_offset=int(self.offsets[end - 1]) + 1
        )
        rows = np.flatnonzero(self.rows.column(walk.SLOT)[:end] >= 0)
        if not len(rows):
            return after
        return replace(after, commit_ms=int(self.rows.records[rows[-1], walk.COMMIT_MS]))


def advanced(
    before: Mark, resolved: ResolvedRecord | FenceRecord | None, *, seq: int, next_offset: int
) -> Mark:
    """The mark moved to ``seq`` and ``next_offset``, with the position of a ``resolved`` record on the way."""
    gtid_set, flavour, past_start = before.gtid_set, before.flavour, before.past_start
    topic = before.topic
    if resolved is not None:
        position = resolved.progress.gtid_set
        topic = replace(topic, epoch=resolved.epoch)
        if resolved.progress.open is None:
            topic = replace(topic, whole_seq=resolved.progress.seq)
        seq = max(seq, resolved.progress.seq)
        if (
            past_start
            or before.gtid_set == ""
            or position.includes(parse_gtid_set(position.flavour, before.gtid_set))
        ):
            gtid_set, flavour, past_start = str(position), str(position.flavour), True
    return Mark(seq, next_offset, gtid_set, flavour, topic, past_start, before.commit_ms)


def read_window(
    values: Values, offsets: Ints, *, plans: P, seen: Mark, applied: Seqs, look_up: LookUp
) -> Window[P]:
    """Read records up to the first barrier, or as many as ``walk_values`` takes.

    ``seen`` is the mark after the record before the first one. Rows that are in ``applied``, covered by the start or
    left out by the task or its view are not in ``waiting``. The rows are those of the view.
    """
    short = np.flatnonzero(values.sizes() <= _BODY)
    if len(short):
        raise Fatal(
            "MR-5032",
            "a record is shorter than its frame",
            offset=int(offsets[short[0]]),
            bytes=int(values.sizes()[short[0]]),
        )
    known = plans.schemas
    controls = _read_controls(values, offsets, known, seen)
    plans = plans.learned(controls.learned)
    looked_up: dict[int, str] = {}
    rows, plans = _walked(values.part(0, controls.end), offsets, plans, looked_up, look_up)
    if len(rows) < controls.end:  # the rest is the next window
        controls = _read_controls(values.part(0, len(rows)), offsets, known, seen)
    learned = controls.learned | looked_up
    numbers = RecordNumbers(np.flatnonzero(rows.column(walk.SLOT) >= 0))
    seqs = rows.seqs(numbers)
    _check_seqs(seqs, seen.seq, offsets[numbers])
    _check_repeated(controls.repeating, seen.seq, rows, offsets)
    resolved = controls.resolved
    _check_positions(resolved, seen, offsets)
    waiting = _admitted(rows, _waiting(rows, seen, applied), plans)
    if seen.is_unproven:
        _check_begin(seen, resolved, rows, waiting, offsets)
    rows, waiting = plans.through_view(rows, waiting)  # last: the checks are about the topic
    end = len(rows)
    return Window(
        rows,
        plans,
        offsets[:end],
        waiting,
        learned,
        controls.explained,
        tuple(resolved),
        controls.barrier,
    )


@dataclass(slots=True)
class _Controls:
    """The control records up to the first barrier, which is the record ``end``, or up to the end."""

    end: int
    learned: dict[int, str] = field(default_factory=dict)
    explained: dict[int, int] = field(default_factory=dict)
    resolved: list[tuple[int, ResolvedRecord | FenceRecord]] = field(default_factory=list)
    repeating: list[tuple[int, _Repeating]] = field(default_factory=list)
    barrier: Barrier | None = None


def _read_controls(values: Values, offsets: Ints, known: RowSchemas, seen: Mark) -> _Controls:
    heads = values.payload[values.offsets[:-1] + _BODY]
    found = _Controls(len(values))
    epoch = seen.topic.epoch
    for number in map(int, np.flatnonzero((heads != 0) & (heads != 2))):
        value, offset = values.value(number), int(offsets[number])
        record = _control(value, offset)
        if not isinstance(record, DdlRecord):
            found.repeating.append((number, record))
        match record:
            case DdlRecord():
                found.barrier = Barrier(offset, value)
            case SchemaRecord():
                if record.table:
                    _check_layout(record, offset)
                if _redefines(record, known, found.learned):
                    found.barrier = Barrier(offset, value)
                elif record.table:
                    found.learned[record.value.id] = record.value.schema.text
                    found.explained[record.value.id] = offset
            case ResolvedRecord() | FenceRecord():
                _check_epoch(record, epoch, offset)
                epoch = record.epoch
                found.resolved.append((number, record))
        if found.barrier is not None:
            found.end = number
            break
    return found


def _control(value: bytes, offset: int) -> ControlRecord:
    try:
        return decode_control(value)
    except Fatal as unreadable:
        raise Fatal("MR-5032", unreadable.message, offset=offset) from unreadable


def _check_layout(record: SchemaRecord, offset: int) -> None:
    try:
        layout_of(record.value.schema.text)
    except Fatal as unreadable:
        raise Fatal(
            "MR-5032", unreadable.message, offset=offset, schema_id=record.value.id
        ) from unreadable


def _redefines(record: SchemaRecord, schemas: RowSchemas, learned: dict[int, str]) -> bool:
    known = learned.get(record.value.id, schemas.texts.get(record.value.id))
    return bool(record.table) and known is not None and known != record.value.schema.text


def _walked(
    values: Values, offsets: Ints, plans: P, learned: dict[int, str], look_up: LookUp
) -> tuple[Rows, P]:
    while True:
        rows = walk_values(values, plans.programs)
        if rows.status == walk.OK:
            return rows, plans
        value, offset = values.value(len(rows)), int(offsets[len(rows)])
        number = int.from_bytes(value[1:5], "big")
        if rows.status == walk.OTHER_TABLE:
            raise _other_table(value, plans.schemas.texts[number], offset)
        if rows.status != walk.UNKNOWN_SCHEMA:
            raise Fatal(
                "MR-5032",
                f"a record of {len(value)} bytes can't be read: {walk.REASONS[rows.status]}",
                offset=offset,
                schema_id=number,
            )
        text = _looked_up(look_up, number, offset)
        learned[number] = text
        plans = plans.learned({number: text})


def _other_table(value: bytes, schema_text: str, offset: int) -> Fatal:
    number, body = unframe(value)
    try:
        source = decode(schema_text, body)["source"]
    except Fatal as unreadable:  # damaged, perhaps in its schema id
        return Fatal("MR-5032", unreadable.message, offset=offset, schema_id=number)
    assert isinstance(source, dict)
    layout = layout_of(schema_text)
    of_row = f"{source['db']}.{source['table']} of set {source['set']}"
    of_schema = f"{layout.table.full_name} of set {layout.set_name}"
    what = f"a row of {of_row} has schema id {number}, which is known as {of_schema}"
    return Fatal("MR-5036", what, offset=offset, schema_id=number)


def _looked_up(look_up: LookUp, number: int, offset: int) -> str:
    try:
        text = look_up(number)
        layout_of(text)
    except MillraceError as exc:
        context = {**exc.context, "schema_id": number, "offset": offset}
        raise type(exc)(exc.code, exc.message, fix=exc.fix, **context) from exc
    return text


def _check_epoch(record: ResolvedRecord | FenceRecord, before: int, offset: int) -> None:
    if record.epoch < before:
        raise Fatal("MR-5034", f"epoch {record.epoch} follows epoch {before}", offset=offset)


def _check_seqs(seqs: Seqs, seen: int, offsets: Ints) -> None:
    """Each seq is the next one. If ``seen`` is -1, the first may be any."""
    if not len(seqs):
        return
    check_follows(int(seqs[0]), seen, int(offsets[0]))
    wrong = np.flatnonzero(np.diff(seqs) != 1)
    if len(wrong):
        before, after = (int(seq) for seq in seqs[wrong[0] : wrong[0] + 2])
        check_follows(after, before, int(offsets[wrong[0] + 1]))


def check_follows(seq: int, seen: int, offset: int) -> None:
    """A row or DDL record has the seq after ``seen`` (-1: unknown). Fatal MR-5030, MR-5031, MR-5035."""
    if seen >= 0 and seq != seen + 1:
        raise _out_of_order(f"seq {seq} follows seq {seen}", seq, seen, offset)


def _check_repeated(
    repeating: list[tuple[int, _Repeating]], seen: int, rows: Rows, offsets: Ints
) -> None:
    """Control records other than DDL repeat the last seq. A greater one means that retention has removed records.

    While ``seen`` is -1, the first ``resolved`` or ``fence`` record sets it; a schema record does not.
    """
    numbers = np.flatnonzero(rows.column(walk.SLOT) >= 0)
    for number, record in repeating:
        before = int(np.searchsorted(numbers, number))
        if before:
            seen = max(seen, int(rows.column(walk.SEQ)[numbers[before - 1]]))
        is_mark = isinstance(record, ResolvedRecord | FenceRecord)
        seq = _repeated_seq(record)
        if 0 <= seen != seq:
            what = f"a control record of seq {seq} follows seq {seen}"
            raise _out_of_order(what, seq, seen, int(offsets[number]))
        if seen >= 0 or is_mark:
            seen = seq


def _repeated_seq(record: _Repeating) -> int:
    match record:
        case SchemaRecord() | SnapshotRecord():
            return record.seq
        case ResolvedRecord() | FenceRecord():
            return record.progress.seq


def _out_of_order(what: str, seq: int, seen: int, offset: int) -> Fatal:
    if seq <= seen:
        return Fatal("MR-5035", what, seq=seq, offset=offset)
    return Fatal("MR-5031" if seen == 0 else "MR-5030", what, seq=seq, offset=offset)


def _check_positions(
    resolved: list[tuple[int, ResolvedRecord | FenceRecord]], seen: Mark, offsets: Ints
) -> None:
    """GTID sets only grow, beginning with that of the mark. A start's GTID set may be ahead of the topic."""
    before: GtidPosition | None = None
    if seen.past_start and seen.gtid_set:
        before = parse_gtid_set(Flavour(seen.flavour), seen.gtid_set)
    for number, record in resolved:
        position = record.progress.gtid_set
        if before is not None and not (
            position.flavour is before.flavour and position.includes(before)
        ):
            raise Fatal(
                "MR-5035",
                f"GTID set {position} follows {before}, which it does not include",
                offset=int(offsets[number]),
            )
        before = position


def _check_begin(
    seen: Mark,
    resolved: list[tuple[int, ResolvedRecord | FenceRecord]],
    rows: Rows,
    waiting: RecordNumbers,
    offsets: Ints,
) -> None:
    """At a start with a GTID set, no row is applied before a control record shows the source's position.

    The start must cover that position: only then is no earlier transaction missing. Rows before that record prove
    nothing.
    """
    number, record = resolved[0] if resolved else (len(rows), None)
    if len(waiting) and waiting[0] < number:
        raise _unproven(seen, f"{rows.gtid(int(waiting[0]))} comes first", offsets[waiting[0]])
    if record is None:
        return
    progress, flavour = record.progress, Flavour(seen.flavour)
    start = parse_gtid_set(flavour, seen.gtid_set)
    is_covered = start.includes(progress.gtid_set) and (
        progress.open is None or start.covers(parse_gtid(flavour, progress.open.gtid))
    )
    if not is_covered:
        raise _unproven(seen, f"the topic begins after {progress.gtid_set}", offsets[number])
    later = np.flatnonzero(rows.column(walk.SLOT)[number:] >= 0) + number
    if len(later):
        check_follows(int(rows.column(walk.SEQ)[later[0]]), progress.seq, int(offsets[later[0]]))


def _unproven(seen: Mark, what: str, offset: int) -> Fatal:
    return Fatal("MR-5031", f"the task starts at {seen.gtid_set}; {what}", offset=int(offset))


def check_statement_begin(record: DdlRecord, seen: Mark, offset: int) -> None:
    """As for rows: Fatal MR-5031 for a statement that the start does not cover and that is not proven to be next."""
    if seen.is_unproven and not is_covered(record, seen):
        raise _unproven(seen, f"{record.source.place.gtid} comes first", offset)


def _waiting(rows: Rows, seen: Mark, applied: Seqs) -> RecordNumbers:
    is_row = rows.column(walk.SLOT) >= 0
    seqs = Seqs(rows.column(walk.SEQ))
    numbers = RecordNumbers(
        np.flatnonzero(is_row & not_applied(seqs, mark=seen.seq, applied=applied))
    )
    if seen.past_start or not len(numbers):
        return numbers
    start = parse_gtid_set(Flavour(seen.flavour), seen.gtid_set)
    return RecordNumbers(numbers[~in_gtid_set(rows, numbers, start)])


def in_gtid_set(
    rows: Rows, numbers: RecordNumbers, gtid_set: GtidPosition
) -> npt.NDArray[np.bool_]:
    """For each of these row records, whether its source transaction is in the GTID set."""
    found: dict[str, bool] = {}
    covered = np.zeros(len(numbers), np.bool_)
    for place, number in enumerate(map(int, numbers)):
        gtid = rows.gtid(number)
        if gtid not in found:
            found[gtid] = gtid_set.covers(parse_gtid(gtid_set.flavour, gtid))
        covered[place] = found[gtid]
    return covered


def _admitted(rows: Rows, numbers: RecordNumbers, plans: Plans) -> RecordNumbers:
    """Those of these rows whose table the task takes."""
    if plans.admits_all or not len(numbers):
        return numbers
    slots, at = np.unique(rows.slots(numbers), return_inverse=True)
    is_admitted = np.array([plans.admits(int(slot)) for slot in slots], np.bool_)
    return RecordNumbers(numbers[is_admitted[at]])


def is_covered(record: DdlRecord, seen: Mark) -> bool:
    """True if the start covers a statement, so that it is skipped."""
    if seen.past_start:
        return False
    flavour = Flavour(seen.flavour)
    start = parse_gtid_set(flavour, seen.gtid_set)
    return start.covers(parse_gtid(flavour, record.source.place.gtid))
