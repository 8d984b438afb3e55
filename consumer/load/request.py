"""An operator's request to load tables: what it means for the target, and the rows that make the tables wait.

The request is stored on the target, so it does not matter whether the task runs. A running task finds it within a
second; from its next turn on, main leaves the tables alone. If a table is being loaded, its load starts over.

One target transaction lets all tables wait, with those that foreign keys relate to them:

    killed before its commit    nothing has changed
    killed after it             the tables wait; the command repeated does the same again

It takes no fence: main may write such a table until its next turn, which comes before the load begins.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from millrace.consumer.load.plan import check_rights, table_sizes
from millrace.consumer.load.requested_tables import Known, chosen, every
from millrace.consumer.load.tables import Admission
from millrace.consumer.tables.filter import Route
from millrace.consumer.tables.related import by_sources, related
from millrace.consumer.target.loads import set_waiting
from millrace.consumer.target.progress import DATABASE
from millrace.drivers.mysql.catalog import TableKey, read_inventory
from millrace.drivers.mysql.connection import MySqlSession, text_of
from millrace.errors import Fatal
from millrace.faults import fault_point, register
from millrace.schemas.documents import ApplyTask

BEFORE_COMMIT = register("streams.request_before_commit")
AFTER_COMMIT = register("streams.request_after_commit")


@dataclass(frozen=True, slots=True)
class Request:
    """``asked``: by the operator; ``with_them``: because of foreign keys. ``rows``: of those on the target, roughly.

    ``gone``: those that the source does not have. The load drops them on the target.
    """

    asked: frozenset[TableKey]
    with_them: frozenset[TableKey]
    rows: Mapping[TableKey, int]
    gone: frozenset[TableKey] = frozenset()

    @property
    def tables(self) -> list[TableKey]:
        """All of them, in order."""
        return sorted(self.asked | self.with_them)


def read_known(source: MySqlSession, target: MySqlSession, admission: Admission) -> Known:
    """The tables of both servers. Fatal MR-5007 if the account may not see all of those on the source."""
    check_rights(source, admission)
    on_target = read_inventory(target, with_folds=False)
    on_source = read_inventory(source, with_folds=False)
    views = {on_target.key(*name) for session in (source, target) for name in _views(session)}
    source.rollback()
    target.rollback()
    return Known(on_source, on_target, admission, frozenset(views))


def _views(session: MySqlSession) -> list[TableKey]:
    rows = session.query(
        "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE = 'VIEW'"
    )
    return [(text_of(database), text_of(table)) for database, table in rows]


def prepare(session: MySqlSession, task: ApplyTask, names: Sequence[str], known: Known) -> Request:
    """The request for these tables (``database.table``); without names, for all (``consumer.load.requested_tables``).

    Fatal MR-4236, MR-4237 and those of ``chosen``.
    """
    check_progress(session, task.name)
    asked = chosen(names, known) if names else every(known)
    if not asked:
        raise Fatal("MR-4236", f"the target has no table that {task.name} admits", task=task.name)
    target = known.target
    route = Route(task.view, target.folds_names)
    places = {name: known.place(name) for name in known.on_source if route.chooses(*name)}
    foreign_keys = by_sources(target.foreign_keys, places, route)
    with_them = related(asked, foreign_keys, route) - asked
    sizes = table_sizes(session)
    both = asked | with_them
    named = ((name, known.place(name)) for name in both)
    there = {name: sizes.get(place, (0, 0))[0] for name, place in named if place in target.tables}
    return Request(asked, with_them, there, both - known.on_source.keys())


def store(
    session: MySqlSession,
    task: str,
    request: Request,
    *,
    by: str,
    also: Callable[[], None] = lambda: None,
) -> None:
    """Let the tables wait for a load, and do ``also`` in the same target transaction.

    Fatal MR-4237 if the task has no progress any more.
    """
    check_progress(session, task)
    set_waiting(session, task, request.asked, detail=f"asked for by {by}")
    set_waiting(session, task, request.with_them, detail="a foreign key relates it to one of these")
    also()
    fault_point(BEFORE_COMMIT)
    session.commit()
    fault_point(AFTER_COMMIT)


def check_progress(session: MySqlSession, task: str) -> None:
    """Fatal MR-4237 if the task has no progress on this target."""
    try:
        found = session.query(f"SELECT seq FROM {DATABASE}.progress WHERE task = %s", (task,))
    except Fatal as exc:
        if exc.code != "MR-5012":
            raise
        found = []
    if not found:
        raise Fatal("MR-4237", f"{task} has no progress on this target", task=task)
