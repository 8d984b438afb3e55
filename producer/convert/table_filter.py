"""Which names are wanted, as the source takes names.

    lower_case_table_names   rows are logged as        a statement is logged as     compared
    0                        the table was created     it was written               as they are
    1                        small letters             it was written               in small letters
    2 (macOS)                the table was created     it was written               in small letters

So `TRUNCATE TABLE Shop.T` is about the rows of `shop.t` where the source folds names, and about others where it does
not. Not done here: names in records, which stay as they are logged.
"""

from dataclasses import dataclass
from typing import Protocol

from schemas.documents import TableFilter


class NameFilter(Protocol):
    """See ``schemas.documents.TableFilter``."""

    def admits(self, database: str, table: str) -> bool:
        """Whether the rows of this table are published."""

    def admits_database(self, database: str) -> bool:
        """Whether statements about this database are published."""


@dataclass(frozen=True, slots=True)
class FoldedFilter:
    """For a source to which capital letters are small ones; ``small``: the task's patterns in small letters."""

    small: TableFilter

    @classmethod
    def of(cls, wanted: TableFilter) -> "FoldedFilter":
        """What a task wants of such a source."""
        include, exclude = (
            tuple(map(str.lower, patterns)) for patterns in (wanted.include, wanted.exclude)
        )
        return cls(TableFilter(include, exclude))

    def admits(self, database: str, table: str) -> bool:
        """See ``NameFilter``."""
        return self.small.admits(database.lower(), table.lower())

    def admits_database(self, database: str) -> bool:
        """See ``NameFilter``."""
        return self.small.admits_database(database.lower())
