"""Applies one micro-batch: the windows between barriers, each in one lane or several, and then the barrier.

    window           the records up to the next barrier
    barrier          a DDL statement, or a schema record that gives a known schema ID a new meaning
    mark             the low-water mark of the task's progress: every change up to its seq is applied
    bitmap           the changes above the mark that a lane has applied, stored with its rows

    few records      One Spark task applies them in order and moves the mark in the same target transactions.
    many records     One Spark task returns the causality keys. From these the driver makes groups, and from the groups
                     lanes. One Spark task per lane applies its rows and inserts bitmaps. Then the driver moves the mark
                     and deletes the bitmaps.
    a barrier        The driver executes the DDL statement, or learns the new meaning.

Rows pass through the driver only between barriers that are close together (``consumer.apply.serial``). Of all other
rows the driver gets only offsets, weights and keys. All decisions depend only on the records, the mark and the target.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol
from uuid import uuid4

from consumer.apply.ddl import DdlPlace, apply_ddl
from consumer.apply.executor import Order, Outcome, Plan
from consumer.kernel.order import pack_lanes
from consumer.route import Route
from consumer.row_schemas import Ints, RowSchemas, layout_of
from consumer.sql.table_plans import Catalogue
from consumer.target.connection import Endpoint, TargetConnection
from consumer.target.inventory import Inventory, TableKey, alter_count, read_again, read_inventory
from consumer.target.progress import (
    Mark,
    Owner,
    SavedProgress,
    check_fence,
    delete_applied,
    move_mark,
    save_schemas,
)
from consumer.target.sessions import close_session, cut_session, session_for
from consumer.window import Barrier, advanced, check_follows, check_statement_begin
from millrace.errors import Retryable
from millrace.faults import fault_point, register
from millrace.log import get_logger
from schemas.documents import ConflictPolicy, TableFilter
from schemas.record.control import DdlRecord, SchemaRecord
from schemas.record.record import decode_control

BEFORE_MARK = register("apply.before_mark")
AFTER_MARK = register("apply.after_mark")

_log = get_logger("apply.batch")

TRIGGERS_NAMED = 3  # in a warning
SERIAL_OFFSETS_MAX = 4096  # with fewer, a second Spark job costs more than parallel lanes save


class RecordsLike(Protocol):
    """The records of a micro-batch, in Spark or in a test."""

    @property
    def span(self) -> int:
        """The number of offsets in the micro-batch, with or without a record."""

    def serial(self, order: Order, catalogue: Catalogue, applied: Ints) -> Outcome:
        """``executor.apply_serial`` on the records from the mark on."""

    def plan(self, order: Order, catalogue: Catalogue, applied: Ints) -> Plan:
        """``executor.plan`` on the records from the mark on."""

    def lanes(
        self, order: Order, catalogue: Catalogue, applied: Ints, *, offsets: Ints, lanes: Ints
    ) -> list[Outcome]:
        """``executor.apply_lane`` for each lane."""

    def release(self) -> None:
        """Release the records."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The constants of one run of an apply task. (Not the scheduler's assignment of tasks to workers.)"""

    owner: Owner
    endpoint: Endpoint
    policy: ConflictPolicy
    lane_count: int
    registry: str = ""
    tables: TableFilter = field(default_factory=TableFilter)


