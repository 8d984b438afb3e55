"""Rows whose cascade the source did not log: only the target's foreign keys can change their child rows.

InnoDB changes them by itself (MariaDB, MySQL before 9.6). Newer rows events show that the cascade is logged
(``walk.LOGS_CASCADES``). A row that is written without foreign key checks has no cascade.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from millrace.consumer.kernel import walk
from millrace.consumer.records.numbers import RecordNumbers
from millrace.consumer.records.rows import Rows
from millrace.consumer.tables.cascades import followers
from millrace.consumer.tables.table_plan import TablePlan, record_indexes
from millrace.consumer.tables.table_plans import TablePlans, slots_of
from millrace.drivers.mysql.actions import Action
from millrace.drivers.mysql.catalog import ForeignKey

Flags = npt.NDArray[np.bool_]


def cascading_deletions(
    rows: Rows, numbers: RecordNumbers, table_plan: TablePlan, foreign_keys: Sequence[ForeignKey]
) -> Flags:
    """True for each of these rows of a table that is a DELETE with such a cascade."""
    following = followers(foreign_keys, table_plan.target.key)
    if not any(foreign.actions.on_delete is not Action.NO_ACTION for foreign in following):
        return np.zeros(len(numbers), np.bool_)
    return _is_unlogged(rows, numbers, walk.OP_DELETE)


def cascading_changes(
    rows: Rows, numbers: RecordNumbers, table_plan: TablePlan, foreign_keys: Sequence[ForeignKey]
) -> Iterator[tuple[int, ForeignKey]]:
    """Each UPDATE of these rows with such a cascade, and the foreign key of the child rows."""
    following = followers(foreign_keys, table_plan.target.key)
    acting = [one for one in following if one.actions.on_update is not Action.NO_ACTION]
    for number in map(int, numbers[_is_unlogged(rows, numbers, walk.OP_UPDATE)] if acting else ()):
        for foreign in acting:
            columns = record_indexes(table_plan.layout, foreign.parent_columns)
            if columns is None or rows.has_changed(number, columns):
                yield number, foreign


def leave_unchecked(rows: Rows, numbers: RecordNumbers, plans: TablePlans) -> None:
    """Turn foreign key checks off for these rows, with the exception of those with such a cascade."""
    slots, foreign_keys = rows.slots(numbers), plans.inventory.foreign_keys
    for slot in slots_of(slots):
        of_table, table_plan = RecordNumbers(numbers[slots == slot]), plans.table_plan(slot)
        cascading = cascading_deletions(rows, of_table, table_plan, foreign_keys)
        changed = [
            number for number, _ in cascading_changes(rows, of_table, table_plan, foreign_keys)
        ]
        cascading |= np.isin(of_table, changed)
        rows.records[of_table[~cascading], walk.FLAGS] |= walk.NO_FOREIGN_KEY_CHECKS


def _is_unlogged(rows: Rows, numbers: RecordNumbers, op: int) -> Flags:
    records = rows.records[numbers]
    found: Flags = (records[:, walk.OP] == op) & (
        (records[:, walk.FLAGS] & walk.LOGS_CASCADES) == 0
    )
    return found
