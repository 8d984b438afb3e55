"""The changes that a lane's records make, as lines of ``kernel.merge`` with levels, ready to become statements.

Changes of one level share no causality key, so their order does not matter.
"""

from collections.abc import Iterator

import numpy as np

from consumer.kernel.merge import CHANGE_OP, EXACT, LEVEL, MODE, MOVES, OP_ABSENT, PLACE
from consumer.kernel.walk import IS_SAFE, OP_CREATE, OP_DELETE, OP_UPDATE, SLOT
from consumer.plan.merge import net_changes
from consumer.row_schemas import Ints
from consumer.rows import Rows, find_keys
from consumer.sql.table_plans import TablePlans, slots_of

OP_REPLACE = 114  # above OP_DELETE, because a table's changes of one level are sorted by operation


def changes_of(plans: TablePlans, rows: Rows, numbers: Ints) -> Iterator[Ints]:
    """The changes of these records (in seq order), in groups to be written one after the other.

    Records in and out of the range of safe mode are never merged. Usually all are on one side.
    """
    is_safe = rows.records[numbers, IS_SAFE]
    for run in np.split(numbers, np.flatnonzero(np.diff(is_safe)) + 1):
        changes = leveled(plans, rows, run)
        yield repeatable(changes) if rows.records[run[0], IS_SAFE] else changes


def leveled(plans: TablePlans, rows: Rows, numbers: Ints) -> Ints:
    """The net changes of these records, with levels.

    Only tables that are not EXACT need their causality keys.
    """
    rules = plans.merge_rules(slots_of(rows.records[numbers, SLOT]))
    changes = net_changes(rows, numbers, rules)
    slots = rows.records[changes[:, PLACE], SLOT]
    keyed = np.flatnonzero(rules.rules[slots, MODE] != EXACT)
    if len(keyed):
        programs = plans.key_programs(slots_of(slots[keyed]))
        entries = find_keys(rows, programs, changes[keyed, PLACE])
        changes[keyed, LEVEL] = entries.levels(len(keyed))
    return changes


def repeatable(changes: Ints) -> Ints:
    """The same changes as DELETE and REPLACE (``consumer.safe_mode``).

    An UPDATE of the key is both. Its DELETE is first, because the new key may equal the old one under the collation.
    """
    ops = changes[:, CHANGE_OP]
    left = changes[(ops == OP_UPDATE) & (changes[:, MOVES] != 0)]
    left[:, CHANGE_OP] = OP_DELETE
    made = changes.copy()
    made[(ops == OP_UPDATE) | (ops == OP_CREATE), CHANGE_OP] = OP_REPLACE
    made[ops == OP_ABSENT, CHANGE_OP] = OP_DELETE
    return np.concatenate((left, made))
