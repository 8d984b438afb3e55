"""The effect of a logged statement on a view: a pure function. docs/views.md has the table of clauses.

    passes     the rows that follow carry the new structure, and the rows that were delivered are still right
    enters     a table in the view has rows now that no record delivered: a RENAME, EXCHANGE, CONVERT or IMPORT
    leaves     rows that were in the view are gone with their table: DROP, or a RENAME to a name outside of it
    obstacles  the value, type, collation or name of a column may change on which the view depends: in ``where``,
               ``mask``, ``drop``, ``keep`` or ``rename``, or in the key. Or a column takes a name that the view gives

A statement with obstacles or tables that enter is a question for the operator, with two answers: load the tables again,
or continue with the rows that were delivered.

Guarantees: what is not understood is an obstacle. An integer type that holds all values of the one before it passes.
Not known from records, so not noticed: which columns are generated from a changed or hidden one, as in CREATE TABLE …
LIKE; which unique key counts as the
primary key of a table that has none, if it is dropped by its name.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from millrace.schemas.record.control import DdlRecord
from millrace.schemas.record.gap import gap_of
from millrace.schemas.sql.alter_actions import Action, Verb, actions_of, created_columns
from millrace.schemas.sql.statement import RECORDED_KINDS, Kind, classify
from millrace.schemas.table.structure import INTEGER_BYTES, Column, TableSchema, TypeCode
from millrace.schemas.view.expression import columns_of, parse
from millrace.schemas.view.view import Match, TableRule, View

TableKey: TypeAlias = tuple[str, str]

_ALTERING = (Kind.ALTER_TABLE, Kind.CREATE_INDEX, Kind.DROP_INDEX)
_HARMLESS = RECORDED_KINDS | {
    *(Kind.CREATE_TABLE, Kind.DROP_TABLE, Kind.RENAME_TABLE, Kind.TRUNCATE_TABLE, Kind.SEQUENCE),
    *(Kind.CREATE_DATABASE, Kind.ALTER_DATABASE, Kind.DROP_DATABASE, Kind.TEMPORARY, *_ALTERING),
}
_INTEGERS = {
    **dict.fromkeys(("TINYINT", "INT1"), TypeCode.TINY),
    **dict.fromkeys(("SMALLINT", "INT2"), TypeCode.SHORT),
    **dict.fromkeys(("MEDIUMINT", "INT3", "MIDDLEINT"), TypeCode.INT24),
    **dict.fromkeys(("INT", "INTEGER", "INT4"), TypeCode.LONG),
    **dict.fromkeys(("BIGINT", "INT8"), TypeCode.LONGLONG),
}


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a statement does not pass; ``column`` is "" if it concerns the whole table."""

    table: TableKey
    column: str
    reason: str

    def __str__(self) -> str:
        where = ".".join(part for part in (*self.table, self.column) if part)
        return f"{where}: {self.reason}" if where else self.reason


