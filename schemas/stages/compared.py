"""The stage of an apply task that compares source and target beside its stream: the last result, and the one under way.

It is the key ``compared`` of an apply task in ``millrace status --json``; null without ``compare`` in its document.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from millrace.wording import counted
from schemas.stages.plain import count_of, integer_of, list_of, object_of

TABLES_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCounts:
    """The counts of one comparison. ``unsettled``: rows that changed at each look. ``structure``: of definitions."""

    tables: int = 0
    rows: int = 0
    differences: int = 0
    unsettled: int = 0
    repaired: int = 0
    structure: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedResult:
    """A comparison that has ended. Times in Unix time. ``by_table``: those with the most differences."""

    began_ms: int
    ended_ms: int
    counts: ComparedCounts
    by_table: tuple[tuple[str, int], ...] = ()

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
    running_rows: int | None = None
    result: ComparedResult | None = None

    def to_plain(self) -> dict[str, object]:
        """Its JSON object."""
        result = self.result
        counts = result.counts if result else None
        by_table = result.by_table if result else ()
        return {
            "every_h": self.every_h,
            "repair": self.repair,
            "running": self.running_rows is not None,
            "running_rows": self.running_rows,
            "began_ms": result.began_ms if result else None,
            "ended_ms": result.ended_ms if result else None,
            "tables": counts.tables if counts else None,
            "rows": counts.rows if counts else None,
            "differences": counts.differences if counts else None,
            "unsettled": counts.unsettled if counts else None,
            "repaired": counts.repaired if counts else None,
            "structure": counts.structure if counts else None,
            "by_table": [{"name": name, "differences": count} for name, count in by_table],
        }

    def at_rest(self) -> "Compared":
        """The values that stay true when the task does not run."""
        return replace(self, running_rows=None)


def compared_of(plain: object) -> Compared | None:
    """The stage from its JSON object; None for null. TypeError, ValueError or KeyError if it is another value."""
    if plain is None:
        return None
    stage = object_of(plain)
    result = None
    if stage["ended_ms"] is not None:
        names = ("tables", "rows", "differences", "unsettled", "repaired")
        # a worker of an earlier version does not report the last one
        structure = integer_of(stage.get("structure") or 0)
        result = ComparedResult(
            began_ms=integer_of(stage["began_ms"]),
            ended_ms=integer_of(stage["ended_ms"]),
            counts=ComparedCounts(
                **{name: integer_of(stage[name]) for name in names}, structure=structure
            ),
            by_table=tuple(map(_table, list_of(stage["by_table"]))),
        )
    return Compared(
        every_h=integer_of(stage["every_h"]),
        repair=bool(stage["repair"]),
        running_rows=count_of(stage["running_rows"]),
        result=result,
    )


def _table(plain: object) -> tuple[str, int]:
    table = object_of(plain)
    return str(table["name"]), integer_of(table["differences"])


def _named(by_table: Sequence[tuple[str, int]]) -> str:
    named = [f"{name} {count:,}" for name, count in by_table[:TABLES_NAMED]]
    return ", ".join([*named, *(["…"] if len(by_table) > TABLES_NAMED else [])])
