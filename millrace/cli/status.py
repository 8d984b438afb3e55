"""``millrace status [-w] [--json]``: what every task does, and why it waits.

A watch outlives an ensemble that is away: it says so in its place, with ``--json`` on standard error, and goes on.
"""

import sys
import time

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from millrace.cli.control import a_table, console, control, print_json
from millrace.errors import Retryable
from schemas.status import TaskState, report_to_plain
from zk.view import Cluster, TaskView, read_cluster, views

WATCH_S = 1.0
GTID_CHARACTERS_MAX = 60  # in the table; --json has all of it
_STYLES = {
    TaskState.RUNNING: "green",
    TaskState.DEGRADED: "yellow",
    TaskState.BLOCKED: "red",
}


def status(
    watch: bool = typer.Option(False, "-w", "--watch", help="Again every second until Ctrl-C."),
    json: bool = typer.Option(False, "--json", help="One JSON object (one a second with -w)."),
) -> None:
    """What every task does, and why it waits."""
    with control() as now:

        def read() -> tuple[Cluster, list[TaskView]]:
            cluster = read_cluster(now.session, now.tree)
            return cluster, views(cluster)

        if json:
            print_json(as_plain(now.tree.cluster, *read()))
            while watch:
                time.sleep(WATCH_S)
                try:
                    print_json(as_plain(now.tree.cluster, *read()))
                except Retryable as error:
                    print(f"{error}\n  {error.fix}", file=sys.stderr)
            return

        def again() -> RenderableType:
            time.sleep(WATCH_S)
            try:
                return as_table(now.tree.cluster, *read())
            except Retryable as error:
                return Text(f"{error}\n  {error.fix}", style="yellow")

        out, first = console(), as_table(now.tree.cluster, *read())
        if watch and out.is_terminal:
            with Live(first, console=out, screen=True) as live:
                while True:
                    live.update(again())
        out.print(first)
        while watch:  # into a pipe or a file: one behind the other
            out.print("", again())


def as_plain(name: str, cluster: Cluster, found: list[TaskView]) -> dict[str, object]:
    """The stable JSON form: cluster, scheduler, workers, and a list of tasks with all their fields."""
    tasks = []
    for view in found:
        report = report_to_plain(view.report)
        report.pop("format")
        head = {"task": view.name, "kind": view.kind, "way": view.way, "assigned": view.assigned}
        tasks.append({**head, **report, "age_s": round(view.age_s, 1)})
    workers = {worker: kind.value for worker, kind in cluster.workers.items()}
    return {"cluster": name, "scheduler": cluster.leader, "workers": workers, "tasks": tasks}


def as_table(name: str, cluster: Cluster, found: list[TaskView]) -> RenderableType:
    """A line a task; below it why it is as it is, what mends it, and its figures."""
    workers = ", ".join(f"{worker} ({kind.value})" for worker, kind in cluster.workers.items())
    head = f"cluster {name}   scheduler {cluster.leader or 'none'}   workers {workers or 'none'}"
    if not found:
        return Group(head, "no tasks: millrace task create -f FILE")
    table = a_table("TASK", "STATE", "WAY", "WORKER", "SEQ", "GTID SET")
    for view in found:
        report = view.report
        table.add_row(
            view.name,
            Text(report.state.value, style=_STYLES.get(report.state, "")),
            view.way,
            view.assigned or "-",
            str(report.seq or "-"),
            _shortened(report.gtid_set) or "-",
        )
    return Group(head, "", table, *(_notes(view) for view in found))


def _notes(view: TaskView) -> Text:
    report = view.report
    lines: list[str] = []
    if report.why:
        code = f"{report.code} " if report.code else ""
        again = f" (tries again after {report.next_try_s:.1f} s)" if report.next_try_s else ""
        lines.append(f"  why  {code}{report.why}{again}")
    if report.fix:
        lines.append(f"  fix  {report.fix}")
    if report.figures:
        lines.append("  " + "  ".join(f"{key}={value}" for key, value in report.figures.items()))
    return (
        Text("\n".join(["", f"{view.name}: {report.state.value}", *lines])) if lines else Text("")
    )


def _shortened(gtid_set: str) -> str:
    return (
        gtid_set
        if len(gtid_set) <= GTID_CHARACTERS_MAX
        else gtid_set[: GTID_CHARACTERS_MAX - 1] + "…"
    )
