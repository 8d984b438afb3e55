"""``millrace top``: the tasks live, in columns, until Ctrl-C. Tasks that need attention come first.

It continues while ZooKeeper is away and shows the error meanwhile. For scripts: ``millrace status -w --json``.
"""

import time

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from millrace.cli.control import console, control, new_table
from millrace.cli.status import head_of, read_tasks
from millrace.cli.status_line import TROUBLED, backlog_text, notes_of
from millrace.cli.texts import duration, size
from millrace.errors import Retryable
from schemas.status import TaskReport, TaskState
from zk.view import Cluster, TaskView

EVERY_S = 1.0
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
    table = new_table("TASK", "STATE", "MEMBER", "LAG", "ROWS/S", "WAITS", "SEQ", "WHY")
    for column in table.columns:
        column.no_wrap, column.overflow = True, "ellipsis"
    troubled = [view for view in found if view.report.state in TROUBLED]
    for view in [*troubled, *(view for view in found if view not in troubled)]:
        report = view.report
        state = Text(report.state.value.upper(), style=STYLES.get(report.state, ""))
        table.add_row(view.name, state, *_figures(report), report.why)
    notes = [
        line for view in troubled for line in ("", view.name, *notes_of(view.report, width=width))
    ]
    return Group(head_of(name, cluster), "", table, *notes)


def _figures(report: TaskReport) -> tuple[str, str, str, str, str]:
    """Member, lag from the source's commit, rows a second, what waits, and seq; "-" if unknown."""
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
    if report.applied is not None:
        lag_s, rate = report.applied.lag_s, report.applied.rates.over_10_s
        waits = backlog_text(report.applied)
    return (
        member,
        "-" if lag_s is None else duration(lag_s, digits=2),
        "-" if rate is None else f"{rate:,.0f}",
        waits or "-",
        f"{report.seq:,}" if report.seq else "-",
    )
