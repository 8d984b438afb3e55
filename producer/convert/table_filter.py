"""The table filter of a task, with the source's rules for the case of names.

    lower_case_table_names   rows are logged as        a statement is logged as     compared
    0                        the table was created     it was written               unchanged
    1                        lower case                it was written               in lower case
    2 (macOS)                the table was created     it was written               in lower case

So `TRUNCATE TABLE Shop.T` changes `shop.t` if the source folds names, and another table if it does not. Names in
records are not changed here.
"""

from dataclasses import dataclass
from typing import Protocol

from millrace.schemas.documents import TableFilter


class NameFilter(Protocol):
    def admits(self, database: str, table: str) -> bool: ...

    def hides(self, database: str, table: str) -> bool:
        """Whether this is Millrace's own table, whose absence is no reason for a warning."""

    def admits_database(self, database: str) -> bool:
        """Whether statements about this database are published."""


@dataclass(frozen=True, slots=True)
class FoldedFilter:
    """The filter for a source that ignores the case of names. ``lower_case``: the task's patterns in lower case."""

    lower_case: TableFilter

    @classmethod
    def of(cls, filter_: TableFilter) -> "FoldedFilter":
        include, exclude = (
            tuple(map(str.lower, patterns)) for patterns in (filter_.include, filter_.exclude)
        )
        return cls(TableFilter(include, exclude, filter_.hidden.lower()))

    def admits(self, database: str, table: str) -> bool:
        return self.lower_case.admits(database.lower(), table.lower())

    def hides(self, database: str, table: str) -> bool:
        return self.lower_case.hides(database.lower(), table.lower())

    def admits_database(self, database: str) -> bool:
        return self.lower_case.admits_database(database.lower())
