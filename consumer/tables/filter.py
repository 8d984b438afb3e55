"""Which tables of a topic an apply task applies: those of its view.

    rows of a table that is left out      skipped; the mark moves over them
    a statement about such tables only    recorded in ``left_out``, not executed
    a statement about both kinds          blocks the task (MR-5042), because its effect on the target is not known
    a statement about a changed name      executed as the view has it (``schemas.view.target_statement``), or blocks
                                          the task: the view names the table otherwise, or another table so, or
                                          changes its rows or columns
    a statement about a database          executed if the view can have a table of it

Names are compared as the topic has them, and in lower case if the target stores them so. Skipped rows stay skipped
when the task admits the table again. If the target does not have it then, it is loaded
(``consumer.backfill.new_tables``).

While tables are loaded, a stream of the task applies a part of the tables that the document admits (``elsewhere``,
``only``; ``consumer.target.load_range``). Rows of the others are skipped in the same way. Pure.
"""

from dataclasses import dataclass, replace
from functools import cached_property

from millrace.errors import Fatal
from millrace.schemas.sql.statement import Statement
from millrace.schemas.view.view import ALL_TABLES, TableRule, View


def check_not_merged(view: View, task: str) -> None:
    """Fatal MR-4116 if several tables of the source may have one table of the target: no load knows whose a row is."""
    if any(rule.merge for rule in view.rules):
        raise Fatal("MR-4116", f"a load of {task} with `merge`", task=task)


@dataclass(frozen=True)
class Route:
    """The tables that a stream of a task applies. ``folds_names``: see ``Inventory``.

    ``elsewhere``: tables that no stream or another one applies. ``only``: if given, no other tables are applied. Their
    names are as the target stores them.
    """

    view: View = ALL_TABLES
    folds_names: bool = False
    elsewhere: frozenset[tuple[str, str]] = frozenset()
    only: frozenset[tuple[str, str]] | None = None

    @cached_property
    def admits_all(self) -> bool:
        """Whether no table can be left out."""
        return self.chooses_all and not self.elsewhere and self.only is None

    @cached_property
    def only_chooses(self) -> bool:
        """Whether the document changes no name, row, column or value."""
        return self.view.as_filter is not None

    def keeps(self, database: str, table: str) -> bool:
        """Whether a table of this name on the target can only be the source's of the same name, unchanged."""
        if not self.chooses(database, table):
            return False
        view, folds = self.view, self.folds_names
        return self.only_chooses or not (
            view.changes(database, table, folds=folds)
            or view.may_name(database, table, folds=folds)
        )

    def target_of(self, database: str, table: str) -> tuple[str, str] | None:
        """The name of a table on the target, as the view has it; None if the document leaves the table out."""
        if self.only_chooses:
            return (database, table) if self.chooses(database, table) else None
        match = self.view.match(database, table, folds=self.folds_names)
        return None if match is None else match.name

    def changed(self, statement: Statement) -> tuple[str, ...]:
        """The names in a statement that mean something else on the target: it can't be executed there as it is."""
        if self.only_chooses:
            return ()
        view, folds = self.view, self.folds_names
        databases = (
            name
            for name in statement.databases
            if view.changes_in(name, folds=folds) or view.may_name(name, folds=folds)
        )
        tables = (
            f"{name.database}.{name.table}"
            for name in (*statement.tables, *statement.references)
            if view.changes(name.database, name.table, folds=folds)
            or view.may_name(name.database, name.table, folds=folds)
        )
        return tuple(dict.fromkeys((*databases, *tables)))

    def hides(self, statement: Statement) -> bool:
        """Whether the text of a statement may show what the view hides of its tables."""
        view, folds = self.view, self.folds_names
        matches = (
            view.match(name.database, name.table, folds=folds)
            for name in (*statement.tables, *statement.references)
        )
        return any(_hides(match.rule) for match in matches if match is not None)

    @cached_property
    def hides_some(self) -> bool:
        """Whether the view leaves out or masks a column of any table."""
        return any(map(_hides, self.view.rules))

    @cached_property
    def chooses_all(self) -> bool:
        """Whether the document leaves out no table."""
        return self.view == ALL_TABLES

    def admits(self, database: str, table: str) -> bool:
        """Whether rows of this table are applied."""
        name = (self._name(database), self._name(table))
        return (
            self.chooses(database, table)
            and name not in self.elsewhere
            and (self.only is None or name in self.only)
        )

    def chooses(self, database: str, table: str) -> bool:
        """Whether the document admits this table."""
        return self.chooses_all or self.view.admits(database, table, folds=self.folds_names)

    def chooses_database(self, name: str) -> bool:
        """Whether the document admits a table of this database."""
        return self.chooses_all or self.view.admits_database(name, folds=self.folds_names)

    def without(self, tables: frozenset[tuple[str, str]]) -> "Route":
        """The route of a stream that applies these tables no more."""
        if self.only is not None:
            return replace(self, only=self.only - tables)
        return replace(self, elsewhere=self.elsewhere | tables)

    def left_out(self, statement: Statement) -> tuple[str, ...]:
        """The tables of the statement that are left out; for a statement about databases, these."""
        if self.admits_all:
            return ()
        if not statement.tables:
            databases = statement.databases
            return () if any(map(self.chooses_database, databases)) else databases
        return tuple(
            dict.fromkeys(
                f"{name.database}.{name.table}"
                for name in statement.tables
                if not self.admits(name.database, name.table)
            )
        )

    def skips(self, statement: Statement) -> bool:
        """Whether everything that the statement changes is left out."""
        named = {f"{name.database}.{name.table}" for name in statement.tables}
        left_out = self.left_out(statement)
        return bool(left_out) and set(left_out) == (named or set(statement.databases))

    def _name(self, name: str) -> str:
        return name.lower() if self.folds_names else name


def _hides(rule: TableRule) -> bool:
    return bool(rule.masks or rule.drop or rule.keep)
