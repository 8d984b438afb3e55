"""Tables that a task admits since its document was changed: they are loaded by themselves.

At each start, before main applies a row, the task's ``include`` and ``exclude`` are compared with those of the last
start (``load_filter`` on the target). If they admit more, the source's tables are read once:

    a table that is admitted now and was not      and is not on the target    waits for a load
                                                  and is on the target        is applied from here on, as always; rows
                                                                              that were left out stay so

With ``load: {new_tables: false}`` in the document no table waits, and only the filter is stored.

A table that is not admitted any more leaves its load, at whatever step that is. It may be on the target in part, so its
name is kept with the filter: if it is admitted again, it waits for a load although it is on the target.

A table of which the topic has rows and which the target does not have, because capture takes it since then, waits for
a load, too: while the task runs, before the mark passes its first row (``window.overlap``).

The tables and the new filter are stored in one target transaction. If the process is killed before its commit, the next
start compares again; after it, the tables wait.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass, replace

from millrace.consumer.backfill.threads import Loader
from millrace.consumer.tables.filter import Route
from millrace.consumer.target.loads import FIRST, FOLLOWS, forget_tables, set_waiting, stream_tables
from millrace.consumer.target.progress import DATABASE, Owner, check_fence
from millrace.consumer.turn.order import Assignment
from millrace.drivers.mysql.catalog import Inventory, TableKey, read_inventory
from millrace.drivers.mysql.connection import MySqlSession
from millrace.faults import fault_point, register
from millrace.schemas.documents import ApplyTask
from millrace.schemas.table.table_filter import TableFilter
from millrace.schemas.view.view import View, view_of_filter

BEFORE_GROWN = register("streams.before_grown")
AFTER_GROWN = register("streams.after_grown")


def grown(
    before: View, after: View, on_source: Collection[TableKey], target: Inventory
) -> frozenset[TableKey]:
    """The tables of the source to load: admitted now, not admitted before, not on the target."""
    then, now = Route(before, target.folds_names), Route(after, target.folds_names)
    return frozenset(
        name
        for name in on_source
        if now.chooses(*name) and not then.chooses(*name) and name not in target.tables
    )


@dataclass(frozen=True, slots=True)
class _Filter:
    """The filter of the last start. ``incomplete``: tables that it left out in the middle of their load."""

    view: View
    incomplete: frozenset[TableKey] = frozenset()


def note_filter(
    session: MySqlSession, owner: Owner, task: ApplyTask, loader: Loader | None
) -> None:
    """At the start of a run: let tables that the task admits since its last start wait. Commits.

    Tables that it does not admit any more leave their loads.
    """
    before, view = _read(session, owner.task), task.view
    if view.as_filter is None:  # no table of such a task is loaded
        return
    left_out = _left_out(session, task)
    is_same = before is not None and before.view == view
    if not left_out and (is_same or (before is not None and loader is None)):
        return
    found: frozenset[TableKey] = frozenset()
    incomplete = left_out | (before.incomplete if before is not None else frozenset())
    if before is not None and loader is not None:
        on_source = loader.tables()
        target = read_inventory(session, with_folds=False)
        now = Route(view, target.folds_names)
        again = frozenset(name for name in incomplete & on_source if now.chooses(*name))
        if task.rules.load.new_tables:
            found = again | grown(before.view, view, on_source, target)
            incomplete -= again
        found -= {table.key for table in stream_tables(session, owner.task)}
    check_fence(session, owner)
    detail = "`include` and `exclude` admit it since the last start"
    set_waiting(session, owner.task, found, detail=detail)
    forget_tables(session, owner.task, left_out)
    # without a loader, what the filter admits now is found at a later start
    noted = view if before is None or loader is not None else before.view
    plain = {
        "include": noted.patterns,
        "exclude": noted.left_out_patterns,
        "incomplete": sorted(incomplete),
    }
    session.query(
        f"REPLACE INTO {DATABASE}.load_filter (task, filter_text) VALUES (%s, %s)",
        (owner.task, json.dumps(plain)),
    )
    fault_point(BEFORE_GROWN)
    session.commit()
    fault_point(AFTER_GROWN)


def loading_missing(assignment: Assignment, task: ApplyTask, loader: Loader | None) -> Assignment:
    """The assignment of a run that sets tables aside which the target does not have, if they can be loaded then."""
    loads = loader is not None and task.rules.load.new_tables and task.view.as_filter is not None
    return replace(assignment, rules=replace(assignment.rules, loads_missing=loads))


def _left_out(session: MySqlSession, task: ApplyTask) -> frozenset[TableKey]:
    """The tables with an unfinished load that the task does not admit. Main applies those of its first load."""
    tables = [
        table
        for table in stream_tables(session, task.name)
        if (table.batch, table.state) != (FIRST, FOLLOWS)
    ]
    if not tables:
        return frozenset()
    ((folds,),) = session.query("SELECT @@lower_case_table_names")
    route = Route(task.view, folds == 1)
    return frozenset(table.key for table in tables if not route.chooses(*table.key))


def _read(session: MySqlSession, task: str) -> _Filter | None:
    rows = session.query(f"SELECT filter_text FROM {DATABASE}.load_filter WHERE task = %s", (task,))
    if not rows:
        return None
    plain = json.loads(str(rows[0][0]))
    incomplete = frozenset((database, table) for database, table in plain.get("incomplete", ()))
    tables = TableFilter(tuple(plain["include"]), tuple(plain["exclude"]))
    return _Filter(view_of_filter(tables), incomplete)
