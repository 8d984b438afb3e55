"""Statements for MariaDB's sequences, whose state is one row with eight columns.

The binlog has the whole row after each change of the state: NEXT VALUE FOR writes one for each block of cached values,
SETVAL and INSERT one each. CREATE, ALTER and DROP are DDL. So the last row of a sequence is its state.

    setval    SETVAL to the row's next value and cycle. Never goes back; changes nothing else; other sessions may use
              the sequence meanwhile
    is_set    whether the sequence has exactly the row's state now
    insert    the whole row, after an INSERT on the source or if the target's sequence differs. Like ALTER SEQUENCE, it
              waits for all transactions that use the sequence

None of them is rolled back with the target transaction. Each has the same result if it is repeated.
"""

from consumer.records.rows import Template
from consumer.tables.table_plan import AFTER, TablePlan, compared, make_shape, record_indexes
from schemas.sql.quoting import quoted

NEXT, CYCLE = "next_not_cached_value", "cycle_count"


def setval_template(table_plan: TablePlan) -> Template:
    """SELECT SETVAL of the after image."""
    indexes = record_indexes(table_plan.layout, (NEXT, CYCLE))
    assert indexes is not None
    texts = [b"SELECT SETVAL(" + table_plan.name + b",", b",0,", b")"]
    return Template.of(texts, make_shape(table_plan.layout, compared(AFTER, indexes)))


def is_set_template(table_plan: TablePlan) -> Template:
    """SELECT that returns a row if the sequence has the after image."""
    texts = [b"SELECT 1 FROM " + table_plan.name + b" WHERE "]
    for place, (_, column) in enumerate(table_plan.columns):
        texts[-1] += (b" AND " if place else b"") + quoted(column.name) + b"="
        texts.append(b"")
    indexes = [index for index, _ in table_plan.columns]
    return Template.of(texts, make_shape(table_plan.layout, compared(AFTER, indexes)))
