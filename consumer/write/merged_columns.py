"""Columns of a merged table: they come with the first source's statement and go with the last one's. Pure.

    ADD c by the first source           the target's table gets it, and rows of the others have its default
    the same ADD c by another           the source has it; the target's table stays
    DROP c, which another source has    the source does not have it; the target's table stays, with the rows' values
    DROP c by the last source           the target's table loses it
    anything else                       waits for an operator

These wait, too, because the target's rows would get other values, or lose some:

    ADD c with another definition       than another source gave it, or of a column that no statement has added
    ADD c without a constant default    and NOT NULL: rows of the other sources would have no value
    ADD c that the source dropped       its rows still have the values from before
    DROP c that needs a value           NOT NULL without a default: rows of the source could not be inserted
    DROP c by the last known source     while the table has rows of a source that is not stored
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from millrace.consumer.target.merged_tables import MergedSource
from millrace.drivers.mysql.catalog import CatalogColumn
from millrace.schemas.record.control import DdlStatement
from millrace.schemas.sql.alter_actions import Verb, actions_of
from millrace.schemas.sql.alter_clauses import alter_body, parts
from millrace.schemas.sql.quoting import quoted
from millrace.schemas.sql.statement import Kind, Statement
from millrace.schemas.sql.tokens import Token

# in ``MergedSource.added``: the source has dropped the column, and its rows keep the values
DROPPED = ""

_IGNORED = {"ALGORITHM", "LOCK"}
_NOT_CONSTANT = {
    *(
        "AUTO_INCREMENT",
        "UNIQUE",
        "KEY",
        "PRIMARY",
        "AS",
        "GENERATED",
        "STORED",
        "VIRTUAL",
        "PERSISTENT",
    ),
    *(
        "REFERENCES",
        "CHECK",
        "CONSTRAINT",
        "ON",
        "INVISIBLE",
        "SERIAL",
        "TIMESTAMP",
        "WITH",
        "WITHOUT",
        "IF",
    ),
}


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """ADD of a column, or DROP, if ``definition`` is "". ``has_default``: a row without a value gets a constant."""

    column: str
    definition: str = ""
    has_default: bool = True

    @property
    def sql(self) -> str:
        """The clause."""
        name = quoted(self.column).decode()
        return f"ADD COLUMN {name} {self.definition}" if self.definition else f"DROP COLUMN {name}"


def column_changes(statement: Statement, logged: DdlStatement) -> tuple[ColumnChange, ...] | None:
    """The clauses of an ALTER TABLE that only adds and drops columns; None for any other statement."""
    if statement.kind is not Kind.ALTER_TABLE or len(statement.tables) != 1:
        return None
    sql, mode = logged.sql, logged.sql_mode
    changes = []
    for part in parts(alter_body(statement, sql, mode)):
        if part and part[0].word in _IGNORED:
            continue
        if (change := _change(part, sql)) is None:
            return None
        changes.append(change)
    verbs = [action.verb for action in actions_of(statement, sql, mode)]
    is_plain = len(verbs) == len(changes) and set(verbs) <= {Verb.ADD_COLUMN, Verb.DROP_COLUMN}
    return tuple(changes) if is_plain else None


def _change(part: Sequence[Token], sql: str) -> ColumnChange | None:
    """One clause: ``ADD [COLUMN] c …`` or ``DROP [COLUMN] c``."""
    verb = part[0].word if part else ""
    if verb not in ("ADD", "DROP"):
        return None
    rest = list(part[1:])
    if rest and rest[0].kind == "word" and rest[0].word == "COLUMN":
        rest = rest[1:]
    if not rest or rest[0].kind not in ("word", "quoted") or _is_if(rest[0]):
        return None
    name, rest = rest[0].name, _without_place(rest[1:])
    if verb == "DROP":
        return None if rest else ColumnChange(name)
    words = [token.word for token in rest if token.kind == "word"]
    if not rest or _NOT_CONSTANT.intersection(words) or not _is_constant(rest):
        return None
    is_null = any(pair == ("DEFAULT", "NULL") for pair in pairwise(words))
    must = any(pair == ("NOT", "NULL") for pair in pairwise(words))
    definition = " ".join(_written(token, sql) for token in rest)
    return ColumnChange(name, definition, not must or ("DEFAULT" in words and not is_null))


def _is_if(token: Token) -> bool:
    """IF EXISTS or IF NOT EXISTS: the statement may have had no effect."""
    return token.kind == "word" and token.word == "IF"


def _is_constant(rest: list[Token]) -> bool:
    """Whether the column has no DEFAULT, or a literal."""
    words = [token.word if token.kind == "word" else "" for token in rest]
    if "DEFAULT" not in words:
        return True
    value = rest[words.index("DEFAULT") + 1 :]
    if value and value[0].kind == "mark" and value[0].name in "+-":
        value = value[1:]
    is_literal = bool(value) and (
        value[0].kind in ("number", "text") or value[0].word in ("NULL", "TRUE", "FALSE")
    )
    return is_literal and (len(value) == 1 or value[1].kind == "word")


def _without_place(rest: list[Token]) -> list[Token]:
    """The clause without the place among columns: the target has another order."""
    if rest and rest[-1].word == "FIRST" and rest[-1].kind == "word":
        return rest[:-1]
    if len(rest) > 1 and rest[-2].word == "AFTER" and rest[-2].kind == "word":
        return rest[:-2]
    return rest


def _written(token: Token, sql: str) -> str:
    text = sql[token.start : token.end]
    return text.upper() if token.kind == "word" else text


@dataclass(frozen=True, slots=True)
class Planned:
    """The clauses that the target executes, and the sources after them. ``waits``: why an operator must decide."""

    executed: tuple[ColumnChange, ...] = ()
    sources: tuple[MergedSource, ...] = ()
    waits: str = ""


def planned(
    changes: Sequence[ColumnChange],
    own: MergedSource,
    others: Sequence[MergedSource],
    columns: Mapping[str, CatalogColumn],
    is_complete: Callable[[], bool],
) -> Planned:
    """``columns``: of the target's table, by name. ``is_complete``: whether all its rows are of these sources."""
    there = {name.lower(): column for name, column in columns.items()}
    states = [own, *others]
    executed = []
    for change in changes:
        name = change.column.lower()
        step = (
            _added(change, states, there) if change.definition else _dropped(change, states, there)
        )
        if step is None and not change.definition:
            step = (
                "" if is_complete() else f"{change.column} has rows of a source that is not known"
            )
        if step not in (None, "", _STATE_ONLY):
            return Planned(waits=f"{change.sql}: {step}")
        if step != _STATE_ONLY:
            executed.append(change)
            if change.definition:
                there[name] = _NEW
            else:
                del there[name]
        states = list(_after(change, states, is_executed=step != _STATE_ONLY))
    return Planned(tuple(executed), tuple(states))


