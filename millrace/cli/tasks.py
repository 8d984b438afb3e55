"""``millrace task create -f FILE | list | show | pause | resume | delete | wait``: manages tasks."""

import sys
import time

import typer

from millrace.cli.control import (
    Control,
    console,
    control,
    new_table,
    operator,
    origin_of,
    plain_from_file,
    print_json,
)
from millrace.errors import Fatal, Retryable
from schemas.documents import (
    ApplyTask,
    CaptureTask,
    TaskDocument,
    address_of,
    parse_task,
    plain_task,
    set_of,
    yaml_from_plain,
)
from schemas.status import TaskReport, report_to_plain
from zk.tree.entries import TaskEntry
from zk.tree.store import Outcome
from zk.view import TaskView, read_cluster, views

STOP_TIMEOUT_S = 60.0
POLL_S = 0.1

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Manage tasks: capture a set to a topic, apply a topic to a set.",
)


@app.command()
def create(
    file: str = typer.Option(
        ..., "-f", "--file", help="The task document (YAML); - reads standard input."
    ),
    replace: bool = typer.Option(False, help="Replace the task of this name."),
) -> None:
    """Create a task, or replace it with --replace. A worker of its kind starts it.

    The start of an apply task is compared with the primary of its source.
    """
    from millrace.cli.apply_start import check_start

    task = parse_task(plain_from_file(file), origin=origin_of(file))
    with control("task create") as now:
        before = now.store.tasks().get(task.name)
        note = ""
        is_new_start = not isinstance(before, TaskEntry) or before.document.start != task.start
        if isinstance(task, ApplyTask) and is_new_start:
            note = check_start(now, task)
        if replace and isinstance(before, TaskEntry):
            check_topic(before.document, task, now.store.last_report(before.document))
        outcome = now.store.create_task(task, replace=replace)
        if outcome is Outcome.REPLACED and isinstance(before, TaskEntry):
            note = start_note(before.document, task, now.store.last_report(task)) or note
    print(f"task {task.name} {outcome.value}")
    if note:
        print(f"note: {note}", file=sys.stderr)


def check_topic(before: TaskDocument, task: TaskDocument, report: TaskReport | None) -> None:
    """Fatal MR-5022 if an apply task gets another topic than the one that it has applied.

    Its progress on the target belongs to that topic. ``report``: the last one on the work of ``before``.
    """
    known, wanted = address_of(before).topic, address_of(task).topic
    if (
        not isinstance(before, ApplyTask)
        or known == wanted
        or report is None
        or not has_progress(report)
    ):
        return
    raise Fatal(
        "MR-5022",
        f"{task.name} has applied the topic {known} up to seq {report.seq}, the document names {wanted}",
        fix=f"Set `topic` to {known}, or give the task of {wanted} another name.",
        task=task.name,
    )


def has_progress(report: TaskReport) -> bool:
    """Whether the task has published or applied a record."""
    return bool(report.seq or report.gtid_set)


def start_note(before: TaskDocument, task: TaskDocument, report: TaskReport | None) -> str:
    """A note that a changed ``start`` has no effect; "" when it has one, or did not change.

    ``report``: the last report on this task's work; ``None`` when the task has not worked on this topic yet.
    """
    if before.start == task.start or report is None or not has_progress(report):
        return ""
    is_capture = isinstance(task, CaptureTask)
    topic = address_of(task).topic
    read = (
        f"only while the topic {topic} has never held a record"
        if is_capture
        else f"only while the target {set_of(task)} has no progress of the task"
    )
    where = f"after {report.gtid_set or 'the beginning'}, seq {report.seq}"
    name = "a new topic" if is_capture else "another name"
    return (
        f"`start` changed from {before.start} to {task.start} and has no effect: it is read {read}."
        f" The task resumes {where}. To start elsewhere, create a task with {name}."
    )


@app.command("list")
def list_tasks(json: bool = typer.Option(False, "--json", help="Print one JSON array.")) -> None:
    """List all tasks with their states. `millrace status` shows more."""
    with control() as now:
        found = views(read_cluster(now.session, now.tree))
    if json:
        print_json([_as_plain(view) for view in found])
        return
    table = new_table("TASK", "KIND", "ROUTE", "STATE", "WHY")
    for view in found:
        report = view.report
        table.add_row(view.name, view.kind, view.route, report.state.value, report.why)
    console().print(table if found else "no tasks: millrace task create -f FILE")


@app.command()
def show(
    name: str, json: bool = typer.Option(False, "--json", help="Print JSON instead of YAML.")
) -> None:
    """Print a task: its document, then its status."""
    with control() as now:
        entry = now.store.task_entry(name)
        document = plain_task(entry.document)
        report = report_to_plain(_view(now, name).report)
    report.pop("format")
    if json:
        print_json({"document": document, "paused_by": entry.desired.paused_by, "status": report})
    else:
        print(yaml_from_plain(document) + "---\n" + yaml_from_plain(report), end="")


@app.command()
def pause(name: str) -> None:
    """Stop a task. Waits until its worker has released it; progress is kept."""
    with control() as now:
        now.store.pause(name, by=operator())
        _wait_until_free(now, name)
    print(f"task {name} paused")


@app.command()
def resume(name: str) -> None:
    """Run a paused or blocked task again, or retry a degraded one now."""
    with control() as now:
        now.store.resume(name)
    print(f"task {name} resumed")


@app.command()
def delete(name: str) -> None:
    """Stop a task and delete it. Its topic and its target are not changed."""
    with control("task delete") as now:
        now.store.delete(name)
        _wait_until_free(now, name)
    print(f"task {name} deleted")


@app.command()
def wait(
    name: str,
    timeout: float = typer.Option(
        60.0, "--timeout", min=0.0, help="Seconds to wait; then exit with 3."
    ),
    gtid: str | None = typer.Option(
        None, "--gtid", help="Wait for this GTID set of the source instead of the current changes."
    ),
    json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Wait until a task has published or applied all current changes of the primary."""
    from millrace.cli.arrival import wait_until_arrived

    with control() as now:
        arrival = wait_until_arrived(now, name, timeout_s=timeout, gtid_set=gtid)
    if json:
        print_json(
            {"task": name, "gtid_set": str(arrival.wanted), "waited_s": round(arrival.waited_s, 3)}
        )
    else:
        print(
            f"task {name} has reached {arrival.wanted or 'the beginning'} ({arrival.waited_s:.1f} s)"
        )


def _view(now: Control, name: str) -> TaskView:
    return next(v for v in views(read_cluster(now.session, now.tree)) if v.name == name)


def _as_plain(view: TaskView) -> dict[str, object]:
    head = {"task": view.name, "kind": view.kind, "route": view.route}
    return {**head, "state": view.report.state.value, "why": view.report.why}


def _wait_until_free(now: Control, name: str) -> None:
    deadline_s = time.monotonic() + STOP_TIMEOUT_S
    while now.session.get(now.tree.owner(name)) is not None:
        if time.monotonic() > deadline_s:
            raise Retryable("MR-4013", f"{name} was asked to stop and still runs")
        time.sleep(POLL_S)
