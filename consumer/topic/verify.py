"""Checks the guarantees of a set topic record by record, from a subscriber's view.

    check              holds for every committed record in offset order
    seq                rows and DDL are numbered without gap or repetition; control records repeat the last number
    whole              a source transaction's records are contiguous, total_order increases, exactly one is the last
    once               no source transaction is delivered twice
    owner              epochs never decrease: no record of an older owner follows a newer owner's fence
    resolved           GTID sets only grow; they contain each finished source transaction and no unfinished one
    schema             a schema is introduced in its run before a record is framed with it
    one stream         set and flavour never change; every record is one of Millrace
    snapshot           rows of a snapshot are in its table's part of the topic (``verify_snapshot``)
    tail               the last record is a resolved or fence

A gap that an operator decided (``schemas.record.gap``) is no violation. The summary counts and names it. It keeps
all rules, except that its source transaction may have been delivered before (``adopt-topic``).

A run begins with the schema record that describes schema records. If the beginning of the topic has been removed, a
check that needs it starts at the first record at which it is possible.

Not done here: decoding images; comparing with the source. Offsets are never compared: aborted records and markers
have offsets too.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

from millrace.consumer.topic.verify_snapshot import SnapshotRules
from millrace.errors import MillraceError
from millrace.schemas.gtid import AnyGtid, Flavour, GtidPosition, parse_gtid
from millrace.schemas.progress import Progress
from millrace.schemas.record.control import (
    DdlRecord,
    FenceRecord,
    RecordKind,
    ResolvedRecord,
    SchemaRecord,
    SnapshotRecord,
)
from millrace.schemas.record.framing import HEADER_BYTES, peek_kind, unframe
from millrace.schemas.record.gap import Gap, gap_of
from millrace.schemas.record.record import decode_control
from millrace.schemas.record.row_end import SNAPSHOT_OP, RowEnd, read_row_end
from millrace.schemas.snapshot import Name
from millrace.wording import counted

VIOLATIONS_KEPT_MAX = 100  # the rest is counted


class Check(StrEnum):
    """The violated guarantee; the module's docstring describes each."""

    SEQ = "seq"
    WHOLE = "whole"
    ONCE = "once"
    OWNER = "owner"
    RESOLVED = "resolved"
    SCHEMA = "schema"
    STREAM = "one stream"
    SNAPSHOT = "snapshot"
    TAIL = "tail"


@dataclass(frozen=True, slots=True)
class Violation:
    """A violated guarantee, at the record that shows it."""

    offset: int
    check: Check
    what: str


@dataclass(frozen=True, slots=True)
class NamedGap:
    """A gap that an operator decided, at its record."""

    offset: int
    seq: int
    gap: Gap


@dataclass(slots=True)
class Counts:
    """Numbers of records by kind, and of source transactions."""

    records: int = 0
    rows: int = 0
    ddl: int = 0
    transactions: int = 0
    schemas: int = 0
    resolved: int = 0
    fences: int = 0
    snapshot_rows: int = 0  # of ``rows``
    snapshot_tables: int = 0  # that were read to their end


@dataclass(slots=True)
class Summary:
    """The result so far. The topic keeps its guarantees if ``violation_count`` is 0.

    A mark is a resolved or fence record.
    """

    counts: Counts = field(default_factory=Counts)
    first_seq: int | None = None
    last_seq: int | None = None
    gtid_set: str = ""
    epochs: list[tuple[int, int]] = field(default_factory=list)  # (epoch, offset of its first mark)
    violation_count: int = 0
    violations: list[Violation] = field(default_factory=list)
    gap_count: int = 0
    gaps: list[NamedGap] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Place:
    gtid: str
    total_order: int


