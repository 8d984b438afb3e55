"""Finds keys WITHOUT OVERLAPS of MariaDB, which only SHOW CREATE TABLE shows."""

import re

from millrace.schemas.sql.quoting import quoted

# A name can contain any character, also a line break; the server escapes it in texts.
_LINE = re.compile(r"(?:[^\n`']|`(?:[^`]|``)*`|'(?:[^'\\]|''|\\.)*')+", re.DOTALL)


def definition_lines(definition: str) -> list[str]:
    """The lines of SHOW CREATE TABLE without their indentation. A line break in a name ends no line."""
    return [line.strip(" ") for line in _LINE.findall(definition)]


def has_period(definition: str, key: str) -> bool:
    """Whether the unique key of this name ends with a period. ``definition``: SHOW CREATE TABLE."""
    opening = "PRIMARY KEY (" if key == "PRIMARY" else f"UNIQUE KEY {quoted(key).decode()} ("
    return any(
        line.startswith(opening) and "` WITHOUT OVERLAPS)" in line
        for line in definition_lines(definition)
    )
