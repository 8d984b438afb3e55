"""Which records of a part set a sequence (``consumer.tables.sequence``)."""

import numpy as np

from consumer.kernel.walk import SLOT
from consumer.records.row_schemas import Ints
from consumer.records.rows import Rows
from consumer.tables.table_plans import TablePlans, slots_of


def split_sequences(plans: TablePlans, rows: Rows, numbers: Ints) -> tuple[Ints, list[int]]:
    """The records of tables, and the last record of each sequence, in seq order."""
    slots = rows.records[numbers, SLOT]
    last: dict[tuple[str, str], int] = {}
    of_tables = np.ones(len(numbers), np.bool_)
    for slot in slots_of(slots) if len(numbers) else ():
        target = plans.table_plan(slot).target
        if target.is_sequence:
            mine = slots == slot
            of_tables &= ~mine
            name = (target.database, target.table)
            last[name] = max(last.get(name, 0), int(numbers[mine][-1]))
    return numbers[of_tables], sorted(last.values())