@dataclass(frozen=True, slots=True)
class DdlEffect:
    """The effect of a statement on a view; see the module. Names are those of the source."""

    enters: tuple[TableKey, ...] = ()
    leaves: tuple[TableKey, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()

    @property
    def passes(self) -> bool:
        """Whether rows may follow without an operator's answer."""
        return not self.enters and not self.obstacles

    @property
    def reason(self) -> str:
        """For the operator; "" if it passes."""
        enter = [f"{'.'.join(name)}: has rows that were not delivered" for name in self.enters]
        return "; ".join([*map(str, self.obstacles), *enter])


PASSES = DdlEffect()


def effect_of(record: DdlRecord, view: View, tables: Mapping[TableKey, TableSchema]) -> DdlEffect:
    """``tables``: the structures before the statement, as far as they are known."""
    gap = gap_of(record)
    if gap is not None:
        missing = gap.missing or "no transaction"
        return DdlEffect(obstacles=(_everywhere(f"a gap: {missing} is missing in the topic"),))
    logged = record.statement
    statement = classify(logged.sql, logged.default_database, logged.sql_mode)
    if logged.kind == Kind.UNKNOWN or statement.kind not in _HARMLESS:
        shown = " ".join(logged.sql.split()[:3])[:60]
        return DdlEffect(obstacles=(_everywhere(f"the statement is not understood: {shown} …"),))
    names = _Names(view, tables)
    if statement.kind is Kind.DROP_DATABASE:
        dropped = {database.lower() for database in statement.databases}
        gone = (name for name in tables if name[0].lower() in dropped and names.match(name))
        return DdlEffect(leaves=tuple(sorted(gone)))
    changed = tuple(names.stored(name.database, name.table) for name in statement.tables)
    if statement.kind is Kind.DROP_TABLE:
        return DdlEffect(leaves=tuple(name for name in changed if names.match(name)))
    if statement.kind is Kind.CREATE_TABLE and statement.selects_rows:
        return DdlEffect(enters=tuple(name for name in changed if names.match(name)))
    if statement.kind is Kind.CREATE_TABLE:
        return _created(changed[0], created_columns(statement, logged.sql, logged.sql_mode), names)
    if statement.kind is Kind.RENAME_TABLE:
        return names.moved(zip(changed[::2], changed[1::2], strict=True))
    if statement.kind in _ALTERING:
        return _altered(changed, actions_of(statement, logged.sql, logged.sql_mode), names)
    return PASSES


def _everywhere(reason: str) -> Obstacle:
    return Obstacle(("", ""), "", reason)


class _Names:
    """Tables by the names that they have in statements."""

    def __init__(self, view: View, tables: Mapping[TableKey, TableSchema]) -> None:
        self._view, self.tables = view, tables
        self._by_lower_case = {(one.lower(), two.lower()): (one, two) for one, two in tables}

    def stored(self, database: str, table: str) -> TableKey:
        """As rows have it: a server may ignore the case of names."""
        if (database, table) in self.tables:
            return database, table
        return self._by_lower_case.get((database.lower(), table.lower()), (database, table))

    def match(self, name: TableKey) -> Match | None:
        """The rule of this table; None if it is not in the view."""
        return self._view.match(*name) or self._view.match(name[0].lower(), name[1].lower())

    def moved(self, pairs: Iterator[tuple[TableKey, TableKey]]) -> DdlEffect:
        """Tables that get new names, one after the other."""
        origins: dict[TableKey, TableKey] = {}
        for old, new in pairs:
            origins[new] = origins.pop(old, old)
        replaced = frozenset(origins.values())
        enters, leaves = [], []
        for new, old in origins.items():
            before, after = self.match(old), self.match(new)
            # a copy takes the name of a table that moves away: one of the two conditions holds for each of them
            takes_over = (new in replaced) != (old in origins)
            if new == old or (
                _terms(before) == _terms(after) and (takes_over or _named(before, after))
            ):
                continue
            enters += [new] if after else []
            leaves += [old] if before else []
        return DdlEffect(tuple(enters), tuple(leaves))


def _terms(match: Match | None) -> object:
    """Equal for tables whose rows are delivered alike, but for their names."""
    return match and (match.rule, match.added)


def _named(before: Match | None, after: Match | None) -> bool:
    """Whether two tables have one name in the view, or are both not in it."""
    return before is None or after is None or before.name == after.name


def _created(table: TableKey, columns: tuple[Action, ...], names: _Names) -> DdlEffect:
    """A new table passes, unless a column of it shows one that its rule hides."""
    match = names.match(table)
    if match is None:
        return PASSES
    uses = _Uses.of(match.rule, None)
    if uses.kept:
        hidden = frozenset(column.column.lower() for column in columns) - uses.kept
        uses = replace(uses, hidden=uses.hidden | hidden)
    problems = (problem for column in columns for problem in uses.shown(column))
    return DdlEffect(obstacles=tuple(Obstacle(table, *problem) for problem in problems))


def _altered(
    changed: tuple[TableKey, ...], actions: tuple[Action, ...], names: _Names
) -> DdlEffect:
    table, match = changed[0], names.match(changed[0])
    moved = PASSES
    enters: list[TableKey] = []
    for action in actions:
        if action.verb is Verb.RENAME_TABLE:
            moved = names.moved(iter([(changed[0], changed[-1])]))
        elif action.verb is Verb.EXCHANGE_ROWS:
            enters += [name for name in changed if names.match(name)]
        elif action.verb is Verb.MOVE_ROWS_OUT:
            enters += [name for name in changed[1:] if names.match(name)]
        elif action.verb in (Verb.MOVE_ROWS_IN, Verb.IMPORT_ROWS):
            enters += [table] if match else []
    leaves = list(moved.leaves)
    if any(action.verb is Verb.MOVE_ROWS_IN for action in actions):
        leaves += [name for name in changed[1:] if names.match(name)]
    obstacles: list[Obstacle] = []
    if match is not None:
        uses = _Uses.of(match.rule, names.tables.get(table))
        for action in actions:
            obstacles += (Obstacle(table, *problem) for problem in uses.problems(action))
    unique = tuple(dict.fromkeys([*enters, *moved.enters]))
    return DdlEffect(unique, tuple(leaves), tuple(dict.fromkeys(obstacles)))


@dataclass(frozen=True, slots=True)
class _Uses:
    """The uses that a rule makes of the columns of its table, by their names in lower case.

    ``exact``: columns whose values matter. ``hidden``: columns whose values are masked or left out; ``kept``: the only
    ones that pass, if any are named. ``named``: columns that must keep their names. ``new_names``: the names that
    only the view has. ``before``: the structure; None if no row of the table has been read.
    """

    exact: Mapping[str, str]
    named: Mapping[str, str]
    new_names: frozenset[str]
    hidden: frozenset[str]
    kept: frozenset[str]
    before: TableSchema | None

    @classmethod
    def of(cls, rule: TableRule, before: TableSchema | None) -> "_Uses":
        old_names = {new.lower(): old.lower() for old, new in rule.rename}
        exact: dict[str, str] = {}
        if before is not None:
            exact |= {before.columns[at].name.lower(): "the key" for at in before.primary_key}
        if rule.where:
            exact |= {name.lower(): "where" for name in columns_of(parse(rule.where))}
        exact |= {old_names.get(name.lower(), name.lower()): "mask" for name, _ in rule.masks}
        named = {name.lower(): "columns.drop" for name in rule.drop}
        named |= {name.lower(): "columns.keep" for name in rule.keep}
        named |= {old.lower(): "columns.rename" for old, _ in rule.rename}
        new_names = {*old_names, *(name.lower() for name, _ in rule.add)} - set(old_names.values())
        kept = frozenset(name.lower() for name in rule.keep)
        hidden = {name.lower() for name in rule.drop}
        hidden |= {name for name, use in exact.items() if use == "mask"}
        if kept and before is not None:
            hidden |= {column.name.lower() for column in before.columns} - kept
        return cls(exact, named | exact, frozenset(new_names), frozenset(hidden), kept, before)

    def column(self, name: str) -> Column | None:
        """The column before the statement."""
        columns = self.before.columns if self.before is not None else ()
        return next((column for column in columns if column.name.lower() == name), None)

    def problems(self, action: Action) -> Iterator[tuple[str, str]]:
        """Columns, and why the action does not pass."""
        name = action.column.lower()
        if action.verb is Verb.UNKNOWN:
            yield "", "a clause is not understood"
        elif action.verb is Verb.IGNORE_ROWS:
            yield "", "IGNORE may remove or change rows, and no record shows it"
        elif action.verb is Verb.CHANGE_KEY and self.before is not None:
            yield "", "its key changes, and with it the keys of records"
        elif action.verb is Verb.ADD_UNIQUE and self.before and not self.before.primary_key:
            yield "", "it had no key, and a unique key may count as one"
        elif action.verb is Verb.CONVERT_TEXTS:
            yield from self._converted()
        elif action.verb is Verb.MODIFY_COLUMN and name in self.exact and not self._holds(action):
            yield action.column, f"{self.exact[name]} uses it, and its values may change"
        elif action.verb in (Verb.DROP_COLUMN, Verb.RENAME_COLUMN) and name in self.named:
            yield action.column, f"{self.named[name]} names it"
        yield from self.shown(action)
        new_name = action.new_name or (action.column if action.verb is Verb.ADD_COLUMN else "")
        if new_name.lower() in self.new_names:
            yield new_name, "the view gives this name to another column"

    def shown(self, action: Action) -> Iterator[tuple[str, str]]:
        """The column, if the view shows it and its definition names one that the view hides."""
        name = action.column.lower()
        if not self.kept or name in self.kept:
            for source in sorted(action.names & self.hidden - {name}):
                yield action.column, f"its values may come from {source}, which the view hides"

    def _converted(self) -> Iterator[tuple[str, str]]:
        for name, use in self.exact.items():
            column = self.column(name)
            if column is None or column.type.text is not None:
                yield name, f"{use} uses it, and its character set and collation change"

    def _holds(self, action: Action) -> bool:
        """Whether the new type is an integer that has the column's values, so none of them changes."""
        column, words = self.column(action.column.lower()), action.words
        code = _INTEGERS.get(words[0]) if words else None
        if column is None or code is None or column.type.code not in INTEGER_BYTES:
            return False
        if "AS" in words or (column.nullable and "NOT" in words):
            return False  # generated; a NULL becomes 0
        is_unsigned = "UNSIGNED" in words or "ZEROFILL" in words
        old, new = INTEGER_BYTES[column.type.code], INTEGER_BYTES[code]
        if is_unsigned == column.type.is_unsigned:
            return new >= old
        return column.type.is_unsigned and new > old
