"""Which tables of a topic an apply task applies: its ``include`` and ``exclude``.

    rows of a table that is left out      skipped; the mark moves over them
    a statement about such tables only    recorded in ``left_out``, not executed
    a statement about both kinds          blocks the task (MR-5042), because its effect on the target is not known
    a statement about a database          executed if a pattern of ``include`` can match a table of it

The rules are those of a capture task. Names are compared as the topic has them, and in lower case if the target stores
them so. Skipped rows stay skipped when the task admits the table again. Pure.
"""

from dataclasses import dataclass, field
from functools import cached_property

from schemas.documents import TableFilter
from schemas.sql.statement import Statement


@dataclass(frozen=True)
class Route:
    """The tables that a task applies. ``folds_names``: see ``Inventory``."""

    tables: TableFilter = field(default_factory=TableFilter)
    folds_names: bool = False

    @cached_property
    def admits_all(self) -> bool:
        """Whether no table can be left out."""
        return self.tables == TableFilter()

    def admits(self, database: str, table: str) -> bool:
        """Whether rows of this table are applied."""
        if self.admits_all:
            return True
        return self._compared.admits(*map(self._name, (database, table)))

    def left_out(self, statement: Statement) -> tuple[str, ...]:
        """The tables of the statement that are left out; for a statement about databases, these."""
        if self.admits_all:
            return ()
        if not statement.tables:
            databases = statement.databases
            if any(self._compared.admits_database(self._name(name)) for name in databases):
                return ()
            return databases
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

    @cached_property
    def _compared(self) -> TableFilter:
        if not self.folds_names:
            return self.tables
        include, exclude = (
            tuple(map(str.lower, patterns))
            for patterns in (self.tables.include, self.tables.exclude)
        )
        return TableFilter(include, exclude)
