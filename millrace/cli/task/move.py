"""``millrace task move TASK WORKER``: an operator's wish where a task runs. It lasts until ``--anywhere``."""

import time
from typing import Annotated

import typer

from millrace.cli.control import Control, control, operator
from millrace.errors import Retryable
from millrace.schemas.status import TaskState
from millrace.zk.placement.assignment import unit_of
from millrace.zk.placement.fleet import check_move, read_fleet
from millrace.zk.placement.nodes import wish_content
from millrace.zk.view import read_tasks, status_of

POLL_S = 0.1
AT_REST = (TaskState.PAUSED, TaskState.BLOCKED)


def move(
    name: Annotated[str, typer.Argument(metavar="TASK")],
    worker: Annotated[str, typer.Argument()] = "",
    *,
    anywhere: Annotated[
        bool, typer.Option("--anywhere", help="Forget an earlier move: balance decides again.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=0.0, help="Seconds to wait until it has moved.")
    ] = 60.0,
) -> None:
    """Run a task on this worker from now on. A capture task moves with its set: relay and all capture tasks."""
    if bool(worker) == anywhere:
        raise typer.BadParameter("give either WORKER or --anywhere")
    with control() as now:
        unit = unit_of(now.store.task_entry(name).document)
        if anywhere:
            now.session.delete(now.tree.wish(unit), version=-1)
            print(f"{named(unit)} may run on any worker")
            return
        fleet = read_fleet(now.session, now.tree)
        check_move(fleet, name, worker)
        _wish(now, unit, worker)
        moved = fleet.tasks_of_unit(unit)
        wait_until_moved(now, moved, worker, timeout_s=timeout)
    others = [task for task in moved if task != name]
    print(f"task {name} runs on {worker}" + (f", with {', '.join(others)}" if others else ""))


def named(unit: str) -> str:
    """The unit in words."""
    what, _, name = unit.partition(":")
    return f"{what} {name}"


def _wish(now: Control, unit: str, worker: str) -> None:
    path, content = now.tree.wish(unit), wish_content(worker, by=operator())
    node = now.session.get(path)
    if node is not None:
        now.session.put(path, content, version=node.version)
    elif now.session.create(path, content) is None:
        raise Retryable("MR-4007", f"another process has just created {path}")


def wait_until_moved(now: Control, tasks: list[str], worker: str, *, timeout_s: float) -> None:
    """Wait until the worker owns each task that runs; Retryable MR-4124."""
    deadline_s = time.monotonic() + timeout_s
    while waiting := _not_moved(now, tasks, worker):
        if time.monotonic() > deadline_s:
            raise Retryable("MR-4124", f"not within {timeout_s:g} s: {'; '.join(waiting)}")
        time.sleep(POLL_S)


def _not_moved(now: Control, tasks: list[str], worker: str) -> list[str]:
    cluster = read_tasks(now.session, now.tree, tasks)
    waiting = []
    for name in tasks:
        if (entry := cluster.tasks.get(name)) is None:
            continue
        report = status_of(name, entry, cluster)
        at_rest = report.state in AT_REST and cluster.assigned.get(name) == worker
        if not at_rest and cluster.owners.get(name) != worker:
            waiting.append(f"{name} is {report.state.value} ({report.why})")
    return waiting