class TopicVerifier:
    """Checks every committed record, fed in order; ``summary`` is the result. Memory does not grow with the topic."""

    def __init__(self, *, from_beginning: bool, seq: int | None = None) -> None:
        """``from_beginning``: the first record fed is the first one that was committed to the topic.

        ``seq`` is the number of the last row or DDL record before it, if known.
        """
        self.summary = Summary()
        self._counts = self.summary.counts
        self._is_complete = from_beginning
        self._seq = seq
        self._open: _Place | None = None
        self._finished: dict[str, None] = {}  # GTIDs since the last resolved or fence
        self._known: dict[int, Name] | None = {} if from_beginning else None  # ids of this run
        self._snapshots = SnapshotRules(from_beginning=from_beginning)
        self._mark: ResolvedRecord | FenceRecord | None = None
        self._last_kind: RecordKind | None = None
        self._offset = -1
        self._id_bytes = 0  # of the last GTID

    def feed(self, offset: int, key: bytes | None, value: bytes) -> None:
        """Check the next committed record."""
        self._offset = offset
        self._counts.records += 1
        try:
            kind = peek_kind(value)
            if kind is RecordKind.ROW:
                self._feed_row(key, value)
            else:
                self._feed_control(value)
            self._last_kind = kind
        except MillraceError as unreadable:
            self._violated(Check.STREAM, f"{unreadable.code} {unreadable.message}")

    def finish(self) -> Summary:
        """Check the end of the topic; call it after the last record."""
        if self._last_kind is None:
            self._violated(Check.TAIL, "the topic holds no record")
        elif self._last_kind not in (RecordKind.RESOLVED, RecordKind.FENCE):
            self._violated(Check.TAIL, f"the last record is of kind {self._last_kind.value}")
        return self.summary

    def _violated(self, check: Check, what: str) -> None:
        self.summary.violation_count += 1
        if len(self.summary.violations) < VIOLATIONS_KEPT_MAX:
            self.summary.violations.append(Violation(self._offset, check, what))

    def _feed_row(self, key: bytes | None, value: bytes) -> None:
        self._counts.rows += 1
        row = read_row_end(value, likely_id_bytes=self._id_bytes)
        self._id_bytes = len(row.gtid)
        self._check_known(value)
        if key is not None:
            self._check_known(key)
        if row.op == SNAPSHOT_OP:
            self._feed_snapshot_row(value, row)
            return
        self._step(row.seq, _Place(row.gtid, row.total_order), is_last=row.last)

    def _feed_snapshot_row(self, value: bytes, row: RowEnd) -> None:
        """A row of a snapshot belongs to no source transaction: it comes between two."""
        if self._open is not None:
            self._violated(Check.WHOLE, f"a row of a snapshot comes in {self._open.gtid}")
        if not row.last:
            self._violated(Check.WHOLE, "a row of a snapshot is not the last of its transaction")
        name = (self._known or {}).get(unframe(value)[0])
        for what in self._snapshots.row(value, row, name):
            self._violated(Check.SNAPSHOT, what)
        self._counts.snapshot_rows = self._snapshots.row_count
        self._check_next(row.seq)

    def _feed_control(self, value: bytes) -> None:
        record = decode_control(value)
        match record:
            case SchemaRecord():
                self._introduce(record, unframe(value)[0])
            case DdlRecord(source, _, _, transaction):
                self._counts.ddl += 1
                self._check_known(value)
                place = _Place(transaction.gtid, transaction.total_order)
                gap = gap_of(record)
                if gap is not None:
                    self._note_gap(NamedGap(self._offset, source.seq, gap))
                self._step(
                    source.seq, place, is_last=transaction.is_last, may_repeat=gap is not None
                )
            case ResolvedRecord():
                self._counts.resolved += 1
                self._check_known(value)
                self._resolve(record)
            case FenceRecord():
                self._counts.fences += 1
                self._check_known(value)
                self._resolve(record)
            case SnapshotRecord():
                self._check_known(value)
                self._check_repeated(record.seq, "snapshot record")
                for what in self._snapshots.step(record):
                    self._violated(Check.SNAPSHOT, what)
                self._counts.snapshot_tables = self._snapshots.table_count

    def _note_gap(self, gap: NamedGap) -> None:
        self.summary.gap_count += 1
        if len(self.summary.gaps) < VIOLATIONS_KEPT_MAX:
            self.summary.gaps.append(gap)

    def _check_known(self, framed: bytes) -> None:
        schema_id = int.from_bytes(framed[1:HEADER_BYTES], "big")
        if self._known is not None and schema_id not in self._known:
            self._violated(Check.SCHEMA, f"schema {schema_id} was not introduced in this run")
            self._known[schema_id] = ("", "")  # report it once per run

    def _introduce(self, record: SchemaRecord, framed_with: int) -> None:
        self._counts.schemas += 1
        if record.value.id == framed_with:  # it describes itself: a run begins
            self._known = {}
        if self._known is not None:
            name = (record.database, record.table)
            self._known[record.value.id] = name
            if record.key is not None:
                self._known[record.key.id] = name
        self._check_repeated(record.seq, "schema record")

    def _step(self, seq: int, at: _Place, *, is_last: bool, may_repeat: bool = False) -> None:
        """Check a row or DDL record: the next seq, and the next record of a source transaction.

        ``may_repeat``: of one that may have been delivered before.
        """
        self._check_next(seq)
        self._check_whole(at, may_repeat=may_repeat)
        self._open = at
        if is_last:
            self._counts.transactions += 1
            self._finished[at.gtid] = None
            self._open = None

    def _check_next(self, seq: int) -> None:
        """Check that a row or DDL record has the next seq."""
        if self._seq is not None and seq != self._seq + 1:
            self._violated(Check.SEQ, f"seq {seq} follows seq {self._seq}")
        if self._seq is None and self._is_complete:
            self._violated(Check.SEQ, f"seq {seq} comes before any fence")
        if self.summary.first_seq is None:
            self.summary.first_seq = seq
        self._seq = self.summary.last_seq = seq

    def _check_whole(self, at: _Place, *, may_repeat: bool) -> None:
        before = self._open
        if before is not None and before.gtid != at.gtid:
            self._violated(Check.WHOLE, f"{at.gtid} begins while {before.gtid} has no last record")
        elif before is not None and at.total_order <= before.total_order:
            self._violated(
                Check.WHOLE, f"row {at.total_order} of {at.gtid} follows row {before.total_order}"
            )
        elif before is None and self._mark is not None and not may_repeat:
            self._check_new(at, self._mark.progress)

    def _check_new(self, at: _Place, progress: Progress) -> None:
        """Check the first record of a source transaction, or of its rest: it must not have been delivered before."""
        if at.gtid in self._finished or progress.gtid_set.covers(
            _parsed(progress.gtid_set.flavour, at.gtid)
        ):
            self._violated(Check.ONCE, f"{at.gtid} was delivered before")
        if (
            progress.open is not None
            and progress.open.gtid == at.gtid
            and at.total_order <= progress.open.rows
        ):
            self._violated(Check.ONCE, f"row {at.total_order} of {at.gtid} was delivered before")

    def _check_repeated(self, seq: int, what: str) -> None:
        """Check that a control record repeats the last seq."""
        if self._seq is not None and seq != self._seq:
            self._violated(Check.SEQ, f"a {what} with seq {seq} follows seq {self._seq}")

    def _resolve(self, mark: ResolvedRecord | FenceRecord) -> None:
        before, progress = self._mark, mark.progress
        self._check_repeated(progress.seq, "resolved or fence record")
        if self._seq is None:
            self._seq = progress.seq
        if before is not None:
            self._check_owner(before, mark)
            if (before.set_name, before.progress.gtid_set.flavour) != (
                mark.set_name,
                progress.gtid_set.flavour,
            ):
                self._violated(Check.STREAM, f"{before.set_name} became {mark.set_name}")
            elif not progress.gtid_set.includes(before.progress.gtid_set):
                self._violated(
                    Check.RESOLVED,
                    f"{progress.gtid_set} does not contain all of {before.progress.gtid_set}",
                )
        if before is None or before.epoch != mark.epoch:
            self.summary.epochs.append((mark.epoch, self._offset))
        for what in self._snapshots.state(progress.snapshot):
            self._violated(Check.SNAPSHOT, what)
        self._check_delivered(progress)
        self._finished.clear()
        self._mark = mark
        self.summary.gtid_set = str(progress.gtid_set)

    def _check_owner(
        self, before: ResolvedRecord | FenceRecord, mark: ResolvedRecord | FenceRecord
    ) -> None:
        if mark.epoch < before.epoch:
            self._violated(Check.OWNER, f"epoch {mark.epoch} writes after epoch {before.epoch}")
        elif mark.epoch > before.epoch and isinstance(mark, ResolvedRecord):
            self._violated(Check.OWNER, f"epoch {mark.epoch} writes without a fence")

    def _check_delivered(self, progress: Progress) -> None:
        """Check the GTID set against the records before it."""
        gtid_set: GtidPosition = progress.gtid_set
        for gtid in self._finished:
            if not gtid_set.covers(_parsed(gtid_set.flavour, gtid)):
                self._violated(Check.RESOLVED, f"{gtid} is finished but not in the GTID set")
        if self._open is None:
            return
        if gtid_set.covers(_parsed(gtid_set.flavour, self._open.gtid)):
            self._violated(Check.RESOLVED, f"{self._open.gtid} is in the GTID set before its end")
        elif progress.open is None or progress.open.gtid != self._open.gtid:
            self._violated(Check.RESOLVED, f"{self._open.gtid} is unfinished but not named")
        elif progress.open.rows < self._open.total_order:
            self._violated(
                Check.RESOLVED,
                f"{counted(progress.open.rows, 'row')} of {self._open.gtid} reported,"
                f" but row {self._open.total_order} is delivered",
            )


@lru_cache(maxsize=65_536)  # a GTID is parsed at its first record and at the next resolved
def _parsed(flavour: Flavour, gtid: str) -> AnyGtid:
    return parse_gtid(flavour, gtid)
