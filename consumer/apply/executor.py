"""The functions that executors run, and the driver between barriers, over Arrow batches of (offset, value).

    apply_serial    applies all records in order on one connection; each target transaction also moves the mark
    plan            returns the causality keys of all rows, from which the driver makes lanes
    apply_lane      applies the records of one lane; each target transaction also inserts its seqs as a bitmap

One target transaction, if the process is killed:

    before the commit       the target has neither rows nor mark (or bitmap)
    after the commit        the target has both
    outcome unknown         the next run reads mark and bitmaps

Two executions of the same part (an abandoned Spark task may still run) conflict at their first write, the move of the
mark or the key of the bitmap. The second one writes nothing. If the mark has moved over a lane and its bitmap is
deleted, the check of the mark refuses the lane.

Millrace's own errors return to the driver in the outcome. Other errors end the Spark task.
Not done here: Spark.
"""

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from consumer.apply.conflict import store_blocking
from consumer.apply.read_ahead import ReadAhead, collect_read_ahead
from consumer.apply.writer import ConflictRule, RowWriter
from consumer.kernel import walk
from consumer.kernel.walk import COMMIT_MS, SEQ, SLOT
from consumer.plan.applied import not_applied, to_bitmap
from consumer.row_schemas import Ints
from consumer.rows import KeyEntries, Rows, Values, find_keys, walk_values
from consumer.sql.table_plans import Catalogue, TablePlans, slots_of
from consumer.target.connection import Endpoint, TargetConnection
from consumer.target.progress import (
    DATABASE,
    Mark,
    MarkTopic,
    Owner,
    check_fence,
    check_mark,
    move_mark,
    save_schemas,
)
from consumer.target.sessions import session_for
from consumer.window import Barrier, LookUp, Window, read_window
from millrace.errors import Fatal, Fenced, MillraceError, Retryable
from millrace.faults import fault_point, register
from schemas.documents import ConflictPolicy

PART_ROWS_MAX = 10_000  # rows per target transaction: small undo and few locks, yet cheap commits
LOCK_TRIES_MAX = 8

BEFORE_LANE_COMMIT = register("apply.before_lane_commit")
AFTER_LANE_COMMIT = register("apply.after_lane_commit")


@dataclass(frozen=True, slots=True)
class Order:
    """The driver's request to executors: apply or plan the topic from the mark on."""

    owner: Owner
    endpoint: Endpoint
    policy: ConflictPolicy
    mark: Mark
    batch: int
    registry: str = ""
    rows_max: int = 1 << 62  # a serial lane stops after these rows


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result. ``mark``: after a serial lane, or at the end of a plan. ``commit_ms``: of the last row.

    ``is_cut``: it stopped at ``rows_max``, and records are left. ``ahead``: records after the barrier, from a serial
    lane. ``lane``: the lane that it belongs to.
    """

    mark: Mark | None = None
    learned: dict[int, str] = field(default_factory=dict)
    barrier: Barrier | None = None
    rows: int = 0
    statements: int = 0
    commit_ms: int = 0
    is_cut: bool = False
    ahead: ReadAhead | None = None
    lane: int = 0


@dataclass(frozen=True)
class Plan:
    """The rows to distribute to lanes, in order, by offset and weight, and their keys."""

    outcome: Outcome
    offsets: Ints
    weights: Ints
    entries: KeyEntries

    @property
    def lane(self) -> int:
        """The number of the Spark task; only task 0 plans."""
        return self.outcome.lane


_table_plans: dict[str, TablePlans] = {}
_table_plans_lock = threading.Lock()  # a driver applies several tasks at once, each in a thread


def table_plans_for(catalogue: Catalogue) -> TablePlans:
    """This process's plans for a catalogue. Only the last few are kept."""
    with _table_plans_lock:
        if catalogue.version not in _table_plans:
            while len(_table_plans) >= 4:
                _table_plans.pop(next(iter(_table_plans)))
            _table_plans[catalogue.version] = TablePlans(catalogue)
        return _table_plans[catalogue.version]