@dataclass(slots=True)
class Figures:
    """Counts for the status since the start of the run. ``triggers``: the target's at the start, by table.

    ``orders``: requests to executors. ``left_out``: DDL statements not applied. ``commit_ms``: of the last applied row.
    """

    batches: int = 0
    orders: int = 0
    rows: int = 0
    statements: int = 0
    ddl: int = 0
    left_out: int = 0
    commit_ms: int = 0
    triggers: Mapping[TableKey, tuple[str, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class BatchApplier:
    """Applies one micro-batch after another, in one thread. ``applied``: the seqs above the mark that were applied."""

    assignment: Assignment
    mark: Mark
    applied: Ints
    catalogue: Catalogue
    figures: Figures = field(default_factory=Figures)
    _nears_barrier: bool = (
        False  # barriers come in bursts: the few rows between them do not pay for several lanes
    )

    @classmethod
    def at(
        cls, assignment: Assignment, saved: SavedProgress, inventory: Inventory, mark: Mark
    ) -> "BatchApplier":
        """An applier that begins at the target's progress."""
        # run numbers repeat on another or an emptied target, so they alone would not be unique
        version = f"{assignment.owner.task}/{assignment.owner.run}/{uuid4().hex}/0"
        route = Route(assignment.tables, inventory.folds_names)
        catalogue = Catalogue(version, saved.schemas, inventory, route)
        return cls(assignment, mark, saved.applied, catalogue)

    def process(self, records: RecordsLike, progressed: Callable[[Mark], None]) -> None:
        """Apply all records. Calls ``progressed`` after each move of the mark. Errors end the run."""
        self.figures.batches += 1
        begin = self.mark.next_offset
        try:
            while True:
                left = records.span - max(self.mark.next_offset - max(begin, 0), 0)
                begun_s, rows = time.monotonic(), self.figures.rows
                outcome = self._apply_window(records, is_small=left <= SERIAL_OFFSETS_MAX)
                _log.debug(
                    "window applied",
                    offsets=left,
                    rows=self.figures.rows - rows,
                    ms=round((time.monotonic() - begun_s) * 1000),
                )
                progressed(self.mark)
                # the read-ahead of a serial lane may end in the middle of a burst
                self._nears_barrier = outcome.barrier is not None or (
                    self._nears_barrier and outcome.is_cut and outcome.rows < SERIAL_OFFSETS_MAX
                )
                if outcome.is_cut:
                    continue
                if outcome.barrier is None:
                    return
                begun_s = time.monotonic()
                self._pass_barrier(outcome.barrier)
                _log.debug("barrier passed", ms=round((time.monotonic() - begun_s) * 1000))
                progressed(self.mark)
        finally:
            records.release()

    def warning(self) -> Retryable | None:
        """MR-5018 if the topic has rows of tables with triggers."""
        triggers, catalogue = self.figures.triggers, self.catalogue
        if not triggers:
            return None
        shown = (layout_of(text).table for text in catalogue.schemas.texts.values())
        written = {
            catalogue.inventory.key(table.database, table.table)
            for table in shown
            if catalogue.route.admits(table.database, table.table)
        }
        fired = [
            ".".join((*key, name)) for key in sorted(written) for name in triggers.get(key, ())
        ]
        if not fired:
            return None
        more = f" and {len(fired) - TRIGGERS_NAMED} more" if len(fired) > TRIGGERS_NAMED else ""
        names = ", ".join(fired[:TRIGGERS_NAMED])
        return Retryable("MR-5018", f"triggers on the target: {names}{more}")

    def cut(self) -> None:
        """Call from another thread: a pending call on the driver's own session to the target ends with a Retryable."""
        cut_session(self.assignment.owner)

    def close(self) -> None:
        """Close the driver's own session to the target."""
        close_session(self.assignment.owner)

    def _apply_window(self, records: RecordsLike, *, is_small: bool) -> Outcome:
        if is_small or self._nears_barrier or self.assignment.lane_count == 1:
            cut = 1 << 62 if is_small else SERIAL_OFFSETS_MAX
            outcome = records.serial(self._order(rows_max=cut), self.catalogue, self.applied)
            assert outcome.mark is not None
            self.mark = outcome.mark
            self._learn(outcome.learned)
            self._count(outcome)
            return outcome
        self._reload_altered_inventory()
        order = self._order()
        plan = records.plan(order, self.catalogue, self.applied)
        self._learn(plan.outcome.learned)
        if len(plan.offsets):
            groups = plan.entries.groups(len(plan.offsets))
            lanes = pack_lanes(groups, plan.weights, self.assignment.lane_count)
            done = records.lanes(
                order, self.catalogue, self.applied, offsets=plan.offsets, lanes=lanes
            )
            _check_rows(done, planned=len(plan.offsets))
            for outcome in done:
                self._count(outcome)
        assert plan.outcome.mark is not None
        if plan.outcome.mark != self.mark:
            self._move(plan.outcome.mark, plan.outcome.learned)
        self.figures.commit_ms = plan.outcome.commit_ms or self.figures.commit_ms
        return plan.outcome

    def _reload_altered_inventory(self) -> None:
        """Read the inventory again if a table was altered: lanes must know a key that an operator has added."""
        session, known = self._driver_session(), self.catalogue.inventory
        if alter_count(session) != known.alter_count:
            self._replace_catalogue(self.catalogue.schemas, read_inventory(session))
        session.rollback()

    def _order(self, *, rows_max: int = 1 << 62) -> Order:
        given = self.assignment
        self.figures.orders += 1
        return Order(
            given.owner,
            given.endpoint,
            given.policy,
            self.mark,
            self.figures.orders,
            given.registry,
            rows_max,
        )

    def _count(self, outcome: Outcome) -> None:
        self.figures.rows += outcome.rows
        self.figures.statements += outcome.statements
        self.figures.commit_ms = outcome.commit_ms or self.figures.commit_ms

    def _learn(self, learned: dict[int, str]) -> None:
        schemas = self.catalogue.schemas
        for number, text in learned.items():
            schemas = schemas.learned(number, text)
        if schemas is not self.catalogue.schemas:
            self._replace_catalogue(schemas, self.catalogue.inventory)

    def _replace_catalogue(self, schemas: RowSchemas, inventory: Inventory) -> None:
        start, _, number = self.catalogue.version.rpartition("/")
        version = f"{start}/{int(number) + 1}"
        self.catalogue = replace(
            self.catalogue, version=version, schemas=schemas, inventory=inventory
        )

    def _move(self, after: Mark, learned: dict[int, str]) -> None:
        """Move the mark over all rows that the lanes applied, and delete their bitmaps."""
        session, task = self._driver_session(), self.assignment.owner.task
        fault_point(BEFORE_MARK)
        check_fence(session, self.assignment.owner)
        move_mark(session, task, before=self.mark, after=after)
        save_schemas(session, task, learned)
        # a micro-batch of an earlier run may have ended later: its rows after this mark still need their bitmaps
        is_passed = not len(self.applied) or int(self.applied[-1]) <= after.seq
        delete_applied(session, task, run=None if is_passed else self.assignment.owner.run)
        session.commit()
        fault_point(AFTER_MARK)
        self.mark = after

    def _driver_session(self) -> TargetConnection:
        return session_for(self.assignment.endpoint, self.assignment.owner)

    def _pass_barrier(self, barrier: Barrier) -> None:
        record = decode_control(barrier.value)
        if isinstance(record, SchemaRecord):
            learned = {record.value.id: record.value.schema.text}
            self._move(
                advanced(self.mark, None, seq=self.mark.seq, next_offset=barrier.offset + 1),
                learned,
            )
            self._learn(learned)
            return
        assert isinstance(record, DdlRecord)
        check_follows(record.source.seq, self.mark.seq, barrier.offset)
        check_statement_begin(record, self.mark, barrier.offset)
        seq = self.mark.seq if self.mark.is_unproven else record.source.seq
        after = advanced(self.mark, None, seq=seq, next_offset=barrier.offset + 1)
        known = self.catalogue.inventory
        changed = apply_ddl(
            self.assignment.endpoint,
            self.assignment.owner,
            record,
            DdlPlace(self.mark, after),
            route=self.catalogue.route,
        )
        self.mark = after
        self.figures.ddl += changed is not None
        self.figures.left_out += changed is None
        if changed is not None:
            session = self._driver_session()
            inventory = read_again(session, known, changed)
            self._replace_catalogue(self.catalogue.schemas, inventory)
            session.commit()


def _check_rows(done: list[Outcome], *, planned: int) -> None:
    """Missing rows must be found before the mark moves over them."""
    rows = sum(outcome.rows for outcome in done)
    if rows != planned:
        raise Retryable("MR-5050", f"the lanes applied {rows} of {planned} planned rows")
