"""Writes the source's rows to the target, so that this can't race with apply.

A batch of at most ``BATCH_ROWS`` rows is one target transaction:

    1  lock the task's fence row FOR UPDATE. Every target transaction of apply holds it FOR SHARE, so none is under way
    2  the progress still has what the last look waited for, and no load copies the table, else leave the batch
    3  begin a snapshot of the source that shows all that the target may have, and read both sides' states again. A
       row that is not as it was when it was confirmed different is left for another comparison. So is the batch, if the
       member is later than ``SOURCE_WAIT_S`` (MR-5129), because apply waits meanwhile
    4  for each row: write the source's values (``repair_sql``), without foreign key checks, so no cascade fires. A row
       of the target that has a unique key of the row is deleted, if the source has the same unique keys: then it is
       wrong, and a difference, too. Read the digest of the row. If it is not that of the source, undo this row and log
       MR-5122
    5  record the row in ``millrace.repair``, and commit. Both rows are recorded whole up to ``RECORD_BYTES_MAX``, and
       up to a part of ``max_allowed_packet``, because a literal may be twice as long and is escaped

No transaction of apply is between 3 and 5, and the source did not change the row between two looks, so nothing in the
topic after the mark changes the row, but for ABA (``settle``). Then apply may find another row than it expects, and
its conflict policy decides.

    killed before the commit     the server rolls back and releases the fence; nothing is repaired
    killed after the commit      the rows are repaired and recorded; the next comparison finds them equal
    stopped or cut off           the server ends the session after ``IDLE_S``, which releases the fence; apply waits

If a side has further columns, the common ones are written: the target's others keep their values, and get their
defaults in a row that was missing. No row of the target is deleted for another one then, because the row that replaces
it would lose these values.

Refused (MR-5123), because writing a row would change more than the row: triggers, system versioning, keys WITHOUT
OVERLAPS, sequences. Also a table without a common key whose target has further columns: rows that are equal in the
common columns are different rows there, and it is unknown which of them to change.

Under a view that changes the table, also a target that another task may write, and an added column that is not
compared: it is not known whose a row is. A missing row is left if a column of the view is not compared, such as a
masked one: it would be without its value.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from millrace.consumer.compare.gaps import Gap
from millrace.consumer.compare.repair_sql import repair_statements, replacing
from millrace.consumer.compare.result import What
from millrace.consumer.compare.show import RECORD_BYTES_MAX, row_record, source_values
from millrace.consumer.compare.sides import Sides, batches, contains, states
from millrace.consumer.compare.table import Pair
from millrace.consumer.tables.generated_columns import fix_of_refusal
from millrace.consumer.target.aside import kept_tables
from millrace.consumer.target.merged_tables import merged_among
from millrace.consumer.target.progress import DATABASE
from millrace.consumer.target.stored_view import tasks_that_write
from millrace.consumer.target.streams import tables_in_loads
from millrace.drivers.mysql.catalog import hold_triggers
from millrace.drivers.mysql.connection import LENIENT_MODE, MySqlSession, Row, connect
from millrace.errors import Fatal, Retryable
from millrace.faults import fault_point, register
from millrace.log import get_logger
from millrace.wording import counted

BATCH_ROWS = 100  # some 10 ms; apply waits so long
SOURCE_WAIT_S = 2.0  # for a replica, as long as a turn of apply may wait for a join of streams
IDLE_S = 30
PACKET_PART = 16  # of max_allowed_packet: two rows, their hex digits, escaped

LOCKED = register("compare.repair_locked")
BEFORE_COMMIT = register("compare.before_repair_commit")
AFTER_COMMIT = register("compare.after_repair_commit")

_log = get_logger("compare")

TABLE = (
    "repair (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, task VARCHAR(190) NOT NULL,"
    " database_name VARCHAR(64) NOT NULL, table_name VARCHAR(64) NOT NULL, what VARCHAR(16) NOT NULL,"
    " row_key LONGTEXT NOT NULL, row_before LONGTEXT NULL, row_after LONGTEXT NULL, at DATETIME(3) NOT NULL)"
)


def repair(sides: Sides, pair: Pair, gaps: Sequence[Gap]) -> list[bool]:
    """Repair these differences; whether each is repaired now. ``sides`` waits for a task."""
    if why := _refusal(pair):
        _refuse(pair, why)
        return [False] * len(gaps)
    # a row that only the target has may have a unique key of another
    places = sorted(range(len(gaps)), key=lambda place: gaps[place].what is not What.EXTRA)
    done: dict[int, bool] = {}
    if pair.unread and any(gap.what is What.MISSING for gap in gaps):
        _refuse(pair, f"a missing row would be without {', '.join(pair.unread)}")
        done = {place: False for place in places if gaps[place].what is What.MISSING}
        places = [place for place in places if place not in done]
    with connect(sides.ends.target) as session:
        session.query(
            f"SET SESSION sql_mode='{LENIENT_MODE}', foreign_key_checks=0, wait_timeout={IDLE_S}"
        )
        session.query(f"CREATE TABLE IF NOT EXISTS {DATABASE}.{TABLE} ENGINE=InnoDB")
        for batch in batches(places, BATCH_ROWS):
            repaired = _repair_batch(sides, session, pair, [gaps[place] for place in batch])
            done.update(zip(batch, repaired, strict=True))
    return [done[place] for place in range(len(gaps))]


def _refusal(pair: Pair) -> str:
    table = pair.target.table
    if table.is_sequence:
        return "it is a sequence"
    if table.is_versioned:
        return "the target keeps its history (system versioning)"
    if any(key.has_period for key in table.unique_keys):
        return "the target has a key WITHOUT OVERLAPS"
    if not pair.is_limited:
        return f"the view has {', '.join(pair.unread)}: it is not known whose a row is"
    if not pair.is_keyed and pair.only_on_target:
        more = ", ".join(pair.only_on_target)
        return f"it has no common key, and the source does not have the target's column {more}"
    return ""


def _refuse(pair: Pair, why: str) -> None:
    error = Fatal("MR-5123", f"{pair.name}: {why}", table=pair.name)
    _log.warning("the table is not repaired", error=error)


def _repair_batch(
    sides: Sides, session: MySqlSession, pair: Pair, gaps: Sequence[Gap]
) -> list[bool]:
    left = [False] * len(gaps)
    with sides.on_source(sides.newest()):
        pass  # it waits before the fence is locked, so that little is left to wait for
    try:
        _lock_fence(session, sides.ends.task)
        fault_point(LOCKED)
        if triggers := hold_triggers(session, pair.place):
            _refuse(pair, f"trigger {triggers[0]} on the target")
            return left
        if merged_among(session, [pair.place]):
            _refuse(pair, "tasks merge tables into it, whose rows the source does not have")
            return left
        if pair.loaded_as in tables_in_loads(session, sides.ends.task):
            return left
        if pair.view and (others := tasks_that_write(session, sides.ends.task, [pair.place])):
            _refuse(pair, f"{', '.join(others)} may write it, too")
            return left
        if kept := kept_tables(session, sides.ends.task).get(pair.place):
            _refuse(pair, f"{counted(kept, 'row')} of it kept aside, which a replay changes")
            return left
        if sides.reached is None or not contains(session, sides.ends.task, sides.reached):
            return left
        with sides.on_source(sides.newest(), wait_s=SOURCE_WAIT_S):
            done = _write(sides, session, pair, gaps)
        fault_point(BEFORE_COMMIT)
        session.commit()
    except Retryable as exc:
        if exc.code == "MR-5128":
            late = Retryable("MR-5129", f"{pair.name}: {exc.message}", table=pair.name)
            _log.warning("rows are not repaired", error=late)
        elif exc.code != "MR-5005":  # a deadlock, or apply holds the fence
            raise
        return left
    finally:
        session.rollback()
    fault_point(AFTER_COMMIT)
    return done


def _lock_fence(session: MySqlSession, task: str) -> None:
    if not session.query(f"SELECT run FROM {DATABASE}.fence WHERE task = %s FOR UPDATE", (task,)):
        raise Fatal("MR-5126", f"{task} has not run on this target", task=task)


def _write(sides: Sides, session: MySqlSession, pair: Pair, gaps: Sequence[Gap]) -> list[bool]:
    names = list({one.name: None for gap in gaps for one in gap.suspects})
    here = states(sides.source, pair.source.states, names)
    there = states(session, pair.target.states, names)
    is_same = [
        all(
            (here.get(one.name), there.get(one.name)) == (one.source, one.target)
            for one in gap.suspects
        )
        for gap in gaps
    ]
    # all before the first write, because that may delete a row that comes later
    records = [
        _record(sides, session, pair, gap) if same else None
        for gap, same in zip(gaps, is_same, strict=True)
    ]
    return [
        record is not None and _write_row(sides, session, pair, gap, record)
        for gap, record in zip(gaps, records, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Record:
    """The row's key, and its values before and after; None without a row."""

    key: str
    before: str | None
    after: str | None


