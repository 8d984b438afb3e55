"""A chunk: the rows of a table between two borders. Its condition is SQL that a server can answer from the index.

The chunks of a table cover all values of its key, also those of rows that come later. No server optimizes the
comparison of two row values ``(a, b) > (1, 2)``, so a border is a chain:

    after (1, 2)      a >= 1 AND (a > 1 OR a = 1 AND b > 2)
    through (5, 6)    a <= 5 AND (a < 5 OR a = 5 AND b <= 6)

For an ENUM or a SET, a list of numbers stands for each ``<`` and ``>`` (``KeyColumn.beyond``).

Pure.
"""

import json
from dataclasses import dataclass

from millrace.drivers.mysql.chunks.key import NOTHING, ChunkKey

EVERYTHING = "TRUE"


@dataclass(frozen=True, slots=True)
class Border:
    """The key of one row. ``texts``: as the columns of the key read them."""

    texts: tuple[str, ...]


def border_to_json(border: Border | None) -> str | None:
    """Its JSON text, for storage; None without a border."""
    return None if border is None else json.dumps(border.texts)


def border_of_json(text: object) -> Border | None:
    """From ``border_to_json``."""
    return None if text is None else Border(tuple(json.loads(str(text))))


@dataclass(frozen=True, slots=True)
class Chunk:
    """The rows with a key after ``after`` and up to ``through``, with it. None: without a border.

    ``number``: its place in the table, from 0.
    """

    number: int
    after: Border | None = None
    through: Border | None = None

    @property
    def is_last(self) -> bool:
        """Whether no chunk follows."""
        return self.through is None

    def where(self, key: ChunkKey) -> str:
        """The condition of its rows."""
        parts = []
        if self.after is not None:
            parts.append(_beyond(key, self.after, ">", with_border=False))
        if self.through is not None:
            parts.append(_beyond(key, self.through, "<", with_border=True))
        return " AND ".join(parts) or EVERYTHING


def _beyond(key: ChunkKey, border: Border, sign: str, *, with_border: bool) -> str:
    values = list(zip(key.columns, border.texts, strict=True))
    last = len(values) - 1
    branches = [
        [
            *(column.equals(text) for column, text in values[:place]),
            column.beyond(text, sign, with_border=with_border and place == last),
        ]
        for place, (column, text) in enumerate(values)
    ]
    if not last:
        return branches[0][0]
    column, text = values[0]
    chain = " OR ".join(" AND ".join(branch) for branch in branches if NOTHING not in branch)
    return f"{column.beyond(text, sign, with_border=True)} AND ({chain or NOTHING})"
