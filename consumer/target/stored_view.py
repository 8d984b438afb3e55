"""The view of an apply task on the target, beside the task's progress. Apart: a start writes it, and a check reads it.

    content   format, tables (the rules as a document has them), secrets (fingerprints by reference), weights (of the
              source's collations, for the literals of conditions)

A task that only chooses tables has none. Nothing here commits.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from millrace.consumer.records.row_schemas import layout_of
from millrace.consumer.target.load_range import streams_of
from millrace.consumer.target.loads import task_of
from millrace.consumer.target.progress import DATABASE
from millrace.drivers.mysql.catalog import TableKey
from millrace.drivers.mysql.connection import MySqlSession
from millrace.schemas.json_input import load_json
from millrace.schemas.plain import from_plain, to_plain
from millrace.schemas.table.structure import TableSchema
from millrace.schemas.table.table_filter import stars
from millrace.schemas.view.collation import CollationWeights
from millrace.schemas.view.view import SAME_NAME, TableRule, View, plain_view

FORMAT = 1


@dataclass(frozen=True, slots=True)
class StoredView:
    """The parts of ``content``."""

    tables: list[dict[str, object]]
    secrets: dict[str, str] = field(default_factory=dict)
    weights: tuple[CollationWeights, ...] = ()

    @classmethod
    def of(cls, view: View) -> "StoredView | None":
        """The content of a view; None for one that only chooses tables."""
        if view.as_filter is not None:
            return None
        masks = (mask for rule in view.rules for _, mask in rule.masks)
        secrets = {mask.secret: mask.fingerprint for mask in masks if mask.secret}
        return cls(plain_view(view), secrets, view.collations)

    @property
    def content(self) -> str:
        """As text."""
        plain = {
            "format": FORMAT,
            "tables": self.tables,
            "secrets": self.secrets,
            "weights": [to_plain(one) for one in self.weights],
        }
        return json.dumps(plain, sort_keys=True, separators=(",", ":"))


def read_view(session: MySqlSession, task: str) -> StoredView | None:
    """The stored view of a task. Fatal MR-5012 if no task has run on this target with this version."""
    rows = session.query(f"SELECT content FROM {DATABASE}.view WHERE task = %s", (task,))
    if not rows:
        return None
    plain: Any = load_json(str(rows[0][0]))
    weights = tuple(from_plain(CollationWeights, one) for one in plain["weights"])
    return StoredView(plain["tables"], plain["secrets"], weights)


def insert_view(session: MySqlSession, task: str, view: View, *, begin_seq: int) -> None:
    """Store the view of a task that begins; without one, forget that of a task of this name that was there before."""
    session.query(f"DELETE FROM {DATABASE}.view WHERE task = %s", (task,))
    if (stored := StoredView.of(view)) is not None:
        session.query(
            f"INSERT INTO {DATABASE}.view (task, begin_seq, content) VALUES (%s, %s, %s)",
            (task, begin_seq, stored.content),
        )


def update_view(session: MySqlSession, task: str, view: View) -> None:
    """Store the view with other weights."""
    if (stored := StoredView.of(view)) is not None:
        session.query(
            f"UPDATE {DATABASE}.view SET content = %s WHERE task = %s", (stored.content, task)
        )


def tasks_that_write(session: MySqlSession, stream: str, tables: Collection[TableKey]) -> list[str]:
    """Other tasks on this target that may write one of these tables, in any case of its name.

    Of a task whose view changes names or rows, its rules decide; of another one, the rows that it has had.
    """
    # a task that is still in its first load has no progress
    others = _others(
        session,
        stream,
        f"SELECT task FROM {DATABASE}.progress UNION SELECT task FROM {DATABASE}.view",
    )
    return [task for task in others if any(_may_write(session, task, table) for table in tables)]


def tasks_with_rows_of(session: MySqlSession, stream: str, table: TableKey) -> list[str]:
    """Other tasks on this target that have had rows of this table, and whose rule for it does not merge."""
    others = _others(session, stream, f"SELECT task FROM {DATABASE}.progress")
    return [task for task in others if _has_alone(session, task, table)]


def _others(session: MySqlSession, stream: str, sql: str) -> list[str]:
    tasks = {task_of(str(task)) for (task,) in session.query(sql)}
    return sorted(tasks - {task_of(stream)})


def _names_of(session: MySqlSession, task: str) -> View | None:
    """The stored view of a task, with the names of tables alone; None without one."""
    stored = read_view(session, task)
    if stored is None:
        return None
    rules: list[Any] = stored.tables
    return View(
        tuple(
            TableRule(rule["from"], rule.get("to", SAME_NAME), merge=rule.get("merge", False))
            for rule in rules
        )
    )


def _has_alone(session: MySqlSession, task: str, table: TableKey) -> bool:
    view, wanted = _names_of(session, task), (table[0].lower(), table[1].lower())
    if view is None:
        return _has_rows_of(session, task, table)
    names = set()
    for one in _tables_of(session, task):
        match = view.match(one.database, one.table, folds=True)
        if match is not None and not match.rule.merge:
            names.add((match.name[0].lower(), match.name[1].lower()))
    return wanted in names


def _tables_of(session: MySqlSession, task: str) -> list[TableSchema]:
    rows = session.query(
        f"SELECT schema_text FROM {DATABASE}.record_schema WHERE task IN %s", (streams_of(task),)
    )
    return [layout_of(str(text)).table for (text,) in rows]


def _may_write(session: MySqlSession, task: str, table: TableKey) -> bool:
    view = _names_of(session, task)
    if view is None:
        return _has_rows_of(session, task, table)
    return any(stars(pattern, *table, folds=True) is not None for pattern in view.target_patterns)


def _has_rows_of(session: MySqlSession, task: str, table: TableKey) -> bool:
    seen = _tables_of(session, task)
    wanted = (table[0].lower(), table[1].lower())
    return any((one.database.lower(), one.table.lower()) == wanted for one in seen)
