"""Which tables a task publishes or applies."""

import re
from dataclasses import dataclass
from functools import lru_cache

SYSTEM_DATABASES = frozenset(
    {"mysql", "sys", "information_schema", "performance_schema", "millrace"}
)


@dataclass(frozen=True, slots=True)
class TableFilter:
    """The tables that a task publishes or applies: ``database.table`` patterns with ``*`` and ``?``.

    Case is significant, except for a source with lower_case_table_names 1 or 2, or a target with 1.

    A table is admitted if an ``include`` pattern matches and no ``exclude`` pattern does. System databases and the
    database ``millrace`` are never admitted. The table ``hidden`` is admitted only if a pattern other than ``*.*``
    matches: the heartbeat table of the set. It is no part of a document.
    """

    include: tuple[str, ...] = ("*.*",)
    exclude: tuple[str, ...] = ()
    hidden: str = ""

    def admits(self, database: str, table: str) -> bool:
        """True if the rows of this table are published."""
        return (
            database.lower() not in SYSTEM_DATABASES
            and any(
                stars(p, database, table) is not None
                for p in self.include
                if p != "*.*" or not self.hides(database, table)
            )
            and not any(stars(p, database, table) is not None for p in self.exclude)
        )

    def hides(self, database: str, table: str) -> bool:
        """True if this is the ``hidden`` table, whose absence is no reason for a warning."""
        return self.hidden == f"{database}.{table}"

    def admits_database(self, database: str) -> bool:
        """True if statements about this database are published, because a table of it may be."""
        return database.lower() not in SYSTEM_DATABASES and any(
            database_matches(p, database) for p in self.include
        )


def stars(
    pattern: str, database: str, table: str, *, folds: bool = False
) -> tuple[str, ...] | None:
    """The texts that the stars of a pattern match in a table's name; None if it does not match.

    The pattern is split at its first dot; later dots belong to the table. With ``folds``, case does not matter; the
    texts are as the names have them.
    """
    of_database, _, of_table = pattern.partition(".")
    if (first := _stars(of_database, database, folds)) is None:
        return None
    second = _stars(of_table or "*", table, folds)
    return None if second is None else first + second


@lru_cache(maxsize=4096)  # a few hundred bytes each; called once per table map
def _stars(pattern: str, name: str, folds: bool = False) -> tuple[str, ...] | None:
    compared, text = (pattern.lower(), name.lower()) if folds else (pattern, name)
    parts = ("(.*)" if c == "*" else "." if c == "?" else re.escape(c) for c in compared)
    match = re.fullmatch("".join(parts), text, re.DOTALL)
    if match is None:
        return None
    if len(text) != len(name):  # a letter whose lower case has two characters
        return match.groups()
    return tuple(name[slice(*match.span(at))] for at in range(1, len(match.groups()) + 1))


def database_matches(pattern: str, database: str, *, folds: bool = False) -> bool:
    """Whether a pattern ``database.table`` can match a table of this database."""
    return _stars(pattern.partition(".")[0], database, folds) is not None
