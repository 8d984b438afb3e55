"""The invariants of the topic and the target, after any faults.

    the topic, as it grows     I1 topic = binlog   I2 dense seq   I3 source transactions whole   I4 one writer
                               I6 resolved transactions are delivered
    the target, each commit    I6 the mark is correct and never decreases   I8 the rows are those of a causal
                               prefix: exactly the changes at or below the mark and in the bitmaps, and the sum of all
                               money is unchanged
    a relay log                I5 a prefix of the source's files, ending with a whole source transaction
    the target at rest         I7 source = target

``published`` is the growing list of all changes that the topic must contain, in commit order.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from millrace.consumer.target.bitmap import from_bitmaps
from millrace.consumer.topic.verify import TopicVerifier
from millrace.drivers.kafka.reader import TopicRecord
from millrace.schemas.place import Coordinates
from millrace.schemas.record.control import DdlRecord, FenceRecord, ResolvedRecord
from millrace.schemas.record.record import KnownSchemas, RowRecord, decode_record
from tests.simulation.binlog import Binlog, last_number
from tests.simulation.model_kafka import ModelTopic
from tests.simulation.model_target import Contents, ModelServer
from tests.simulation.source import TOTAL, Change, ModelSource, Rows

NOTHING_APPLIED = (0, -3)


class ViolationError(AssertionError):
    """An invariant is violated."""


def hold(claim: object, what: str) -> None:
    """Raise unless ``claim``."""
    if not claim:
        raise ViolationError(what)


def check_relay(source: ModelSource, files: Iterable[Path], end: Coordinates) -> None:
    """``files`` are all files of a relay log, ``end`` is the limit of its readers."""
    for path in files:
        theirs = bytes(source.files[path.name].content)
        hold(theirs.startswith(path.read_bytes()), f"I5: {path} differs from the source's file")
    hold((end.file, end.pos) in source.ends, f"I5: {end} is inside a source transaction")


def check_rows(source: ModelSource, target: ModelServer) -> None:
    """Check the target at rest."""
    found, wanted = target.plain(), source.rows.plain(hidden=False)
    hold(found == wanted, f"I7: {found}\nnot\n{wanted}")


class TopicJudge:
    """Reads each committed record once."""

    def __init__(self, topic: ModelTopic, published: Sequence[Change], binlog: Binlog) -> None:
        self.delivered = 0  # records that are changes
        self._topic = topic
        self._binlog = binlog
        self._published = published
        self._next_offset = 0
        self._epoch = 0
        self._known = KnownSchemas()
        self._verifier = TopicVerifier(from_beginning=True)

    def check(self) -> None:
        """Read and check the records committed since the last call."""
        stable = self._topic.stable
        for record in self._topic.committed(self._next_offset, stable):
            self._verifier.feed(record.offset, record.key, record.value)
            self._check_record(record)
        self._next_offset = max(self._next_offset, stable)

    def finish(self) -> None:
        """Check the end, as ``millrace topic verify`` does."""
        found = self._verifier.finish()
        hold(not found.violations, f"topic verify: {found.violations}")

    def read(self, record: TopicRecord) -> object:
        """Decoded, with the schemas seen."""
        return decode_record(record.key, record.value, self._known)

    def _check_record(self, record: TopicRecord) -> None:
        found = self.read(record)
        match found:
            case RowRecord(source=source, change=change, transaction=at):
                wanted = self._next_change(record.offset)
                images = (_plain(change.before), _plain(change.after))
                hold(
                    (source.table, images) == (wanted.table, (wanted.before, wanted.after)),
                    f"I1: offset {record.offset} holds {source.table} {images}, the binlog {wanted}",
                )
                hold(source.seq == self.delivered, f"I2: seq {source.seq} is no. {self.delivered}")
                hold(
                    (at.gtid, at.total_order) == (self._binlog.gtid(wanted.number), wanted.row),
                    f"I3: offset {record.offset} is row {at.total_order} of {at.gtid}, not {wanted}",
                )
                hold(at.is_last == self._is_last(), f"I3: the last row of {at.gtid} is not marked")
            case DdlRecord(source=source, statement=statement):
                wanted = self._next_change(record.offset)
                hold(statement.sql == wanted.sql, f"I1: {statement.sql} stands for {wanted}")
                hold(source.seq == self.delivered, f"I2: seq {source.seq} is no. {self.delivered}")
            case (
                ResolvedRecord(progress=progress, epoch=epoch)
                | FenceRecord(progress=progress, epoch=epoch)
            ):
                hold(epoch >= self._epoch, f"I4: epoch {epoch} after {self._epoch}")
                self._epoch = epoch
                hold(progress.seq == self.delivered, f"I6: seq {progress.seq} is resolved")
                self._check_resolved(str(progress.gtid_set), progress.open is not None)

    def _next_change(self, offset: int) -> Change:
        hold(self.delivered < len(self._published), f"I1: offset {offset} is not in the binlog")
        self.delivered += 1
        return self._published[self.delivered - 1]

    def _is_last(self) -> bool:
        """Whether the last delivered record ends its source transaction."""
        done = self._published[self.delivered - 1]
        following = self._published[self.delivered : self.delivered + 1]
        return not following or following[0].number != done.number

    def _check_resolved(self, gtid_set: str, is_open: bool) -> None:
        """Check that exactly the GTID set is delivered, apart from the open source transaction."""
        number = last_number(gtid_set)
        whole = self._binlog.executed(number)
        hold(gtid_set == whole, f"I6: {gtid_set} is resolved, and the source had executed {whole}")
        last = self._published[self.delivered - 1].number if self.delivered else 0
        following = self._published[self.delivered : self.delivered + 1]
        hold(not following or following[0].number > number, f"I6: {gtid_set} is resolved too early")
        hold(last <= number + is_open, f"I3: {last} is delivered, {gtid_set} resolved")


@dataclass(frozen=True)
class Backup:
    """The target at one commit, and the judges' state then."""

    contents: Contents
    mark: tuple[int, int]
    rows_at_mark: Rows


