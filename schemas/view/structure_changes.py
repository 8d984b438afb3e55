"""The changes of structures that a logged statement makes in a view, under the view's names, and its text. Pure.

The text is shown only if it can't reveal what the view hides: every table that the statement names, also one that it
only reads, is in the view under its own name, with all its columns, none of them renamed or masked, and the
statement has no comment, no SELECT and no password. A name that is not understood hides the text.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from schemas.record.control import DdlRecord
from schemas.record.gap import gap_of
from schemas.sql.alter_actions import Verb, actions_of
from schemas.sql.statement import Kind, Statement, classify
from schemas.sql.tokens import tokenize
from schemas.view.view import Match, View

TableKey = tuple[str, str]

_ALTERING = (Kind.ALTER_TABLE, Kind.CREATE_INDEX, Kind.DROP_INDEX)


class ChangeType(StrEnum):
    """Debezium's types of changes."""

    CREATE = "CREATE"
    ALTER = "ALTER"
    DROP = "DROP"


@dataclass(frozen=True, slots=True)
class StructureChange:
    """``table``: database and table in the view. ``origin``: as the statement names it."""

    type: ChangeType
    table: TableKey
    origin: TableKey


@dataclass(frozen=True, slots=True)
class StatementChanges:
    """``text``: the statement, "" if it is not shown. ``table``: the first one that is in the view."""

    table: TableKey
    text: str
    changes: tuple[StructureChange, ...]


def changes_of(
    record: DdlRecord, view: View, tables: Collection[TableKey]
) -> StatementChanges | None:
    """None if no table of the view is concerned. ``tables``: those whose rows have come, by the source's names."""
    if gap_of(record) is not None:
        return None
    logged = record.statement
    statement = classify(logged.sql, logged.default_database, logged.sql_mode)
    changes = tuple(_changes(statement, record, view, tables))
    if not changes:
        return None
    text = logged.sql if _is_shown(statement, record, view) else ""
    return StatementChanges(changes[0].table, text, tuple(dict.fromkeys(changes)))


def _changes(
    statement: Statement, record: DdlRecord, view: View, tables: Collection[TableKey]
) -> list[StructureChange]:
    kind = statement.kind
    named = [(name.database, name.table) for name in statement.tables]
    if kind is Kind.DROP_DATABASE:
        dropped = {database.lower() for database in statement.databases}
        gone = sorted(name for name in tables if name[0].lower() in dropped)
        return _each(ChangeType.DROP, view, gone)
    if kind is Kind.DROP_TABLE:
        return _each(ChangeType.DROP, view, named)
    if kind is Kind.CREATE_TABLE:
        return _each(ChangeType.CREATE, view, named[:1])
    if kind is Kind.RENAME_TABLE:
        return _moved(view, named)
    if kind not in _ALTERING:
        return []
    logged = record.statement
    actions = actions_of(statement, logged.sql, logged.sql_mode)
    if any(action.verb is Verb.RENAME_TABLE for action in actions):
        return _moved(view, [named[0], named[-1]])
    return _each(ChangeType.ALTER, view, named[:1])


def _moved(view: View, names: Sequence[TableKey]) -> list[StructureChange]:
    """Old and new names in turns: a table under its old name is gone, and one under its new name begins."""
    changes = []
    for old, new in zip(names[::2], names[1::2], strict=True):
        changes += _each(ChangeType.DROP, view, [old])
        changes += _each(ChangeType.CREATE, view, [new])
    return changes


def _each(type_: ChangeType, view: View, names: Iterable[TableKey]) -> list[StructureChange]:
    matches = ((name, _match(view, name)) for name in names)
    return [StructureChange(type_, match.name, name) for name, match in matches if match]


def _match(view: View, name: TableKey) -> Match | None:
    """As ``ddl``: a server may ignore the case of names."""
    return view.match(*name) or view.match(name[0].lower(), name[1].lower())


def _is_shown(statement: Statement, record: DdlRecord, view: View) -> bool:
    sql = record.statement.sql
    if statement.databases or statement.selects_rows or statement.has_secret or statement.head:
        return False
    tokens = tokenize(sql, record.statement.sql_mode)
    if any(token.word in ("SELECT", "UNION") for token in tokens):
        return False
    ends = [0, *(token.end for token in tokens)]
    starts = [*(token.start for token in tokens), len(sql)]
    if any(sql[end:start].strip() for end, start in zip(ends, starts, strict=True)):
        return False  # a comment
    named = {(name.database, name.table) for name in (*statement.tables, *statement.references)}
    references = sum(token.word in ("REFERENCES", "LIKE") for token in tokens)
    if references > len(statement.references):
        return False
    return all(_shows_all(view.match(*name), name) for name in named)


def _shows_all(match: Match | None, name: TableKey) -> bool:
    if match is None or match.name != name:
        return False
    rule = match.rule
    return not (rule.keep or rule.drop or rule.rename or rule.masks)
