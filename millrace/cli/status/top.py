"""``millrace top``: the tasks live, in columns, until Ctrl-C. Tasks that need attention come first.

A terminal of 80 columns shows the state, the lag and the whole reason; a wider one more figures.

It continues while ZooKeeper is away and shows the error meanwhile. For scripts: ``millrace status -w --json``.
"""

import time
from collections.abc import Mapping, Sequence

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from millrace.cli.control import console, control, new_table
from millrace.cli.status.line import NAME_CHARACTERS_MAX, TROUBLED, backlog_text, notes_of
from millrace.cli.status.status import head_of, read_tasks
from millrace.cli.texts import duration, shortened, size
from millrace.errors import Retryable
from millrace.schemas.status import TaskState
from millrace.zk.view import Cluster, TaskView

EVERY_S = 1.0
COLUMNS = ("TASK", "STATE", "LAG", "WAITS", "ROWS/S", "MEMBER", "SEQ", "WHY")
LEFT_OUT = ("SEQ", "MEMBER", "ROWS/S", "WAITS")
WHY_CHARACTERS_MIN = 24  # a longer reason is wrapped
GAP = 2  # between two columns
STYLES = {
    TaskState.RUNNING: "green",
    TaskState.STALLED: "red",
    TaskState.DEGRADED: "yellow",
    TaskState.BLOCKED: "red",
}


def top(
    every_s: float = typer.Option(EVERY_S, "--every", min=0.2, help="Seconds between two looks."),
) -> None:
    """Show the tasks live, in columns, until Ctrl-C."""
    with control() as now:

        def look() -> RenderableType:
            try:
                return screen(now.tree.cluster, *read_tasks(now), width=out.width)
            except Retryable as error:
                return Text(f"{error}\n  {error.fix}", style="yellow")

        out = console()
        if not out.is_terminal:
            out.print(look())
            return
        with Live(look(), console=out, screen=True, auto_refresh=False) as live:
            while True:
                time.sleep(every_s)
                live.update(look(), refresh=True)


def screen(name: str, cluster: Cluster, found: list[TaskView], *, width: int) -> RenderableType:
    """One row for each task, and the reasons of those that need attention below."""
    troubled = [view for view in found if view.report.state in TROUBLED]
    shown = [*troubled, *(view for view in found if view not in troubled)]
    rows = [_cells(view) for view in shown]
    columns = columns_for(rows, width=width)
    table = new_table(*columns)
    for column in table.columns[:-1]:
        column.no_wrap, column.overflow = True, "ellipsis"
    for view, cells in zip(shown, rows, strict=True):
        style = STYLES.get(view.report.state, "")
        table.add_row(
            *(Text(cells[each], style=style if each == "STATE" else "") for each in columns)
        )
    notes = [
        line for view in troubled for line in ("", view.name, *notes_of(view.report, width=width))
    ]
    return Group(head_of(name, cluster), "", table, *notes)


def columns_for(rows: Sequence[Mapping[str, str]], *, width: int) -> list[str]:
    """The columns that fit beside a readable reason. Those that say least are left out first (``LEFT_OUT``)."""
    kept, left_out = list(COLUMNS), list(LEFT_OUT)

    def taken() -> int:
        return sum(max(len(each), *(len(row[each]) for row in rows)) + GAP for each in kept[:-1])

    wanted = min(WHY_CHARACTERS_MIN, max((len(row["WHY"]) for row in rows), default=0))
    while rows and left_out and width - taken() < wanted:
        kept.remove(left_out.pop(0))
    return kept


def _cells(view: TaskView) -> dict[str, str]:
    """The text of each column; "-" if unknown. ``LAG``: from the source's commit. A trouble's reason is below."""
    report = view.report
    member, lag_s, rate, waits = "-", None, None, None
    if report.captured is not None:
        source = report.captured.source
        member, lag_s = f"{source.host}:{source.port}", source.lag_s
    if report.relayed is not None and report.relayed.behind_bytes is not None:
        waits = size(report.relayed.behind_bytes)
    if report.published is not None:
        rate = report.published.rates.over_10_s
        if report.published.lag_s is not None:
            lag_s = max(lag_s or 0.0, report.published.lag_s)
    if (reading := report.applied or report.delivered) is not None:
        lag_s, rate = reading.lag_s, reading.rates.over_10_s
        waits = backlog_text(reading)
    return {
        "TASK": shortened(view.name, NAME_CHARACTERS_MAX),
        "STATE": report.state.value.upper(),
        "LAG": "-" if lag_s is None else duration(lag_s, digits=2),
        "WAITS": (waits or "-").partition(", ")[0],
        "ROWS/S": "-" if rate is None else f"{rate:,.0f}",
        "MEMBER": member,
        "SEQ": f"{report.seq:,}" if report.seq else "-",
        "WHY": f"{report.code} below".lstrip() if report.state in TROUBLED else report.why,
    }
