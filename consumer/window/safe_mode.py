"""Safe mode: rows that the target may already have, or that it may have in a later state, are applied again.

A task whose document has ``safe_mode: {until_gtid: SET}`` writes the rows of each source transaction in that set so:

    INSERT                        REPLACE
    UPDATE                        REPLACE by the after image; before it DELETE by the before key, if the key changes
    DELETE                        DELETE; a missing row is no error
    DELETE with a cascade         REPLACE by the before image, then DELETE with foreign key checks

The number of changed rows is not checked. The statements run without foreign key checks, so no cascade fires, with
the exception of the last line. It is for a DELETE whose cascade the source did not log
(``consumer.window.unlogged_cascades``). The REPLACE is needed, because only a row that exists has a cascade. Rows of
other source transactions are written and checked as always.

SET must contain every source transaction beyond the task's progress that the target may have, wholly or in part. Then
the target ends with the rows of the source, from any mixture of states between. A REPLACE also removes a row that holds
the value of another unique key, and a DELETE removes the row that has the key now. Such a row comes back:

    a row with a change in the range       Its last change writes it. No later change removes it: on the source they
                                           existed side by side, so they share no key. Changes that share a key of any
                                           image run in the order of the source (causality keys), also across the end
                                           of the range.
    a row without a change in the range    On the source it was the same during the whole range, and no other row had
                                           one of its keys. So no change removes it.

This needs the source's unique keys. If the target has a further one, or one under a collation that sees more values as
equal, REPLACE keeps only the last of two rows that the source keeps both; without safe mode the task would stop with
MR-5010. DDL statements in the range are executed once, as always; they are not repeatable.

Refused before a row of their window is written (MR-5024), because a REPLACE would lose more than the row it writes:

    a table without a usable key                equal rows can't be distinguished
    columns that only the target has            they would get their defaults. Without a further unique key, INSERT …
                                                ON DUPLICATE KEY UPDATE takes the place of REPLACE, and keeps them. An
                                                UPDATE of the key then moves the row, and a row that has the new key
                                                already remains
    a trigger on the target                     an UPDATE would fire it as DELETE and INSERT, and it may delete others
    system versioning                           history would get rows that never were
    a key WITHOUT OVERLAPS                      MariaDB has no REPLACE for it

Refused in the same way (MR-5025): a change whose cascade the source did not log, and which can't be repeated exactly
(``consumer.tables.cascades``). The task is also blocked with this code if the target refuses a DELETE with checks: a
row of a later state refers to the row by a foreign key without a cascade.

A row of a snapshot in the topic (`op: r`) is written by REPLACE wherever it comes, with the same refusals: the target
may have it already. Its values are the source's at that place of the topic, so no other row of the source has its keys.

A trigger may be created while the task runs. Each target transaction with rows in the range reads the triggers of their
tables before it writes, and holds them until its end (``check_triggers``).

Columns that the target generates are computed by REPLACE; a generated identity is compared as always (MR-5017).
Not done here: the statements (``consumer.write.row_writer``).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from millrace.consumer.kernel import walk
from millrace.consumer.records.numbers import RecordNumbers
from millrace.consumer.records.rows import Rows
from millrace.consumer.tables.cascades import why_change_is_inexact, why_deletion_is_inexact
from millrace.consumer.tables.table_plan import TablePlan
from millrace.consumer.tables.table_plans import TablePlans, slots_of
from millrace.consumer.target.progress import Mark
from millrace.consumer.window.unlogged_cascades import Flags, cascading_changes, cascading_deletions
from millrace.consumer.window.window import Window, in_gtid_set
from millrace.drivers.mysql.catalog import ForeignKey, Inventory, hold_triggers
from millrace.drivers.mysql.connection import MySqlSession
from millrace.errors import Fatal
from millrace.schemas.gtid import (
    Flavour,
    GtidPosition,
    parse_any_gtid_set,
    parse_gtid_set,
    shortened,
)


@dataclass(frozen=True, slots=True)
class SafeMode:
    """Safe mode of a task."""

    until: GtidPosition

    @classmethod
    def of(cls, until_gtid: str) -> "SafeMode | None":
        """None for ""."""
        return cls(parse_any_gtid_set(until_gtid)) if until_gtid else None

    def is_over(self, mark: Mark) -> bool:
        """Whether all source transactions of the range are before the mark. Fatal MR-5008 for the other flavour."""
        if not mark.gtid_set:
            return False
        position = parse_gtid_set(Flavour(mark.flavour), mark.gtid_set)
        if position.flavour is not self.until.flavour:
            what = f"safe_mode.until_gtid is a GTID set of {self.until.flavour}"
            raise Fatal("MR-5008", f"{what}, the topic has those of {position.flavour}")
        return position.includes(self.until)

    def mark_rows(self, window: Window[TablePlans], seen: Mark) -> "SafeMode | None":
        """Mark the rows in the range (``mark_safe``). Fatal MR-5024, MR-5025.

        ``seen`` is the mark before the window. Returns None if it is after the range.
        """
        if self.is_over(seen):
            return None
        is_early = in_gtid_set(window.rows, window.waiting, self.until)
        mark_safe(window, RecordNumbers(window.waiting[is_early]))
        return self

    def text(self, mark: Mark) -> str:
        """For the status."""
        shown = shortened(str(self.until))
        return f"ended at {shown}" if self.is_over(mark) else f"until {shown}"


def mark_safe(window: Window[TablePlans], numbers: RecordNumbers) -> None:
    """Mark these rows for safe mode: IS_SAFE, and the flag that turns foreign key checks off.

    Fatal MR-5024, MR-5025.
    """
    rows = window.rows
    slots = rows.slots(numbers)
    for slot in slots_of(slots):
        _prepare(rows, RecordNumbers(numbers[slots == slot]), window.plans, slot)
    rows.records[numbers, walk.IS_SAFE] = 1


def prepare_snapshot_rows(window: Window[TablePlans]) -> None:
    """Prepare the rows of snapshots in a window for their REPLACE. Fatal MR-5024, as for rows in the range."""
    rows = window.rows
    numbers = _marked(rows, window.waiting)
    slots = rows.slots(numbers)
    for slot in slots_of(slots):
        _prepare(rows, RecordNumbers(numbers[slots == slot]), window.plans, slot)


def check_triggers(
    session: MySqlSession, plans: TablePlans, rows: Rows, numbers: RecordNumbers
) -> None:
    """In a target transaction, before these rows are written: Fatal MR-5024 for a trigger on a table of safe mode."""
    for slot in slots_of(rows.slots(_marked(rows, numbers))):
        table_plan = plans.table_plan(slot)
        target = table_plan.target
        if target.is_sequence:
            continue
        if triggers := hold_triggers(session, target.key):
            table = table_plan.shown
            raise Fatal("MR-5024", f"{table}: {_of_trigger(triggers[0])}", table=table)


def _marked(rows: Rows, numbers: RecordNumbers) -> RecordNumbers:
    return RecordNumbers(numbers[rows.records[numbers, walk.IS_SAFE] == 1])


def _of_trigger(name: str) -> str:
    return f"trigger {name} on the target"


def _prepare(rows: Rows, numbers: RecordNumbers, plans: TablePlans, slot: int) -> None:
    table_plan, inventory = plans.table_plan(slot), plans.inventory
    table = table_plan.shown
    if why := refusal(table_plan, inventory):
        raise Fatal("MR-5024", f"{table}: {why}", table=table, gtid=rows.gtid(int(numbers[0])))
    is_cascading = _is_cascading(rows, numbers, table_plan, inventory.foreign_keys)
    rows.records[numbers[~is_cascading], walk.FLAGS] |= walk.NO_FOREIGN_KEY_CHECKS


def _is_cascading(
    rows: Rows, numbers: RecordNumbers, table_plan: TablePlan, foreign_keys: Sequence[ForeignKey]
) -> Flags:
    """True for each DELETE whose cascade must be repeated, because the source did not log it. Fatal MR-5025."""
    place = table_plan.target.key
    table = table_plan.shown
    for number, foreign in cascading_changes(rows, numbers, table_plan, foreign_keys):
        why = why_change_is_inexact(foreign)
        raise Fatal("MR-5025", f"{table}: {why}", table=table, gtid=rows.gtid(number))
    found = cascading_deletions(rows, numbers, table_plan, foreign_keys)
    if found.any() and (why := why_deletion_is_inexact(foreign_keys, place)):
        gtid = rows.gtid(int(numbers[found][0]))
        raise Fatal("MR-5025", f"{table}: {why}", table=table, gtid=gtid)
    return found


def refusal(table_plan: TablePlan, inventory: Inventory) -> str:
    """The reason why rows of this table can't be applied in safe mode; "" if they can."""
    target = table_plan.target
    if target.is_sequence:  # each record sets its whole state
        return ""
    if not table_plan.identity:
        return "it has no key that identifies a row"
    if table_plan.unwritten and not table_plan.on_duplicate and not target.is_versioned:
        name = min(column.name for column in table_plan.unwritten)
        return f"the records do not have the column {name}, and the table has a further unique key"
    if triggers := inventory.triggers.get(target.key):
        return _of_trigger(triggers[0])
    if target.is_versioned:
        return "the target keeps its history (system versioning)"
    if any(key.has_period for key in target.unique_keys):
        return "MariaDB has no REPLACE for a key WITHOUT OVERLAPS"
    return ""
