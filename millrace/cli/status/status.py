"""``millrace status [TASK] [-w] [--json]``: shows the state of every task, its figures, and why it waits.

One line for each task, or everything that is known of one. With ``-w`` it continues while ZooKeeper is away: it shows
the error instead, with ``--json`` on standard error. ``millrace top`` shows the same live, in columns.
"""

import sys
import time
from collections.abc import Callable

import typer

from millrace.cli.control import Control, console, control, print_json
from millrace.cli.status.detail import detail_of
from millrace.cli.status.json_form import as_plain
from millrace.cli.status.line import NAME_CHARACTERS_MAX, lines_of
from millrace.errors import Fatal, Retryable
from millrace.zk.view import Cluster, TaskView, read_cluster, views

WATCH_S = 1.0

Found = tuple[Cluster, list[TaskView]]


def status(
    task: str = typer.Argument("", metavar="[TASK]", help="Show all that is known of this task."),
    watch: bool = typer.Option(False, "-w", "--watch", help="Repeat every second until Ctrl-C."),
    json: bool = typer.Option(
        False, "--json", help="Print one JSON object; with -w one every second."
    ),
) -> None:
    """Show the state of every task, its figures, and why it waits."""
    with control() as now:

        def show() -> None:
            cluster, found = read_tasks(now, task)
            if json:
                print_json(as_plain(now.tree.cluster, cluster, found))
            else:
                lines = text_of(now.tree.cluster, cluster, found, is_detail=bool(task))
                print("\n".join(lines), flush=True)

        show()
        while watch:
            time.sleep(WATCH_S)
            if not json:
                print()
            _try(show, is_json=json)


def read_tasks(now: Control, task: str = "") -> Found:
    """The cluster, and all tasks or the one of this name. Fatal MR-4104."""
    cluster = read_cluster(now.session, now.tree)
    found = [view for view in views(cluster) if task in ("", view.name)]
    if task and not found:
        raise Fatal("MR-4104", f"there is no task {task}")
    return cluster, found


def text_of(
    name: str, cluster: Cluster, found: list[TaskView], *, is_detail: bool = False
) -> list[str]:
    """The lines for the width of the terminal."""
    width = console().width
    if is_detail:
        return [line for view in found for line in detail_of(view, width=width)]
    lines = [head_of(name, cluster)]
    if not found:
        return [*lines, "no tasks: millrace task create -f FILE"]
    name_width = min(max(len(view.name) for view in found), NAME_CHARACTERS_MAX)
    for view in found:
        lines += lines_of(view, name_width=name_width, width=width)
    return lines


def head_of(name: str, cluster: Cluster) -> str:
    """The cluster, its scheduler and its workers in one line."""
    kinds = [kind.value for kind in cluster.workers.values()]
    workers = ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds)))
    return f"cluster {name}, scheduler {cluster.leader or 'none'}, workers: {workers or 'none'}"


def _try(show: Callable[[], None], *, is_json: bool) -> None:
    try:
        show()
    except Retryable as error:
        print(f"{error}\n  {error.fix}", file=sys.stderr if is_json else sys.stdout, flush=True)
