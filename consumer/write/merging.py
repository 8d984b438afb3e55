"""Stores the sources of merged tables before their first rows, in the target transaction that writes these.

    rows of a source that is stored       nothing is asked again in this process
    rows of a new source                  its constants are compared with those of all sources of all tasks (MR-5208)
    rows with a column that was missing   it has the column from now on: no statement removes it any more
    rows for a table that others merge    Fatal MR-5207, if the rule of this task does not say ``merge``

If the target transaction is rolled back, the source is not stored, and the next one looks again.
"""

from dataclasses import replace

from millrace.consumer.records.numbers import RecordNumbers
from millrace.consumer.records.rows import Rows
from millrace.consumer.tables.merged_sources import Source
from millrace.consumer.tables.table_plan import TablePlan
from millrace.consumer.tables.table_plans import TablePlans, slots_of
from millrace.consumer.target.loads import task_of
from millrace.consumer.target.merged_tables import (
    MergedSource,
    check_not_altered,
    lock_sources,
    merged_among,
    put_source,
    read_sources,
)
from millrace.consumer.target.progress import Owner
from millrace.consumer.target.stored_view import tasks_with_rows_of
from millrace.consumer.view.layout import Constant
from millrace.drivers.mysql.connection import MySqlSession
from millrace.errors import Fatal


def store_sources(
    session: MySqlSession, owner: Owner, plans: TablePlans, rows: Rows, numbers: RecordNumbers
) -> None:
    """Before these rows are written. Fatal MR-5207, MR-5208, Retryable MR-5023. Does not commit."""
    new = [slot for slot in slots_of(rows.slots(numbers)) if not plans.is_stored(slot)]
    if not new:
        return
    merged = merged_among(session, {plans.table_plan(slot).target.key for slot in new})
    for slot in new:
        plan, source = plans.table_plan(slot), plans.merged_source(slot)
        if source is None:
            if plan.target.key in merged:
                name = plan.target.name
                what = f"{plan.shown}: other tables are merged into {name}, and the rule does not say `merge`"
                raise Fatal("MR-5207", what, table=plan.shown)
            plans.note_stored(slot)
        elif _is_stored(read_sources(session, plan.target.key), owner, plan, source):
            plans.note_stored(slot)
        else:
            _store(session, owner, plans, plan, slot, source)


def _is_stored(known: list[MergedSource], owner: Owner, plan: TablePlan, source: Source) -> bool:
    wanted = _merged(owner, plan, source)
    return any(
        one.is_same(wanted)
        and one.constants == wanted.constants
        and not one.missing.intersection(_written(plan))
        for one in known
    )


def _store(
    session: MySqlSession,
    owner: Owner,
    plans: TablePlans,
    plan: TablePlan,
    slot: int,
    source: Source,
) -> None:
    target, wanted = plan.target.key, _merged(owner, plan, source)
    known = lock_sources(session, target)
    check_not_altered(known, target, task=wanted.task)
    others = [
        Source(
            one.name,
            {name: Constant.of(value) for name, value in one.constants.items()},
            of=one.task,
        )
        for one in known
        if not one.is_same(wanted)
    ]
    plans.check_apart(slot, others)
    if not known and (tasks := tasks_with_rows_of(session, owner.task, target)):
        what = f"{plan.shown}: {', '.join(tasks)} writes the same table, and does not merge"
        raise Fatal("MR-5207", what, table=plan.shown)
    stored = next((one for one in known if one.is_same(wanted)), None)
    if stored is not None and stored.constants == wanted.constants:
        wanted = replace(stored, missing=stored.missing.difference(_written(plan)))
    put_source(session, target, wanted)


def _merged(owner: Owner, plan: TablePlan, source: Source) -> MergedSource:
    constants = {name: constant.value for name, constant in source.constants.items()}
    missing = frozenset(column.name.lower() for column in plan.unwritten)
    return MergedSource(task_of(owner.task), source.name, constants, missing)


def _written(plan: TablePlan) -> set[str]:
    return {column.name.lower() for _, column in plan.columns}
