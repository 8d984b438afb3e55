"""Which tables a task publishes: ``database.table`` patterns, ``*`` and ``?`` for any characters but the point.

A name is published if some include matches, no exclude does, and its database is not one of the servers' own. Names
compare as written (the servers' case rules are theirs).
"""

import re
from dataclasses import dataclass, field

SYSTEM_DATABASES = frozenset(
    {"mysql", "sys", "information_schema", "performance_schema", "millrace"}
)


@dataclass(frozen=True, slots=True)
class TableFilter:
    """``include`` and ``exclude`` patterns of the task document."""

    include: tuple[str, ...] = ("*.*",)
    exclude: tuple[str, ...] = ()
    _cache: dict[tuple[str, str], bool] = field(default_factory=dict, compare=False, repr=False)

    def admits(self, database: str, table: str) -> bool:
        """True if rows of this table are published."""
        found = self._cache.get((database, table))
        if found is None:
            found = self._cache[database, table] = self._decide(database, table)
        return found

    def admits_database(self, database: str) -> bool:
        """True if statements about this database are published: some table of it could be."""
        if database.lower() in SYSTEM_DATABASES:
            return False
        return any(_matches(pattern.partition(".")[0], database) for pattern in self.include)

    def _decide(self, database: str, table: str) -> bool:
        if database.lower() in SYSTEM_DATABASES:
            return False
        return any(_matches_table(p, database, table) for p in self.include) and not any(
            _matches_table(p, database, table) for p in self.exclude
        )


def _matches_table(pattern: str, database: str, table: str) -> bool:
    of_database, _, of_table = pattern.partition(".")
    return _matches(of_database, database) and _matches(of_table or "*", table)


def _matches(pattern: str, name: str) -> bool:
    parts = (".*" if c == "*" else "." if c == "?" else re.escape(c) for c in pattern)
    return re.fullmatch("".join(parts), name, re.DOTALL) is not None
