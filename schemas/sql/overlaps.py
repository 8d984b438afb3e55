"""Finds keys WITHOUT OVERLAPS of MariaDB, which only SHOW CREATE TABLE shows."""

from schemas.sql.quoting import quoted


def has_period(definition: str, key: str) -> bool:
    """Whether the unique key of this name ends with a period. ``definition``: SHOW CREATE TABLE."""
    opening = "PRIMARY KEY (" if key == "PRIMARY" else f"UNIQUE KEY {quoted(key).decode()} ("
    lines = map(str.strip, definition.splitlines())
    return any(line.startswith(opening) and "` WITHOUT OVERLAPS)" in line for line in lines)
