"""Tables that a task admits since its document was changed: they are loaded by themselves.

At each start, before main applies a row, the task's ``include`` and ``exclude`` are compared with those of the last
start (``load_filter`` on the target). If they admit more, the source's tables are read once:

    a table that is admitted now and was not      and is not on the target    waits for a load
                                                  and is on the target        is applied from here on, as always; rows
                                                                              that were left out stay so

With ``load: {new_tables: false}`` in the document no table waits, and only the filter is stored.

The tables and the new filter are stored in one target transaction. If the process is killed before its commit, the next
start compares again; after it, the tables wait.
"""

import json
from collections.abc import Collection

from consumer.load.state import set_waiting
from consumer.route import Route
from consumer.streams.loader import Loader
from consumer.streams.state import read_tables
from consumer.target.connection import TargetConnection
from consumer.target.inventory import Inventory, TableKey, read_inventory
from consumer.target.progress import DATABASE, Owner, check_fence
from millrace.faults import fault_point, register
from schemas.documents import ApplyTask, TableFilter

BEFORE_GROWN = register("streams.before_grown")
AFTER_GROWN = register("streams.after_grown")


def grown(
    before: TableFilter, after: TableFilter, on_source: Collection[TableKey], target: Inventory
) -> frozenset[TableKey]:
    """The tables of the source to load: admitted now, not admitted before, not on the target."""
    then, now = Route(before, target.folds_names), Route(after, target.folds_names)
    return frozenset(
        name
        for name in on_source
        if now.chooses(*name) and not then.chooses(*name) and name not in target.tables
    )


def note_filter(
    session: TargetConnection, owner: Owner, task: ApplyTask, loader: Loader | None
) -> None:
    """At the start of a run: let tables that the task admits since its last start wait. Commits."""
    before, tables = _read(session, owner.task), task.tables
    if before == tables or (before is not None and loader is None):
        return
    found: frozenset[TableKey] = frozenset()
    if before is not None and loader is not None and task.rules.load.new_tables:
        on_source = loader.tables()
        found = grown(before, tables, on_source, read_inventory(session, with_folds=False))
        found -= {table.name for table in read_tables(session, owner.task)}
    check_fence(session, owner)
    detail = "`include` and `exclude` admit it since the last start"
    set_waiting(session, owner.task, found, detail=detail)
    text = json.dumps({"include": tables.include, "exclude": tables.exclude})
    session.query(
        f"REPLACE INTO {DATABASE}.load_filter (task, filter_text) VALUES (%s, %s)",
        (owner.task, text),
    )
    fault_point(BEFORE_GROWN)
    session.commit()
    fault_point(AFTER_GROWN)


def _read(session: TargetConnection, task: str) -> TableFilter | None:
    rows = session.query(f"SELECT filter_text FROM {DATABASE}.load_filter WHERE task = %s", (task,))
    if not rows:
        return None
    plain = json.loads(str(rows[0][0]))
    return TableFilter(tuple(plain["include"]), tuple(plain["exclude"]))