def arrow_values(batch: pa.RecordBatch) -> tuple[Ints, Values]:
    """(offsets in the topic, values) of an Arrow batch with the columns offset and value."""
    column = batch.column(1)
    _, ends, payload = column.buffers()
    width = np.dtype(np.int64 if pa.types.is_large_binary(column.type) else np.int32)
    # always read-only: the compiled functions accept one array type
    bounds: npt.NDArray[Any] = np.frombuffer(memoryview(ends or b"").toreadonly(), width)
    contents = np.frombuffer(memoryview(payload or b"").toreadonly(), np.uint8)
    bounds = bounds[column.offset : column.offset + len(column) + 1]
    return np.asarray(batch.column(0).to_numpy(), np.int64), Values(contents, bounds)


def records_from(mark: Mark, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Ints, Values]]:
    """(offsets, values) from the mark on; earlier records are skipped."""
    for offsets, values in map(arrow_values, batches):
        first = int(np.searchsorted(offsets, mark.next_offset))
        if first < len(offsets):
            yield offsets[first:], values.part(first, len(values))


# ---- one lane for everything -----------------------------------------------------------------------


def apply_serial(
    batches: Iterator[pa.RecordBatch],
    *,
    order: Order,
    catalogue: Catalogue,
    applied: Ints,
    look_up: LookUp,
) -> Outcome:
    """Apply up to the first barrier, in order, moving the mark."""
    plans = table_plans_for(catalogue)
    mark = order.mark
    learned: dict[int, str] = {}
    rows = statements = commit_ms = 0
    records = records_from(mark, batches)
    for offsets, values in records:
        window = read_window(
            values, offsets, plans=plans, seen=mark, applied=applied, look_up=look_up
        )
        learned |= window.learned
        first = 0
        while first < len(window.rows) and rows < order.rows_max:
            end = min(first + min(PART_ROWS_MAX, order.rows_max - rows), len(window.rows))
            numbers = window.waiting[(window.waiting >= first) & (window.waiting < end)]
            after = window.mark_after(end, before=mark)
            statements += _apply_part(
                order, plans, window.rows, numbers, _MarkClaim(mark, after, learned)
            )
            mark, first = after, end
            rows += len(numbers)
            commit_ms = _last_commit_ms(window.rows, numbers) or commit_ms
        is_cut = first < len(window.rows)
        barrier = None if is_cut else window.barrier
        if is_cut:
            _drain(records)
            return Outcome(mark, learned, None, rows, statements, commit_ms, is_cut=True)
        if barrier is not None:
            first_after = len(window.rows) + 1
            left = (offsets[first_after:], values.part(first_after, len(values)))
            ahead = collect_read_ahead(chain((left,), records))
            return Outcome(mark, learned, barrier, rows, statements, commit_ms, ahead=ahead)
    return Outcome(mark, learned, None, rows, statements, commit_ms)


def _drain(records: Iterator[tuple[Ints, Values]]) -> None:
    """Read the rest. Spark ends a Python process that leaves input unread, and starting another takes a second."""
    for _ in records:
        pass


def _last_commit_ms(rows: Rows, numbers: Ints) -> int:
    return int(rows.records[numbers[-1], COMMIT_MS]) if len(numbers) else 0


@dataclass(frozen=True, slots=True)
class _MarkClaim:
    """The claim of a serial lane: the mark moves from exactly ``before`` to ``after``."""

    before: Mark
    after: Mark
    learned: dict[int, str]

    def make(self, connection: TargetConnection, owner: Owner) -> bool:
        move_mark(connection, owner.task, before=self.before, after=self.after)
        save_schemas(connection, owner.task, self.learned)
        return True


@dataclass(frozen=True, slots=True)
class _BitmapClaim:
    """The claim of a parallel lane: its seqs, keyed by the place of this part in the plan made at the mark."""

    mark: Mark
    place: tuple[int, int, int]  # batch, lane, part
    first_seq: int
    bitmap: bytes

    def make(self, connection: TargetConnection, owner: Owner) -> bool:
        """False if another execution of this part has committed; Retryable MR-5021 if the plan is outdated."""
        check_mark(connection, owner.task, self.mark)
        place = (owner.task, owner.run, *self.place)
        try:
            connection.query(
                f"INSERT INTO {DATABASE}.applied VALUES (%s, %s, %s, %s, %s, %s, _binary %s)",
                (*place, self.first_seq, self.bitmap),
            )
        except Fatal as exc:
            if exc.code != "MR-5010":
                raise
            self._check_same(connection, place)
            return False
        return True

    def _check_same(self, connection: TargetConnection, place: tuple[object, ...]) -> None:
        """Spark splits equal input equally. If it did not, the other execution has claimed other records."""
        if not connection.query(
            f"SELECT 1 FROM {DATABASE}.applied WHERE (task, run, batch, lane, part) = (%s, %s, %s, %s, %s)"
            " AND first_seq = %s AND bitmap = _binary %s",
            (*place, self.first_seq, self.bitmap),
        ):
            raise Retryable("MR-5021", "another execution of this lane was split differently")


