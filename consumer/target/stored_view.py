"""The view of an apply task on the target, beside the task's progress. Apart: a start writes it, and a check reads it.

    content   format, tables (the rules as a document has them), secrets (fingerprints by reference), weights (of the
              source's collations, for the literals of conditions)

A task that only chooses tables has none. Nothing here commits.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from millrace.consumer.target.progress import DATABASE
from millrace.drivers.mysql.connection import MySqlSession
from millrace.schemas.json_input import load_json
from millrace.schemas.plain import from_plain, to_plain
from millrace.schemas.view.collation import CollationWeights
from millrace.schemas.view.view import View, plain_view

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
