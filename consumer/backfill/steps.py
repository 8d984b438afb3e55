"""The next step of the later loads of a task, from the states of its tables. Pure.

    follows     (of a later load)      the side stream catches up and joins
    copies, copied                     the load copies what is left; then the side stream begins
    waits                              a load begins with all tables that wait

One load at a time: tables that come to wait meanwhile are in the next one.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto

from millrace.consumer.target.loads import COPIED, COPIES, FIRST, FOLLOWS, WAITS, LoadTable
from millrace.errors import Retryable
from millrace.schemas.stages import Loaded


class Step(Enum):
    NOTHING = auto()
    BEGIN = auto()
    COPY = auto()
    CATCH_UP = auto()


@dataclass(frozen=True, slots=True)
class Loads:
    """The later loads of a task. ``trouble``: the error of a step that is repeated. ``loaded``: see ``Loader``."""

    text: str = ""
    trouble: Retryable | None = None
    loaded: Loaded | None = None

    @property
    def why(self) -> str:
        """For the status text."""
        paused = "" if self.loaded is None else self.loaded.paused
        return f"{self.text}; the load pauses: {paused}" if paused else self.text


def next_step(tables: Iterable[LoadTable]) -> Step:
    """The next step."""
    tables = list(tables)
    later = {table.state for table in tables if table.batch != FIRST}
    if FOLLOWS in later:
        return Step.CATCH_UP
    if later & {COPIES, COPIED}:
        return Step.COPY
    return Step.BEGIN if any(table.state == WAITS for table in tables) else Step.NOTHING


def as_shown(tables: Iterable[LoadTable], loaded: Loaded | None) -> list[LoadTable]:
    """The tables as a load has seen them last, which copies them since they were read."""
    seen = {table.name: table for table in (loaded.tables if loaded else ())}
    return [
        replace(table, state=now.state, detail=now.waits)
        if (now := seen.get(".".join(table.key)))
        else table
        for table in tables
    ]


def text_of(tables: Iterable[LoadTable]) -> str:
    """For the status, such as "shop.t being copied"; "" without tables of a later load.

    If one reason holds for all tables that wait, it is named.
    """
    tables = [table for table in tables if table.batch != FIRST or table.state == WAITS]
    words = {
        WAITS: "waiting for a load, which begins automatically",
        COPIES: "being copied",
        COPIED: "copied",
        FOLLOWS: "catching up",
    }
    parts = []
    for state, what in words.items():
        those = [table for table in tables if table.state == state]
        names = sorted(".".join(table.key) for table in those)
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            whys = {table.detail for table in those} if state == WAITS else {""}
            why = f" ({whys.pop()})" if len(whys) == 1 and "" not in whys else ""
            parts.append(f"{', '.join(names[:3])}{more} {what}{why}")
    return "; ".join(parts)