def _apply_part(
    order: Order, plans: TablePlans, rows: Rows, numbers: Ints, claim: "_MarkClaim | _BitmapClaim"
) -> int:
    """Run one target transaction: fence, claim, rows, commit. Returns the number of statements."""
    session = session_for(order.endpoint, order.owner)
    writer = RowWriter(session, plans, ConflictRule(order.owner.task, order.policy))
    careful = False
    for _ in range(LOCK_TRIES_MAX):
        try:
            check_fence(session, order.owner)
            if claim.make(session, order.owner) and len(numbers):
                (writer.write_carefully if careful else writer.write)(rows, numbers)
            fault_point(BEFORE_LANE_COMMIT)
            session.commit()
            fault_point(AFTER_LANE_COMMIT)
            return writer.statement_count
        except MillraceError as exc:
            session.rollback()
            if exc.code != "MR-5005" and (careful or not isinstance(exc, Fatal)):
                if writer.blocking is not None and session.is_open:
                    packet = plans.inventory.packet_bytes_max
                    store_blocking(session, order.owner, writer.blocking, bytes_max=packet)
                session.close()
                raise
            careful = careful or isinstance(exc, Fatal)
            writer.settle()
    session.close()
    raise Retryable("MR-5005", "the rows stay locked")


# ---- lanes ----------------------------------------------------------------------------------------


def plan(
    batches: Iterator[pa.RecordBatch],
    *,
    order: Order,
    catalogue: Catalogue,
    applied: Ints,
    look_up: LookUp,
) -> Plan:
    """The keys of all rows up to the first barrier. Applies nothing."""
    plans = table_plans_for(catalogue)
    seen = order.mark
    learned: dict[int, str] = {}
    barrier = None
    offsets: list[Ints] = []
    weights: list[Ints] = []
    entries: list[KeyEntries] = []
    count = commit_ms = 0
    records = records_from(order.mark, batches)
    for at, values in records:
        window = read_window(values, at, plans=plans, seen=seen, applied=applied, look_up=look_up)
        learned |= window.learned
        barrier = window.barrier
        if len(window.rows):
            seen = window.mark_after(len(window.rows), before=seen)
        if len(window.waiting):
            entries.append(_shifted(_window_keys(window, plans), count))
            count += len(window.waiting)
            offsets.append(window.offsets[window.waiting])
            weights.append(window.rows.values.sizes()[window.waiting] + 256)
            commit_ms = _last_commit_ms(window.rows, window.waiting)
        if barrier is not None:
            _drain(records)
            break
    return Plan(
        Outcome(seen, learned, barrier, count, 0, commit_ms),
        _joined(offsets),
        _joined(weights),
        KeyEntries(
            _joined([found.owners for found in entries]),
            _joined([found.hashes for found in entries], np.uint64),
            _joined([found.modes for found in entries], np.uint8),
        ),
    )


def _window_keys(window: Window, plans: TablePlans) -> KeyEntries:
    programs = plans.key_programs(slots_of(window.rows.records[window.waiting, SLOT]))
    return find_keys(window.rows, programs, window.waiting)


def _shifted(entries: KeyEntries, count: int) -> KeyEntries:
    return KeyEntries(entries.owners + count, entries.hashes, entries.modes)


def _joined(arrays: list[npt.NDArray[Any]], kind: type = np.int64) -> npt.NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.empty(0, kind)


