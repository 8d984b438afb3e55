"""The stage of an apply task that compares source and target beside its stream: the last result, and the one under way.

It is the key ``compared`` of an apply task in ``millrace status --json``; null without ``compare`` in its document.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated

from millrace.wording import counted
from schemas.plain import Wire

TABLES_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCounts:
    """The counts of one comparison. ``unsettled``: rows that changed at each look. ``structure``: of definitions."""

    tables: int = 0
    rows: int = 0
    differences: int = 0
    unsettled: int = 0
    repaired: int = 0
    structure: Annotated[int, Wire(is_added_later=True)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedResult:
    """A comparison that has ended. Times in Unix time. ``by_table``: those with the most differences."""

    began_ms: int
    ended_ms: int
    counts: Annotated[ComparedCounts, Wire(is_inline=True)]
    by_table: Annotated[tuple[tuple[str, int], ...], Wire(pair=("name", "differences"))] = ()

    @property
    def left(self) -> int:
        """The differences that were not repaired."""
        return self.counts.differences - self.counts.repaired

    @property
    def text(self) -> str:
        """One line, such as ``compared 2026-11-24 03:10: 12 tables, 9,000,000 rows, equal``. The time is UTC."""
        counts = self.counts
        at = datetime.fromtimestamp(self.ended_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")
        verdict = "rows equal" if counts.structure else "equal"
        if counts.unsettled and not counts.differences:
            verdict = "no difference found"
        if counts.differences:
            verdict = f"{counted(counts.differences, 'difference')} ({_named(self.by_table)})"
        if counts.repaired:
            verdict += f", {counts.repaired:,} repaired"
        if counts.unsettled:
            verdict += f", {counted(counts.unsettled, 'row')} unsettled"
        if counts.structure:
            verdict += f", {counted(counts.structure, 'difference')} of structure"
        return f"compared {at}: {counted(counts.tables, 'table')}, {counted(counts.rows, 'row')}, {verdict}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The stage. ``result``: None before the first end. ``running_rows``: of the one under way; None if none runs."""

    every_h: int
    repair: bool = False
    running_rows: Annotated[int | None, Wire(flag="running")] = None
    result: Annotated[ComparedResult | None, Wire(is_inline=True)] = None

    def at_rest(self) -> "Compared":
        """The values that stay true when the task does not run."""
        return replace(self, running_rows=None)


def _named(by_table: Sequence[tuple[str, int]]) -> str:
    named = [f"{name} {count:,}" for name, count in by_table[:TABLES_NAMED]]
    return ", ".join([*named, *(["…"] if len(by_table) > TABLES_NAMED else [])])
