"""Applies records in one open target transaction, piece by piece: a source transaction that is larger than a window.

    the fence, then for each window   a savepoint, rows
    then                              the move of the mark, commit

Memory is bounded by a window. Nothing else of the task is under way, so the mark is where the records begin.
A window that does not fit the target's rows is rolled back to its savepoint and written row by row.

If the process is killed before the commit, the target rolls everything back, and the next turn begins at the first
record. Rows in a bitmap are skipped: a run under ``consistency: causal`` may have applied a part.

A schema record that gives a known id a new meaning is no barrier here, because windows are written in order.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from millrace.consumer.records.numbers import Seqs
from millrace.consumer.records.pieces import Taken
from millrace.consumer.tables.table_plans import Catalogue, TablePlans
from millrace.consumer.target.loads import task_of
from millrace.consumer.target.progress import Mark, check_fence
from millrace.consumer.target.streams import read_missing, set_missing, set_unfit
from millrace.consumer.window.overlap import Overlap
from millrace.consumer.window.safe_mode import check_triggers
from millrace.consumer.window.window import LookUp, Window, advanced, read_window
from millrace.consumer.write.conflict import store_blocking
from millrace.consumer.write.merging import store_sources
from millrace.consumer.write.row_writer import ConflictRule, RowWriter
from millrace.consumer.write.target_transaction import (
    AFTER_LANE_COMMIT,
    BEFORE_LANE_COMMIT,
    MarkClaim,
    Writing,
)
from millrace.drivers.mysql.connection import MySqlSession
from millrace.errors import Fatal, MillraceError
from millrace.faults import fault_point, register
from millrace.schemas.record.control import SchemaRecord
from millrace.schemas.record.record import decode_control

INSIDE_LARGE = register("apply.inside_large_transaction")


@dataclass(slots=True)
class LargeTransaction:
    """``plans`` and ``mark``: of the caller before, and after the records once ``apply`` has returned."""

    writing: Writing
    mark: Mark
    applied: Seqs
    plans: TablePlans
    look_up: LookUp
    overlap: Overlap
    rows: int = 0
    statements: int = 0
    _learned: dict[int, str] = field(default_factory=dict)
    _conflicts: list[str] = field(default_factory=list)  # their kinds, counted after the commit

    def apply(self, pieces: Iterable[Taken]) -> int:
        """Apply records that have no DDL statement; the number of records of the last piece."""
        session = self.writing.sessions.for_lane(0)
        before, taken = self.mark, 0
        try:
            check_fence(session, self.writing.owner)
            for piece in pieces:
                taken = self._add(session, piece)
                fault_point(INSIDE_LARGE)
            claim = MarkClaim.over(
                self.applied, before=before, after=self.mark, learned=self._learned
            )
            claim.make(session, self.writing.owner)
            fault_point(BEFORE_LANE_COMMIT)
            session.commit()
        except BaseException:
            session.close()  # the server rolls back
            raise
        fault_point(AFTER_LANE_COMMIT)
        self.writing.incidents.conflicted(self.writing.owner.task, self._conflicts)
        return taken

    def _add(self, session: MySqlSession, piece: Taken) -> int:
        first = int(np.searchsorted(piece.offsets, self.mark.next_offset))
        while first < len(piece.offsets):
            window = read_window(
                piece.values.part(first, len(piece.offsets)),
                piece.offsets[first:],
                plans=self.plans,
                seen=self.mark,
                applied=self.applied,
                look_up=self.look_up,
            )
            self.plans = window.plans
            overlap, entered = self.overlap.entered(window, self.mark)
            missing, route = entered.missing, self.plans.route
            if missing and (known := read_missing(session, self.plans.inventory, missing)):
                self.plans = TablePlans(Catalogue("", self.plans.schemas, known, route))
                continue
            self.overlap, window = overlap, entered.window
            if entered.unfit or missing:
                set_unfit(session, task_of(self.writing.owner.task), entered.unfit)
                set_missing(session, task_of(self.writing.owner.task), missing)
                self.plans = self.plans.routed(route.without(missing.union(entered.unfit)))
            self._learned |= window.learned
            end = len(window.rows)
            if end:
                self._write(session, window)
                self.mark = window.mark_after(end, before=self.mark)
            first += end
            if window.barrier is not None:
                record = decode_control(window.barrier.value)
                assert isinstance(record, SchemaRecord)
                learned = {record.value.id: record.value.schema.text}
                self.plans = self.plans.learned(learned)
                self._learned |= learned
                after = window.barrier.offset + 1
                self.mark = advanced(self.mark, None, seq=self.mark.seq, next_offset=after)
                first += 1
        return first

    def _write(self, session: MySqlSession, window: Window[TablePlans]) -> None:
        numbers = window.waiting
        if not len(numbers):
            return
        owner, policy = self.writing.owner, self.writing.policy
        writer = RowWriter(session, self.plans, ConflictRule(owner.task, policy))
        store_sources(session, owner, self.plans, window.rows, numbers)
        check_triggers(session, self.plans, window.rows, numbers)
        session.query("SAVEPOINT millrace_window")
        try:
            writer.write(window.rows, numbers)
        except Fatal:
            session.query("ROLLBACK TO SAVEPOINT millrace_window")
            writer.settle()
            self._write_carefully(session, writer, window)
        self.statements += writer.statement_count
        self._conflicts += writer.conflicts
        self.rows += len(numbers)

    def _write_carefully(
        self, session: MySqlSession, writer: RowWriter, window: Window[TablePlans]
    ) -> None:
        try:
            writer.write_carefully(window.rows, window.waiting)
        except MillraceError:
            if writer.blocking is not None and session.is_open:
                self.writing.incidents.conflicted(self.writing.owner.task, writer.conflicts[-1:])
                session.rollback()
                packet = self.plans.inventory.packet_bytes_max
                store_blocking(session, self.writing.owner, writer.blocking, bytes_max=packet)
            raise