def after_columns(
    changes: Sequence[ColumnChange], own: MergedSource, others: Sequence[MergedSource], altered: str
) -> list[MergedSource]:
    """All sources after a statement of which the target has executed ``altered``, the own one first."""
    states = [own, *others]
    for change in changes:
        states = list(_after(change, states, is_executed=change.sql in altered))
    return states


_STATE_ONLY = "-"
_NEW = CatalogColumn("", "", "", "", "", True, False)


def _added(
    change: ColumnChange, states: Sequence[MergedSource], there: Mapping[str, CatalogColumn]
) -> str | None:
    """None: the target executes it; else ``_STATE_ONLY``, or why it waits."""
    own, others = states[0], states[1:]
    name = change.column.lower()
    if own.added.get(name) == DROPPED and name in there:
        return "the source dropped it before, and its rows on the target still have the values"
    if name not in there:
        return None if change.has_default else "rows of the other sources would have no value"
    known = {one.added[name] for one in others if one.added.get(name)}
    if change.definition in known and (name in own.missing or not own.is_stored):
        return _STATE_ONLY
    shown = (
        f"other sources added it as {', '.join(sorted(known))}" if known else "the target has it"
    )
    return f"{shown}, and this source may have other values"


def _dropped(
    change: ColumnChange, states: Sequence[MergedSource], there: Mapping[str, CatalogColumn]
) -> str | None:
    """None: the target may execute it; else ``_STATE_ONLY``, or why it waits."""
    own, others = states[0], states[1:]
    name = change.column.lower()
    if name not in there:
        return "the target does not have it"
    if name in own.missing:
        return "the source did not have it, by its earlier statements"
    if all(name in one.missing for one in others):
        return None
    column = there[name]
    if not (column.nullable or column.has_default):
        return "rows of the source need a value: other sources have it NOT NULL without a default"
    return _STATE_ONLY


def _after(
    change: ColumnChange, states: Sequence[MergedSource], *, is_executed: bool
) -> Iterator[MergedSource]:
    name = change.column.lower()
    for at, one in enumerate(states):
        is_own = at == 0
        missing, added = set(one.missing), dict(one.added)
        if not change.definition and is_executed:  # no source has it
            missing.discard(name)
            added.pop(name, None)
        elif not change.definition and is_own:
            missing.add(name)
            added[name] = DROPPED
        elif change.definition and is_own:
            missing.discard(name)
            added[name] = change.definition
        elif change.definition and is_executed:
            missing.add(name)
            added.pop(name, None)
        yield replace(one, missing=frozenset(missing), added=added)
