"""Safe mode: rows that the target may already have, or that it may have in a later state, are applied again.

A task whose document has ``safe_mode: {until_gtid: SET}`` writes the rows of each source transaction in that set so:

    INSERT                        REPLACE
    UPDATE                        REPLACE by the after image; before it DELETE by the before key, if the key changes
    DELETE                        DELETE; a missing row is no error

Counts are not demanded. The statements run without foreign key checks, so no cascade fires. One exception: a DELETE in
a table that others follow by a cascade keeps the checks of its record, because the source may not have logged the
cascade. Rows of other source transactions are written and counted as always.

The set must have every source transaction that the target may have in part or ahead of the task's progress. Then the
target ends with the rows of the source, from any mixture of states between. A REPLACE also removes a row that holds the
value of another unique key, and a DELETE removes the row that has the key now. Such a row comes back:

    a row with a change in the range       Its last change writes it. No later change removes it: on the source they
                                           existed side by side, so they share no key. Changes that share a key of any
                                           image run in the order of the source (causality keys), also over the end of
                                           the range.
    a row without a change in the range    On the source it was the same during the whole range, and no other row had
                                           one of its keys. So no change removes it.

This needs the source's unique keys. If the target has a further one, or one under a collation that sees more values as
equal, REPLACE keeps only the last of two rows that the source keeps both; without safe mode the task would stop with
MR-5010. DDL statements in the range are executed once, as always; they are not repeatable.

Refused before a row of their window is written (MR-5024), because a REPLACE would lose more than the row it writes:

    a table without a usable key                equal rows can't be distinguished
    columns that only the target has            they would get their defaults
    a trigger on the target                     an UPDATE would fire it as DELETE and INSERT, and it may delete others
    system versioning                           history would get rows that never were
    a key WITHOUT OVERLAPS                      MariaDB has no REPLACE for it
    an UPDATE of a key that others follow       their rows follow without a record, and DELETE and REPLACE move none
    by a cascade

A trigger may be created while the task runs. Each target transaction with rows in the range reads the triggers of their
tables before it writes, and holds them until its end (``check_triggers``).

Columns that the target generates are computed by REPLACE; a generated identity is compared as always (MR-5017).
Not done here: the statements (``consumer.apply.writer``).
"""

from dataclasses import dataclass

import numpy as np

from consumer.kernel import walk
from consumer.row_schemas import Ints
from consumer.rows import Rows
from consumer.sql.table_plan import TablePlan, record_indexes
from consumer.sql.table_plans import TablePlans, slots_of
from consumer.target.connection import TargetConnection
from consumer.target.inventory import Inventory, hold_triggers
from consumer.target.progress import Mark
from consumer.window import Window, in_gtid_set
from millrace.errors import Fatal
from schemas.gtid import Flavour, GtidPosition, parse_any_gtid_set, parse_gtid_set, shortened


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

    def set_in(self, window: Window, seen: Mark) -> "SafeMode | None":
        """Mark the rows in the range (IS_SAFE, and the flag that turns foreign key checks off). Fatal MR-5024.

        ``seen`` is the mark before the window. Returns None if it is after the range.
        """
        if self.is_over(seen):
            return None
        rows, plans = window.rows, window.plans
        numbers = window.waiting[in_gtid_set(rows, window.waiting, self.until)]
        slots = rows.column(walk.SLOT)[numbers]
        for slot in slots_of(slots):
            _prepare(rows, numbers[slots == slot], plans, slot)
        rows.records[numbers, walk.IS_SAFE] = 1
        return self

    def text(self, mark: Mark) -> str:
        """For the status."""
        shown = shortened(str(self.until))
        return f"ended at {shown}" if self.is_over(mark) else f"until {shown}"


def check_triggers(session: TargetConnection, plans: TablePlans, rows: Rows, numbers: Ints) -> None:
    """In a target transaction, before these rows are written: Fatal MR-5024 for a trigger on a table of safe mode."""
    safe = numbers[rows.records[numbers, walk.IS_SAFE] == 1]
    for slot in slots_of(rows.records[safe, walk.SLOT]):
        table_plan = plans.table_plan(slot)
        target = table_plan.target
        if target.is_sequence:
            continue
        if triggers := hold_triggers(session, (target.database, target.table)):
            table = table_plan.layout.table.full_name
            raise Fatal("MR-5024", f"{table}: {_of_trigger(triggers[0])}", table=table)


def _of_trigger(name: str) -> str:
    return f"trigger {name} on the target"


def _prepare(rows: Rows, numbers: Ints, plans: TablePlans, slot: int) -> None:
    table_plan, inventory = plans.table_plan(slot), plans.inventory
    table = table_plan.layout.table.full_name
    if why := refusal(table_plan, inventory):
        raise Fatal("MR-5024", f"{table}: {why}", table=table, gtid=rows.gtid(int(numbers[0])))
    flags = rows.records[numbers, walk.FLAGS]
    is_off = np.ones(len(numbers), np.bool_)
    for columns in _followed(table_plan, inventory):
        is_off &= rows.records[numbers, walk.OP] != walk.OP_DELETE
        unlogged = numbers[(flags & walk.NO_FOREIGN_KEY_CHECKS) == 0]
        for number in map(int, unlogged[rows.records[unlogged, walk.OP] == walk.OP_UPDATE]):
            if rows.has_changed(number, columns):
                why = "an UPDATE changes a key that rows of other tables follow by a cascade"
                raise Fatal("MR-5024", f"{table}: {why}", table=table, gtid=rows.gtid(number))
    rows.records[numbers[is_off], walk.FLAGS] |= walk.NO_FOREIGN_KEY_CHECKS


def refusal(table_plan: TablePlan, inventory: Inventory) -> str:
    """The reason why rows of this table can't be applied in safe mode; "" if they can."""
    target = table_plan.target
    if target.is_sequence:  # each record sets its whole state
        return ""
    if not table_plan.identity:
        return "it has no key that identifies a row"
    written = {column.name for _, column in table_plan.columns}
    filled = (column.name for column in target.columns.values() if not column.generated)
    if missing := sorted(set(filled) - written):
        return f"the records do not have the column {missing[0]}"
    if triggers := inventory.triggers.get((target.database, target.table)):
        return _of_trigger(triggers[0])
    if target.is_versioned:
        return "the target keeps its history (system versioning)"
    if any(key.has_period for key in target.unique_keys):
        return "MariaDB has no REPLACE for a key WITHOUT OVERLAPS"
    return ""


def _followed(table_plan: TablePlan, inventory: Inventory) -> set[tuple[int, ...]]:
    """The columns of the record that rows of other tables follow by a cascade."""
    target, layout = table_plan.target, table_plan.layout
    return {
        record_indexes(layout, foreign.parent_columns) or ()
        for foreign in inventory.foreign_keys
        if foreign.cascades and foreign.parent == (target.database, target.table)
    }
