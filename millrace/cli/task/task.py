"""``millrace task create | list | show | pause | resume | move | load | snapshot | delete | wait``, and history."""

import sys

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
    wait_until_free,
)
from millrace.cli.history import add_history, former_document
from millrace.cli.task.load import load
from millrace.cli.task.move import move
from millrace.cli.task.snapshot import snapshot
from millrace.schemas.documents import (
    PublishTask,
    Reader,
    SetDocument,
    TaskDocument,
    parse_task,
    plain_task,
    yaml_from_plain,
)
from millrace.schemas.status import report_to_plain
from millrace.zk.changes.effects import start_note, topic_refusal
from millrace.zk.tree.documents import Edit, task_key
from millrace.zk.tree.entries import TaskEntry
from millrace.zk.tree.store import Outcome
from millrace.zk.view import TaskView, read_cluster, views

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Manage tasks: capture a set to a topic, apply it to a set, or publish it for subscribers.",
)


@app.command()
def create(
    file: str = typer.Option(
        ..., "-f", "--file", help="The task document (YAML); - reads standard input."
    ),
    replace: bool = typer.Option(False, help="Replace the task of this name."),
) -> None:
    """Create a task, or replace it with --replace. A worker of its kind starts it.

    The start of an apply or publish task is compared with the primary of its source, and a view with the tables of
    its topic.
    """
    task = parse_task(plain_from_file(file), origin=origin_of(file))
    with control("task create") as now:
        _put(now, task, replace=replace)


def _put(now: Control, task: TaskDocument, *, replace: bool) -> None:
    """Create or replace a task after all checks, and print what was done."""
    from millrace.cli.task.start import check_start

    before = now.store.tasks().get(task.name)
    note = ""
    is_new_start = not isinstance(before, TaskEntry) or before.document.start != task.start
    if isinstance(task, Reader) and is_new_start and task.start.gtid_set:
        note = check_start(task, now.store.documents().after([Edit.to(task)]))
    if isinstance(task, PublishTask):
        from millrace.cli.task.outputs import notes_of

        known = before.document if isinstance(before, TaskEntry) else None
        found = notes_of(task, known, now.store.documents().after([Edit.to(task)]))
        note = "; ".join(part for part in (note, *found) if part)
    if replace and isinstance(before, TaskEntry):
        report = now.store.last_report(before.document)
        refusal = topic_refusal(before.document, task, report)
        if refusal is not None:
            raise refusal
    outcome = now.store.create_task(task, replace=replace)
    if outcome is Outcome.REPLACED and isinstance(before, TaskEntry):
        note = start_note(before.document, task, now.store.last_report(task)) or note
    print(f"task {task.name} {outcome.value}")
    if note:
        print(f"note: {note}", file=sys.stderr)


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
        wait_until_free(now, name)
    print(f"task {name} paused")


app.command()(move)
app.command()(load)
app.command()(snapshot)


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
        wait_until_free(now, name)
    print(f"task {name} deleted")


add_history(app, "task", task_key)


@app.command()
def rollback(name: str, revision: int = typer.Argument(metavar="REV")) -> None:
    """Write a former document of a task again, as a new revision. Checked like `create --replace`."""
    with control(f"task rollback {revision}") as now:
        task = former_document(now, task_key(name), revision)
        assert not isinstance(task, SetDocument), "the key of a task"
        _put(now, task, replace=True)


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
    from millrace.cli.task.wait import wait_until_arrived

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
