"""Writes records of MariaDB's system-versioned tables, so that the target has the source's rows and history.

The binlog has each stored row, with its start and end. SQL can't write all of them, but the target makes the same rows
if it executes the same change at the same time (``SET timestamp``):

    record                                          executed
    insert of a current row                         INSERT with its start
    update of a current row, with another start     UPDATE at that start; the target makes the row of the history
    update of a current row, the same start         the same; the target makes no history
    update that sets the end                        DELETE at that end; the target makes the row of the history
    insert of a row of the history                  nothing if the target has made it, else INSERT with start and end
    delete of a row of the history                  DELETE HISTORY up to its end, because the source deleted by time

A row is current if its end is the maximum of TIMESTAMP. Records of one table are written in their order. Any other
record, or a target that can't insert history, is Fatal MR-5029. So is a start or end that is no time, because
any writer of the topic may have sent it.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from millrace.consumer.kernel.walk import (
    CELL_WIDTH,
    FIRST_CELL,
    FLAGS,
    HAS_FALLBACK,
    OP,
    OP_CREATE,
    OP_DELETE,
    SLOT,
)
from millrace.consumer.records.numbers import Ints, RecordNumbers
from millrace.consumer.records.rows import Rows
from millrace.consumer.tables.table_plan import AFTER, BEFORE, TablePlan, insert_pieces
from millrace.consumer.tables.table_plans import TablePlans, slots_of
from millrace.consumer.write.statements import STATEMENT_ROWS_MAX, Single, statement_parts
from millrace.errors import Fatal

# MariaDB before and from 11.5
MAXIMA = (b"2038-01-19 03:14:07.999999", b"2106-02-07 06:28:15.999999")
HISTORY = b"system_versioning_insert_history"
_TIME = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}", re.ASCII)
_SHOWN_MAX = 40  # bytes of a refused time


@dataclass(frozen=True, slots=True)
class Version:
    """The change that a record makes: insert, update, delete, history or forget; ``at``: its time."""

    what: str
    at: bytes


def version_of(rows: Rows, table_plan: TablePlan, number: int) -> Version:
    """The meaning of one record; Fatal MR-5029."""
    width = len(table_plan.layout.branches)
    (start_index, _), (end_index, _) = table_plan.period

    def text(image: int, index: int) -> bytes:
        cell = int(rows.records[number, FIRST_CELL]) + image * width + index
        start, end = (int(place) for place in rows.cells[cell, 1:CELL_WIDTH])
        return _checked(table_plan, rows.values.payload[start:end].tobytes())

    op = int(rows.records[number, OP])
    if op == OP_CREATE:
        is_current = text(AFTER, end_index) in MAXIMA
        return Version("insert" if is_current else "history", text(AFTER, start_index))
    end = text(BEFORE, end_index)
    if op == OP_DELETE and end not in MAXIMA:
        return Version("forget", end)
    if op == OP_DELETE or end not in MAXIMA:
        table = table_plan.shown
        kind = "current row" if op == OP_DELETE else "row of the history"
        raise Fatal("MR-5029", f"{table}: a {kind} was changed in its place", table=table)
    if (end := text(AFTER, end_index)) in MAXIMA:
        return Version("update", text(AFTER, start_index))
    return Version("delete", end)


def _checked(table_plan: TablePlan, text: bytes) -> bytes:
    """The text, if it is a time: it becomes SQL without escapes. Otherwise Fatal MR-5029."""
    try:
        is_time = _TIME.fullmatch(text) is not None
        if is_time:
            datetime.fromisoformat(text.decode())
    except ValueError:
        is_time = False
    if not is_time:
        table = table_plan.shown
        shown = text[:_SHOWN_MAX].decode(errors="replace")
        raise Fatal("MR-5029", f"{table}: {shown!r} is no time of a row", table=table)
    return text


@dataclass(slots=True)
class VersionWriter:
    """Writes through the functions of a ``RowWriter``. ``clock``: the session's time, "" for the server's."""

    plans: TablePlans
    run: Callable[[bytes], int]
    run_row: Callable[[Rows, int, bytes], int]
    fill: Callable[[Rows, Single, str], bytes]
    clock: bytes = b""
    is_used: bool = False

    def split(self, rows: Rows, numbers: RecordNumbers) -> tuple[RecordNumbers, RecordNumbers]:
        """The records of other tables, and those of system-versioned tables."""
        slots = rows.slots(numbers)
        is_versioned = np.zeros(len(numbers), np.bool_)
        for slot in slots_of(slots) if len(numbers) else ():
            if self.plans.table_plan(slot).period:
                is_versioned |= slots == slot
        return RecordNumbers(numbers[~is_versioned]), RecordNumbers(numbers[is_versioned])

    def parts(self, rows: Rows, numbers: Ints) -> list[Ints]:
        """These records cut into parts: records that one statement can write, or one record."""
        found: list[list[int]] = []
        before: tuple[str, int, int] | None = None
        for number in map(int, numbers):
            slot, flags = int(rows.records[number, SLOT]), int(rows.records[number, FLAGS])
            table_plan = self.plans.table_plan(slot)
            what = version_of(rows, table_plan, number).what
            is_joined = what in ("insert", "forget") and not rows.records[number, HAS_FALLBACK]
            is_joined &= not table_plan.verified  # which is done for each row
            kind = (what, slot, flags) if is_joined else None
            if kind is not None and kind == before and len(found[-1]) < STATEMENT_ROWS_MAX:
                found[-1].append(number)
            else:
                found.append([number])
            before = kind
        return [np.array(part, np.int64) for part in found]

    def write_part(self, rows: Rows, numbers: Ints) -> int:
        """Insert current rows of one table, or forget rows of its history. Returns the number of rows."""
        table_plan = self.plans.table_plan(int(rows.records[numbers[0], SLOT]))
        self._prepare(table_plan)
        versions = [version_of(rows, table_plan, int(number)) for number in numbers]
        if versions[0].what == "forget":
            self._forget(table_plan, max(version.at for version in versions))
            return len(numbers)
        columns = [*table_plan.columns, *table_plan.period[:1]]
        pieces = insert_pieces(table_plan.layout, table_plan.target, columns)
        firsts = rows.firsts(numbers)
        return sum(
            self.run(rows.text_of(part, pieces.shape, pieces.around))
            for part in statement_parts(rows, firsts, pieces, self.plans.inventory)
        )

    def write_one(self, rows: Rows, single: Single) -> int:
        """The number of matched rows; 1 for a change of the history. ``single.what``: also replace."""
        number = single.number
        table_plan = self.plans.table_plan(int(rows.records[number, SLOT]))
        version = version_of(rows, table_plan, number)
        self._prepare(table_plan)
        match version.what:
            case "forget":
                return self._forget(table_plan, version.at)
            case "history":
                if not self.run(self.fill(rows, single, "find_history")):
                    self.run_row(rows, number, self.fill(rows, single, "insert_history"))
                return 1
            case "delete" if single.what == "replace":
                return 1
            case "insert" if single.what == "insert":
                return self.run_row(rows, number, self.fill(rows, single, "insert_version"))
        self._set_clock(table_plan, version.at)
        what = version.what if single.what == "update" else single.what
        return self.run_row(rows, number, self.fill(rows, single, what))

    def restore(self) -> None:
        """The session's time is the server's again."""
        if self.is_used:
            self.run(b"SET SESSION " + HISTORY + b"=DEFAULT")
        if self.clock:
            self.run(b"SET SESSION timestamp=DEFAULT")
        self.clock, self.is_used = b"", False

    def _forget(self, table_plan: TablePlan, end: bytes) -> int:
        after = datetime.fromisoformat(end.decode()) + timedelta(microseconds=1)
        sql = f" BEFORE SYSTEM_TIME '{after:%Y-%m-%d %H:%M:%S.%f}'"
        self.run(b"DELETE HISTORY FROM " + table_plan.name + sql.encode())
        return 1

    def _prepare(self, table_plan: TablePlan) -> None:
        if not self.is_used:
            self._set(table_plan, b"SET SESSION " + HISTORY + b"=1")
            self.is_used = True

    def _set_clock(self, table_plan: TablePlan, at: bytes) -> None:
        """See ``write.ddl``: MariaDB truncates a double to microseconds."""
        if self.clock != at:
            sql = b"SET SESSION timestamp=UNIX_TIMESTAMP('" + at + b"')+0.0000003"
            self._set(table_plan, sql)
            self.clock = at

    def _set(self, table_plan: TablePlan, sql: bytes) -> None:
        try:
            self.run(sql)
        except Fatal as exc:
            table = table_plan.shown
            raise Fatal("MR-5029", f"{table}: {exc.message}", table=table) from exc