def apply_lane(
    batches: Iterator[pa.RecordBatch],
    *,
    lane: int,
    order: Order,
    catalogue: Catalogue,
    applied: Ints,
) -> Outcome:
    """Apply the records of one lane, in seq order. All their schemas are known."""
    plans = table_plans_for(catalogue)
    part = rows_done = statements = 0
    for batch in batches:
        offsets, values = arrow_values(batch)
        if not len(values):
            continue
        rows = walk_values(values, plans.programs)
        if len(rows) != len(values):
            raise Fatal(
                "MR-5032",
                f"a planned record can't be read: {walk.REASONS[rows.status]}",
                offset=int(offsets[len(rows)]),
            )
        seqs = rows.column(SEQ)
        waiting = not_applied(seqs, mark=order.mark.seq, applied=applied)
        for first in range(0, len(rows), PART_ROWS_MAX):
            end = min(first + PART_ROWS_MAX, len(rows))
            numbers = np.flatnonzero(waiting[first:end]) + first
            if len(numbers):
                place = (order.batch, lane, part)
                claim = _BitmapClaim(order.mark, place, *to_bitmap(seqs[numbers]))
                statements += _apply_part(order, plans, rows, numbers, claim)
            part += 1
            rows_done += len(numbers)
    return Outcome(rows=rows_done, statements=statements, lane=lane)


# ---- outcomes as bytes ----------------------------------------------------------------------------


def guarded(work: Callable[[], Outcome | Plan]) -> bytes:
    """Run ``work`` in an executor; returns its outcome, or an error of Millrace, as bytes."""
    try:
        done = work()
    except MillraceError as exc:
        branch = next(kind.__name__ for kind in (Retryable, Fenced, Fatal) if isinstance(exc, kind))
        return _pack(
            {
                "branch": branch,
                "code": exc.code,
                "message": exc.message,
                "fix": exc.fix,
                "context": dict(exc.context),
            },
            [],
        )
    if isinstance(done, Plan):
        arrays: list[np.ndarray] = [
            done.offsets,
            done.weights,
            done.entries.owners,
            done.entries.hashes,
            done.entries.modes,
        ]
        return _pack(_plain(done.outcome), arrays)
    if done.ahead is not None:
        return _pack(_plain(done) | {"ahead_is_all": done.ahead.is_all}, done.ahead.arrays())
    return _pack(_plain(done), [])


def _plain(outcome: Outcome) -> dict[str, object]:
    plain = asdict(replace(outcome, barrier=None, ahead=None))
    if outcome.barrier is not None:
        plain["barrier"] = [outcome.barrier.offset, outcome.barrier.value.hex()]
    return plain


def _pack(header: dict[str, object], arrays: list[npt.NDArray[Any]]) -> bytes:
    shapes = [[str(array.dtype), len(array)] for array in arrays]
    text = json.dumps(header | {"arrays": shapes}).encode()
    return b"".join([len(text).to_bytes(8, "big"), text, *(array.tobytes() for array in arrays)])


def unpack(packed: bytes) -> Outcome | Plan:
    """The inverse of ``guarded``; raises the error if it is one."""
    size = int.from_bytes(packed[:8], "big")
    header = json.loads(packed[8 : 8 + size])
    if "branch" in header:
        kind = {"Retryable": Retryable, "Fenced": Fenced, "Fatal": Fatal}[header["branch"]]
        raise kind(header["code"], header["message"], fix=header["fix"], **header["context"])
    barrier = header["barrier"]
    outcome = Outcome(
        _mark(header["mark"]) if header["mark"] else None,
        {int(number): text for number, text in header["learned"].items()},
        Barrier(barrier[0], bytes.fromhex(barrier[1])) if barrier else None,
        header["rows"],
        header["statements"],
        header["commit_ms"],
        header["is_cut"],
        lane=header["lane"],
    )
    if not header["arrays"]:
        return outcome
    arrays, at = [], 8 + size
    for kind_name, length in header["arrays"]:
        array = np.frombuffer(packed, np.dtype(kind_name), length, at).copy()
        at += array.nbytes
        arrays.append(array)
    if "ahead_is_all" in header:
        return replace(outcome, ahead=ReadAhead.of_arrays(arrays, is_all=header["ahead_is_all"]))
    return Plan(outcome, arrays[0], arrays[1], KeyEntries(arrays[2], arrays[3], arrays[4]))


def _mark(plain: dict[str, Any]) -> Mark:
    return Mark(**{**plain, "topic": MarkTopic(**plain["topic"])})


def results(packed: bytes) -> Iterator[pa.RecordBatch]:
    """One Arrow batch with one row and the column ``result``."""
    yield pa.RecordBatch.from_arrays([pa.array([packed], pa.binary())], names=["result"])
