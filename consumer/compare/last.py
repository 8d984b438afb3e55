"""Reads what the target knows of a task's comparisons (``consumer.compare.stored``). Changes nothing."""

import json

from consumer.compare.loads import loading
from consumer.compare.schedule import Last
from consumer.target.progress import DATABASE, has_column
from drivers.mysql.connection import MySqlSession, text_of
from millrace.errors import Fatal
from schemas.stages.compared import ComparedCounts, ComparedResult

_SINCE = "TIMESTAMPDIFF(MICROSECOND, {}, UTC_TIMESTAMP(3)) / 1e6"
_UNIX_MS = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {}) DIV 1000"
_BUSY = f"COALESCE((SELECT MAX(at) FROM {DATABASE}.compare_chunk WHERE task = %s), began)"
_SQL = (
    f"SELECT IF(ended IS NULL, {_SINCE.format(_BUSY)}, NULL), {_SINCE.format('last_ended')},"
    f" {_UNIX_MS.format('last_began')}, {_UNIX_MS.format('last_ended')},"
    " tables, row_count, differences, unsettled, repaired, {structure}, by_table"
    f" FROM {DATABASE}.compare_run WHERE task = %s"
)


def read_last(session: MySqlSession, task: str) -> Last:
    """The last comparisons of a task that has run on this target."""
    is_loading = bool(loading(session, task))
    try:
        structure = "structure" if has_column(session, "compare_run", "structure") else "0"
        rows = session.query(_SQL.format(structure=structure), (task, task))
    except Fatal as exc:
        if exc.code != "MR-5012":  # no comparison of any task has begun here
            raise
        rows = []
    session.rollback()
    if not rows:
        return Last(is_loading=is_loading)
    ((idle_s, ended_ago_s, began_ms, ended_ms, *counts, by_table),) = rows
    if ended_ms is None:
        return Last(idle_s=_seconds(idle_s), is_loading=is_loading)
    tables, found, differences, unsettled, repaired, changes = (
        int(text_of(count)) for count in counts
    )
    result = ComparedResult(
        began_ms=int(text_of(began_ms)),
        ended_ms=int(text_of(ended_ms)),
        counts=ComparedCounts(
            tables=tables,
            rows=found,
            differences=differences,
            unsettled=unsettled,
            repaired=repaired,
            structure=changes,
        ),
        by_table=tuple((str(name), int(count)) for name, count in json.loads(text_of(by_table))),
    )
    return Last(result, _seconds(ended_ago_s), _seconds(idle_s), is_loading)


def _seconds(value: object) -> float | None:
    return None if value is None else float(text_of(value))
