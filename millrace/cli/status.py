"""``millrace status [-w] [--json]``: shows the state of every task, and the reason for it.

With ``-w`` it continues while ZooKeeper is away: it shows the error instead, with ``--json`` on standard error.
"""

import sys
import time

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from millrace.cli.control import console, control, new_table, print_json
from millrace.errors import Retryable
from schemas.documents import TaskKind
from schemas.stages import Applied
from schemas.status import TaskReport, TaskState, report_to_plain
from zk.view import Cluster, TaskView, read_cluster, views

WATCH_S = 1.0
GTID_CHARACTERS_MAX = 60  # in the table; --json prints all of it
MEMBER_CHARACTERS_MAX = (
    110  # one line for each member of the set: why the task reads from it, or does not
)
CHOICE = "choice"
MINUTE_S = 60
_STYLES = {
    TaskState.RUNNING: "green",
    TaskState.DEGRADED: "yellow",
    TaskState.BLOCKED: "red",
}


def status(
    watch: bool = typer.Option(False, "-w", "--watch", help="Repeat every second until Ctrl-C."),
    json: bool = typer.Option(
        False, "--json", help="Print one JSON object; with -w one every second."
    ),
) -> None:
    """Show the state of every task, and the reason for it."""
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

        def next_table() -> RenderableType:
            time.sleep(WATCH_S)
            try:
                return as_table(now.tree.cluster, *read())
            except Retryable as error:
                return Text(f"{error}\n  {error.fix}", style="yellow")

        out, first = console(), as_table(now.tree.cluster, *read())
        if watch and out.is_terminal:
            with Live(first, console=out, screen=True) as live:
                while True:
                    live.update(next_table())
        out.print(first)
        while watch:  # into a pipe or a file: one after the other
            out.print("", next_table())


def as_plain(name: str, cluster: Cluster, found: list[TaskView]) -> dict[str, object]:
    """The JSON output, a stable format: cluster, scheduler, workers, and all tasks with all fields."""
    tasks = []
    for view in found:
        report = report_to_plain(view.report)
        report.pop("format")
        report.pop("applied")
        captured, relayed = report.pop("captured"), report.pop("relayed")
        if view.kind in (TaskKind.CAPTURE.value, "relay"):
            report |= {**_captured(captured), "relayed": relayed}
        if view.kind == TaskKind.APPLY.value:
            # the mark moves when all lanes have applied their rows
            report["consistent_gtid"] = report["gtid_set"]
            report["applied"] = _applied(view.report)
        head = {"task": view.name, "kind": view.kind, "way": view.route, "assigned": view.assigned}
        tasks.append({**head, **report, "age_s": round(view.age_s, 1)})
    workers = {worker: kind.value for worker, kind in cluster.workers.items()}
    return {"cluster": name, "scheduler": cluster.leader, "workers": workers, "tasks": tasks}


def _captured(stage: object) -> dict[str, object]:
    """The member that is read, and the last switches; `millrace replica list` shows all members."""
    found = stage if isinstance(stage, dict) else {}
    return {"source": found.get("source"), "switches": found.get("switches", [])}


def _applied(report: TaskReport) -> dict[str, object]:
    stage = _live_stage(report) or Applied()
    position = {"seq": report.seq, "gtid_set": report.gtid_set, "consistent_gtid": report.gtid_set}
    return {**position, **stage.to_plain()}


def _live_stage(report: TaskReport) -> Applied | None:
    """Lag and pace of a task that does not run are unknown."""
    is_live = report.state in (TaskState.RUNNING, TaskState.DEGRADED)
    return report.applied if is_live or report.applied is None else report.applied.at_rest()


def as_table(name: str, cluster: Cluster, found: list[TaskView]) -> RenderableType:
    """One line for each task. Below the table, for each task: the reason for its state, the fix, and its figures."""
    workers = ", ".join(f"{worker} ({kind.value})" for worker, kind in cluster.workers.items())
    head = f"cluster {name}   scheduler {cluster.leader or 'none'}   workers {workers or 'none'}"
    if not found:
        return Group(head, "no tasks: millrace task create -f FILE")
    table = new_table("TASK", "STATE", "ROUTE", "WORKER", "SEQ", "GTID SET")
    for view in found:
        report = view.report
        table.add_row(
            view.name,
            Text(report.state.value, style=_STYLES.get(report.state, "")),
            view.route,
            view.assigned or "-",
            str(report.seq or "-"),
            _shortened(report.gtid_set, GTID_CHARACTERS_MAX) or "-",
        )
    return Group(head, "", table, *(_notes(view) for view in found))


def _notes(view: TaskView) -> Text:
    report = view.report
    lines: list[str] = []
    if report.why:
        code = f"{report.code} " if report.code else ""
        retry = f" (retries after {report.next_try_s:.1f} s)" if report.next_try_s else ""
        lines.append(f"  why  {code}{report.why}{retry}")
    if report.fix:
        lines.append(f"  fix  {report.fix}")
    if (stage := _live_stage(report)) is not None and (line := applied_line(stage)):
        lines.append(f"  {line}")
    figures = [f"{key}={value}" for key, value in report.figures.items() if key != CHOICE]
    if figures:
        lines.append("  " + "  ".join(figures))
    for member in str(report.figures.get(CHOICE, "")).split(" | "):
        if member:
            lines.append(f"    {_shortened(member, MEMBER_CHARACTERS_MAX)}")
    return (
        Text("\n".join(["", f"{view.name}: {report.state.value}", *lines])) if lines else Text("")
    )


def applied_line(stage: Applied) -> str:
    """The stage in one line of less than 80 characters, without what is unknown; "" if nothing is known."""
    known = (
        ("lag {}", duration(stage.lag_s, digits=1)),
        ("backlog {:,} records", stage.backlog_records),
        ("{:,.0f} rows/s", stage.rows_10_s),
        ("ETA {}", duration(stage.eta_s) if stage.backlog_records else None),
    )
    return " | ".join(text.format(value) for text, value in known if value is not None)


def duration(seconds: float | None, *, digits: int = 0) -> str | None:
    """Such as "12 s", or from a minute on "1:02:03"."""
    if seconds is None:
        return None
    if seconds < MINUTE_S:
        return f"{seconds:.{digits}f} s"
    whole = round(seconds)
    minutes, left = divmod(whole, MINUTE_S)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}"


def _shortened(text: str, characters_max: int) -> str:
    return text if len(text) <= characters_max else text[: characters_max - 1] + "…"