def _record(sides: Sides, session: MySqlSession, pair: Pair, gap: Gap) -> _Record:
    limit = min(RECORD_BYTES_MAX, sides.packet_bytes // PACKET_PART)
    before = after = None
    if gap.target is not None:
        before = row_record(session, pair, pair.target, gap.target.name, bytes_max=limit)
    if gap.source is not None:
        after = row_record(sides.source, pair, pair.source, gap.source.name, bytes_max=limit)
    key = (after or before or ("", ""))[0]
    return _Record(key, before and before[1], after and after[1])


def _write_row(sides: Sides, session: MySqlSession, pair: Pair, gap: Gap, record: _Record) -> bool:
    values = source_values(sides.source, pair, gap)
    session.query("SAVEPOINT one_row")
    try:
        _run(session, pair, gap, values)
    except Fatal as exc:
        _undo(session, pair, record.key, exc.message)
        return False
    if any(
        states(session, pair.target.states, [one.name]).get(one.name) != one.source
        for one in gap.suspects
    ):
        _undo(session, pair, record.key, "the target does not store the source's values")
        return False
    session.query(
        f"INSERT INTO {DATABASE}.repair (task, database_name, table_name, what, row_key, row_before, row_after, at)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, UTC_TIMESTAMP(3))",
        (sides.ends.task, *pair.place, str(gap.what), record.key, record.before, record.after),
    )
    return True


def _run(session: MySqlSession, pair: Pair, gap: Gap, values: Row | None) -> None:
    may_replace = values is not None and pair.has_same_unique_keys and not pair.only_on_target
    try:
        matched = [session.run(one.encode()) for one in repair_statements(pair, gap, values)]
    except Fatal as exc:
        if exc.code != "MR-5010" or not may_replace:
            raise
        session.query("ROLLBACK TO SAVEPOINT one_row")
        matched = [0]
    if may_replace and not all(matched):  # also of a row that another has replaced
        assert values is not None
        for statement in replacing(pair, gap, values):
            session.run(statement.encode())


def _undo(session: MySqlSession, pair: Pair, key: str, why: str) -> None:
    session.query("ROLLBACK TO SAVEPOINT one_row")
    fix = fix_of_refusal(pair.target.table, why, "TASK")
    error = Fatal("MR-5122", f"{pair.name}, row {key}: {why}", fix=fix, table=pair.name)
    _log.warning("the row is not repaired", error=error)
