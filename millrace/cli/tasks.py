"""``millrace task create -f FILE | list | show | pause | resume | delete | wait``: what is captured and applied."""

import time

import typer

from millrace.cli.control import (
    Control,
    a_table,
    console,
    control,
    operator,
    origin_of,
    plain_from_file,
    print_json,
)
from millrace.errors import Retryable
from schemas.documents import parse_task, plain_task, yaml_from_plain
from schemas.status import report_to_plain
from zk.view import TaskView, read_cluster, views

STOP_TIMEOUT_S = 60.0
POLL_S = 0.1

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="The tasks: what is captured, what is applied where.",
)


@app.command()
def create(
    file: str = typer.Option(
        ..., "-f", "--file", help="The task document (YAML); - is the standard input."
    ),
    replace: bool = typer.Option(False, help="Put it in the place of another one of its name."),
) -> None:
    """Put a task in place; a worker takes it as soon as one is there."""
    task = parse_task(plain_from_file(file), origin=origin_of(file))
    with control() as now:
        outcome = now.store.create_task(task, replace=replace)
    print(f"task {task.name} {outcome.value}")


@app.command("list")
def list_tasks(json: bool = typer.Option(False, "--json", help="One JSON array.")) -> None:
    """List all tasks with their states (`millrace status` says more)."""
    with control() as now:
        found = views(read_cluster(now.session, now.tree))
    if json:
        print_json([_as_plain(view) for view in found])
        return
    table = a_table("TASK", "KIND", "WAY", "STATE", "WHY")
    for view in found:
        report = view.report
        table.add_row(view.name, view.kind, view.way, report.state.value, report.why)
    console().print(table if found else "no tasks: millrace task create -f FILE")


@app.command()
def show(
    name: str, json: bool = typer.Option(False, "--json", help="JSON instead of YAML.")
) -> None:
    """Print one task: its document, then where it stands."""
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
    """Stop a task; returns when its worker has let go of it. What is done stays done."""
    with control() as now:
        now.store.pause(name, by=operator())
        _wait_until_free(now, name)
    print(f"task {name} paused")


@app.command()
def resume(name: str) -> None:
    """Run a task that is paused or blocked, or try a waiting one again now."""
    with control() as now:
        now.store.resume(name)
    print(f"task {name} resumed")


@app.command()
def delete(name: str) -> None:
    """Stop a task and forget it; its topic and its target stay as they are."""
    with control() as now:
        now.store.delete(name)
        _wait_until_free(now, name)
    print(f"task {name} deleted")


@app.command()
def wait(
    name: str,
    timeout: float = typer.Option(60.0, "--timeout", min=0.0, help="Seconds; then exit 1."),
    json: bool = typer.Option(False, "--json", help="One JSON object."),
) -> None:
    """Wait until all that the primary has committed by now is published (capture) or applied (apply)."""
    from millrace.cli.arrival import wait_until_arrived

    with control() as now:
        arrival = wait_until_arrived(now, name, timeout_s=timeout)
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
    head = {"task": view.name, "kind": view.kind, "way": view.way}
    return {**head, "state": view.report.state.value, "why": view.report.why}


def _wait_until_free(now: Control, name: str) -> None:
    deadline_s = time.monotonic() + STOP_TIMEOUT_S
    while now.session.get(now.tree.owner(name)) is not None:
        if time.monotonic() > deadline_s:
            raise Retryable("MR-4013", f"{name} was asked to stop and still runs")
        time.sleep(POLL_S)
