"""``millrace compare TASK``: compares every row of source and target; exits with 1 on a difference."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from millrace.cli.control import Control, console, control, print_json
from millrace.errors import Fatal
from schemas.documents import ApplyTask, TaskDocument, address_of
from zk.tree.entries import TaskEntry

Timeout = Annotated[
    float, typer.Option(min=0.0, help="Seconds to wait first, until all changes are applied.")
]
Now = Annotated[bool, typer.Option("--now", help="Compare now, without waiting.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def compare(task: str, *, timeout: Timeout = 60.0, now: Now = False, json: Json = False) -> None:
    """Compare every row of an apply task's source and target set. A capture task stands for its only apply task."""
    from consumer.compare import compare_sets
    from consumer.target.members import primary_member
    from consumer.topic.show import printable
    from millrace.cli.arrival import capture_task_of, wait_until_arrived

    with control() as cluster:
        document = apply_task_of(cluster, cluster.store.task_entry(task).document)
        task = document.name
        if not now:
            wait_until_arrived(cluster, task, timeout_s=timeout)
        captured = capture_task_of(cluster, document)
        source = primary_member(
            cluster.store.set_entry(captured.set_name).document, for_writing=False
        )
        target = primary_member(
            cluster.store.set_entry(document.target).document, for_writing=False
        )

    def admits(database: str, table: str) -> bool:
        names = (database, table)
        return captured.tables.admits(*names) and document.tables.admits(*names)

    found = compare_sets(source, target, admits, task=task)
    details = [{"table": d.table, "what": d.what, "key": d.key} for d in found.differences]
    if json:
        print_json(
            {
                "task": task,
                "tables": found.tables,
                "rows": found.rows,
                "differences": found.difference_count,
                "is_equal": found.is_equal,
                "details": details,
            }
        )
    else:
        out = console()
        for detail in details:
            shown = printable(f"{detail['table']}: {detail['what']}: {detail['key']}")
            out.print(shown, markup=False)
        verdict = "equal" if found.is_equal else _counted(found.difference_count, "difference")
        tables, rows = _counted(found.tables, "table"), _counted(found.rows, "row")
        out.print(f"{tables}, {rows}: {verdict}")
    sys.exit(0 if found.is_equal else 1)


def apply_task_of(now: Control, task: TaskDocument) -> ApplyTask:
    """The task, or the only apply task of a capture task's topic. Fatal MR-5060 for none or several."""
    if isinstance(task, ApplyTask):
        return task
    entries = now.store.tasks().values()
    documents = [entry.document for entry in entries if isinstance(entry, TaskEntry)]
    found = [
        document
        for document in documents
        if isinstance(document, ApplyTask) and document.source.is_same_topic(address_of(task))
    ]
    if len(found) == 1:
        return found[0]
    names = ", ".join(document.name for document in found) or "no task"
    raise Fatal(
        "MR-5060", f"{task.name} is a capture task, and {names} {_applies(found)} its topic"
    )


def _applies(found: Sequence[ApplyTask]) -> str:
    return "apply" if len(found) > 1 else "applies"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
