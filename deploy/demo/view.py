"""The live view. On a terminal: one line per stage, redrawn twice a second. Elsewhere: one line every few seconds."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console
from rich.live import Live
from rich.table import Table

from millrace.background import Background

REDRAW_S = 0.5
LINE_S = 4.0


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage: how many rows have passed, and the age of the newest visible beat (None: unknown)."""

    name: str
    rows: int
    age_ms: float | None
    note: str = ""


ReadStages = Callable[[], list[Stage]]


class LiveView(Background):
    """Shows what ``read_stages`` returns, for the length of the ``with`` block."""

    def __init__(self, console: Console, read_stages: ReadStages) -> None:
        super().__init__("live view", self._show)
        self._console = console
        self._read_stages = read_stages
        self._before: dict[str, tuple[float, int]] = {}

    def _show(self, over: threading.Event) -> None:
        if not self._console.is_terminal:
            while not over.wait(LINE_S):
                self._console.print(self._line(), highlight=False)
            return
        with Live(self._table(), console=self._console, transient=True) as live:
            while not over.wait(REDRAW_S):
                live.update(self._table())

    def _table(self) -> Table:
        table = Table("stage", "rows", "rows/s", "age ms", "", box=None, padding=(0, 2))
        for stage, rate in self._rated():
            table.add_row(stage.name, f"{stage.rows:,}", f"{rate:,.0f}", _age(stage), stage.note)
        return table

    def _line(self) -> str:
        return "  ".join(
            f"{stage.name} {stage.rows:,} ({rate:,.0f}/s, age {_age(stage)} ms)"
            for stage, rate in self._rated()
        )

    def _rated(self) -> list[tuple[Stage, float]]:
        now = time.monotonic()
        rated = []
        for stage in self._read_stages():
            then, rows = self._before.get(stage.name, (now, stage.rows))
            rated.append((stage, (stage.rows - rows) / (now - then) if now > then else 0.0))
            self._before[stage.name] = (now, stage.rows)
        return rated


def _age(stage: Stage) -> str:
    return "-" if stage.age_ms is None else f"{stage.age_ms:,.0f}"
