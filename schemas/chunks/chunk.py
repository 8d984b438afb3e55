"""A chunk: the rows of a table between two borders. Its condition is SQL that a server can answer from the index.

The chunks of a table cover all values of its key, also those of rows that come later. No server optimizes the
comparison of two row values ``(a, b) > (1, 2)``, so a border is a chain:

    after (1, 2)      a >= 1 AND (a > 1 OR a = 1 AND b > 2)
    through (5, 6)    a <= 5 AND (a < 5 OR a = 5 AND b <= 6)

Pure.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from schemas.chunks.key import ChunkKey

EVERYTHING = "TRUE"


@dataclass(frozen=True, slots=True)
class Border:
    """The key of one row. ``texts``: as the columns of the key read them."""

    texts: tuple[str, ...]

    def literals(self, key: ChunkKey) -> list[str]:
        """The values as SQL."""
        return [column.literal(text) for column, text in zip(key.columns, self.texts, strict=True)]


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
    compared = [column.compared for column in key.columns]
    values = border.literals(key)
    last = len(values) - 1
    branches = [
        " AND ".join(
            [
                *_equal(compared[:place], values[:place]),
                f"{compared[place]} {sign}{'=' if with_border and place == last else ''} {values[place]}",
            ]
        )
        for place in range(len(values))
    ]
    if not last:
        return branches[0]
    return f"{compared[0]} {sign}= {values[0]} AND ({' OR '.join(branches)})"


def _equal(compared: Sequence[str], values: Sequence[str]) -> list[str]:
    return [f"{column} = {value}" for column, value in zip(compared, values, strict=True)]
