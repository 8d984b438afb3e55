"""The changes that a lane's records make, as lines of ``kernel.merge`` with levels, ready to become statements.

Changes of one level share no causality key, so their order does not matter.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from millrace.consumer.kernel.merge import CHANGE_OP, EXACT, LEVEL, MODE, MOVES, OP_ABSENT, PLACE
from millrace.consumer.kernel.walk import (
    FLAGS,
    IS_SAFE,
    LOGS_CASCADES,
    NO_CONSTRAINT_CHECKS,
    NO_FOREIGN_KEY_CHECKS,
    OP,
    OP_CREATE,
    OP_DELETE,
    OP_UPDATE,
)
from millrace.consumer.records.numbers import Ints, RecordNumbers, Slots
from millrace.consumer.records.rows import Rows
from millrace.consumer.tables.causality_keys import find_keys
from millrace.consumer.tables.merge_rules import net_changes
from millrace.consumer.tables.table_plans import TablePlans, slots_of

# a table's changes of one level are sorted by operation, so around OP_DELETE
OP_RESTORE, OP_MOVE, OP_REPLACE = 98, 109, 114


def changes_of(plans: TablePlans, rows: Rows, numbers: RecordNumbers) -> Iterator[Ints]:
    """The changes of these records (in seq order), in groups to be written one after the other.

    Records in and out of the range of safe mode are never merged, nor those with and without checks of constraints.
    Usually all are on one side.
    """
    records = rows.records[numbers]
    side = records[:, IS_SAFE] | unconstrained(records).astype(np.int64) << 1
    for run in np.split(numbers, np.flatnonzero(np.diff(side)) + 1):
        changes = leveled(plans, rows, RecordNumbers(run))
        yield repeatable(plans, rows, changes) if rows.records[run[0], IS_SAFE] else changes


def leveled(plans: TablePlans, rows: Rows, numbers: RecordNumbers) -> Ints:
    """The net changes of these records, with levels.

    Only tables that are not EXACT need their causality keys.
    """
    rules = plans.merge_rules(slots_of(rows.slots(numbers)))
    changes = net_changes(rows, numbers, rules)
    slots = rows.slots(RecordNumbers(changes[:, PLACE]))
    keyed = np.flatnonzero(rules.rules[slots, MODE] != EXACT)
    if len(keyed):
        programs = plans.key_programs(slots_of(Slots(slots[keyed])))
        entries = find_keys(rows, programs, RecordNumbers(changes[keyed, PLACE]))
        changes[keyed, LEVEL] = entries.levels(len(keyed))
    return changes


def repeatable(plans: TablePlans, rows: Rows, changes: Ints) -> Ints:
    """The same changes as DELETE and REPLACE (``consumer.window.safe_mode``).

    An UPDATE of the key is both. Its DELETE is first, because the new key may equal the old one under the collation. In
    a table with columns that no record has, it is one change, which keeps their values. A DELETE with foreign key
    checks first restores the row, so that the target's cascade finds it.
    """
    ops = changes[:, CHANGE_OP]
    is_moving = (ops == OP_UPDATE) & (changes[:, MOVES] != 0)
    slots = rows.slots(RecordNumbers(changes[:, PLACE]))
    keeping = [slot for slot in slots_of(slots) if plans.table_plan(slot).on_duplicate]
    is_kept = is_moving & np.isin(slots, keeping)
    left = changes[is_moving & ~is_kept]
    left[:, CHANGE_OP] = OP_DELETE
    restored = changes[(ops == OP_DELETE) & ~unchecked(rows.records[changes[:, PLACE]])]
    restored[:, CHANGE_OP] = OP_RESTORE
    made = changes.copy()
    made[(ops == OP_UPDATE) | (ops == OP_CREATE), CHANGE_OP] = OP_REPLACE
    made[is_kept, CHANGE_OP] = OP_MOVE
    made[ops == OP_ABSENT, CHANGE_OP] = OP_DELETE
    return np.concatenate((left, restored, made))


def unchecked(records: Ints) -> npt.NDArray[np.bool_]:
    """True for each record that is written without foreign key checks, so that no cascade follows.

    A DELETE of a source that logs cascades is one: MySQL 9.6 logs a REPLACE of a parent as DELETE and INSERT, and the
    children of that parent stay.
    """
    flags = records[..., FLAGS]
    is_logged = (records[..., OP] == OP_DELETE) & ((flags & LOGS_CASCADES) != 0)
    found: npt.NDArray[np.bool_] = ((flags & NO_FOREIGN_KEY_CHECKS) != 0) | is_logged
    return found


def unconstrained(records: Ints) -> npt.NDArray[np.bool_]:
    """True for each record whose row may break a CHECK: the source did not check it."""
    found: npt.NDArray[np.bool_] = (records[..., FLAGS] & NO_CONSTRAINT_CHECKS) != 0
    return found