class TargetJudge:
    """Checks every commit. Keeps two backups, from the last commits whose numbers are powers of two."""

    def __init__(self, target: ModelServer, published: Sequence[Change]) -> None:
        target.on_commit = self._check
        self._target = target
        self._published = published
        self._mark = NOTHING_APPLIED
        self._rows_at_mark = Rows()
        self._commits = 0
        self._backups: tuple[Backup, ...] = ()

    @property
    def progress(self) -> tuple[int, int]:
        """(seq, next offset) of the mark."""
        rows = self._target.of("millrace.progress")
        return (rows[0][1], rows[0][2]) if rows else (0, -2)

    def restore(self) -> None:
        """Replace the target by the older backup; no client may be connected."""
        old = self._backups[0]
        self._target.restore(old.contents)
        self._mark, self._rows_at_mark = old.mark, copy.deepcopy(old.rows_at_mark)

    def _check(self) -> None:
        """Check the target at a commit."""
        mark = self.progress
        hold(mark >= self._mark and mark[1] >= self._mark[1], f"I6: {mark} after {self._mark}")
        while self._mark[0] < mark[0]:
            self._rows_at_mark.apply(self._published[self._mark[0]])
            self._mark = (self._mark[0] + 1, mark[1])
        self._mark = mark
        bitmaps = [(row[5], row[6]) for row in self._target.of("millrace.applied")]
        above = [seq for seq in from_bitmaps(bitmaps).tolist() if seq > mark[0]]
        intended = [row[1] for row in self._target.of("millrace.ddl_intent")]
        found = self._target.plain()
        states = [above, *([*above, seq] for seq in intended if seq > mark[0])]
        wanted = [self._rows_with(seqs) for seqs in states]
        hold(
            found in wanted,
            f"I8: seqs to {mark[0]} and {above} are marked applied; the target has\n{found}\nnot\n{wanted[0]}",
        )
        whole = mark[0] == len(self._published) or (
            mark[0] and self._published[mark[0]].number != self._published[mark[0] - 1].number
        )
        if whole and not above:
            money = sum(row[2] for row in found["accounts"])
            hold(money == TOTAL, f"I8: {money} at seq {mark[0]}")
        self._commits += 1
        if self._commits & (self._commits - 1) == 0:
            taken = Backup(self._target.backup(), mark, copy.deepcopy(self._rows_at_mark))
            self._backups = (*self._backups[-1:], taken)

    def _rows_with(self, above: list[int]) -> Mapping[str, Sequence[object]]:
        rows = self._rows_at_mark
        if above:
            rows = copy.deepcopy(rows)
            for seq in above:
                rows.apply(self._published[seq - 1])
        return rows.plain(hidden=False)


def _plain(image: Mapping[str, object] | None) -> dict[str, object] | None:
    return None if image is None else dict(image)
