"""``millrace task load TASK --tables DATABASE.TABLE,… | --all``: copy tables of a task from the source."""

import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.control import Control, control, operator, print_json
from millrace.errors import Fatal
from millrace.schemas.documents import ApplyTask

if TYPE_CHECKING:
    from millrace.consumer.load.request import Request
    from millrace.consumer.load.tables import Admission
    from millrace.drivers.mysql.connection import Endpoint, MySqlSession


def load(
    name: Annotated[str, typer.Argument(metavar="TASK", help="The apply task.")],
    *,
    tables: Annotated[
        str,
        typer.Option("--tables", help="DATABASE.TABLE, several separated by commas. No patterns."),
    ] = "",
    every: Annotated[
        bool, typer.Option("--all", help="All tables of the target that the task admits.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be loaded, and exit.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object; needs --yes or --dry-run.")
    ] = False,
) -> None:
    """Copy tables from the source while the task continues with the others. Their rows on the target are replaced.

    The task may run, or be paused. A running task begins within seconds; see docs/load.md.
    """
    from millrace.consumer.load.request import store
    from millrace.drivers.mysql.connection import connect

    names = [part.strip() for part in tables.split(",") if part.strip()]
    if every == bool(names):
        raise typer.BadParameter("give either --tables or --all")
    if json and not (yes or dry_run):
        raise Fatal("MR-4235", f"the load of {name} was not confirmed: --json does not ask")
    with control() as now:
        sides = _sides(now, name)
    target = connect(sides.target)
    with closing(target):
        request = _request(sides, names, target)
        if json:
            print_json(_plain(name, request) | {"dry_run": dry_run})
        else:
            print(_text(request))
        if dry_run:
            return
        if not yes and not _agrees(len(request.rows)):
            raise Fatal("MR-4235", f"the load of {name} was not confirmed")
        store(target, name, request, by=operator())
    if not json:
        print(
            f"task {name}: {_tables(len(request.tables))} will be loaded; `millrace status` shows them"
        )


def request_of(now: Control, name: str, names: Sequence[str], target: "MySqlSession") -> "Request":
    """The request for these tables, for a command that stores it with something else."""
    return _request(_sides(now, name), names, target)


def confirmed(request: "Request") -> bool:
    """Print what will be loaded; whether the operator agrees."""
    print(_text(request))
    return _agrees(len(request.rows))


def _request(sides: "_Sides", names: Sequence[str], target: "MySqlSession") -> "Request":
    from millrace.consumer.load.request import check_progress, prepare, read_known
    from millrace.drivers.mysql.connection import connect

    check_progress(target, sides.task.name)
    with closing(connect(sides.source)) as source:
        known = read_known(source, target, sides.admission)
    return prepare(target, sides.task, names, known)


@dataclass(frozen=True, slots=True)
class _Sides:
    """The task, the tables that the topic has of its source, and a member of each set."""

    task: ApplyTask
    admission: "Admission"
    source: "Endpoint"
    target: "Endpoint"


def _sides(now: Control, name: str) -> _Sides:
    """Fatal MR-4203 if this cluster does not capture the topic: without its source nothing can be loaded."""
    from millrace.cli.task.wait import capture_task_of
    from millrace.consumer.load.tables import Admission
    from millrace.drivers.mysql.primary import primary_member

    task = now.store.task_entry(name).document
    if not isinstance(task, ApplyTask):
        raise Fatal("MR-4237", f"{name} is not an apply task", task=name)
    capture = capture_task_of(now, task)
    source = now.store.set_entry(capture.set_name).document
    return _Sides(
        task,
        Admission.of(source, capture, task),
        primary_member(source, for_writing=False),
        primary_member(now.store.set_entry(task.target).document),
    )


def _plain(task: str, request: "Request") -> dict[str, object]:
    return {
        "task": task,
        "tables": [
            {
                "table": ".".join(table),
                "rows_on_target": request.rows.get(table),
                "asked": table in request.asked,
                "on_source": table not in request.gone,
            }
            for table in request.tables
        ],
    }


def _text(request: "Request") -> str:
    lines = []
    for table in request.tables:
        rows = request.rows.get(table)
        what = "not on the target yet" if rows is None else f"about {rows} rows on the target"
        if table in request.gone:
            what += "; the source does not have it, so it is dropped on the target"
        why = "" if table in request.asked else ", because a foreign key relates it to the others"
        lines.append(f"{'.'.join(table)}: {what}{why}")
    return "\n".join(lines)


def _agrees(count: int) -> bool:
    """Whether the operator types yes. Without rows that are lost there is nothing to ask."""
    if not count:
        return True
    what = "Its rows" if count == 1 else f"The rows of these {count} tables"
    print(
        f"{what} on the target are deleted, then copied from the source; readers miss them meanwhile."
        " Type yes to load: ",
        end="",
        flush=True,
    )
    return sys.stdin.readline().strip() == "yes"


def _tables(count: int) -> str:
    return "1 table" if count == 1 else f"{count} tables"
