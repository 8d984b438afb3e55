"""``millrace compare TASK``: every row of source and target; exit 1 on a difference."""

import sys
from typing import Annotated

import typer

from millrace.cli.control import console, control, print_json
from schemas.documents import ApplyTask

Timeout = Annotated[
    float, typer.Option(min=0.0, help="Seconds to wait until everything is applied first.")
]
Now = Annotated[bool, typer.Option("--now", help="Compare as it stands, without waiting.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object.")]


def compare(task: str, *, timeout: Timeout = 60.0, now: Now = False, json: Json = False) -> None:
    """Compare every row of the source set with the target set of an apply task, or of a capture task's only one."""
    from consumer.compare import compare_sets
    from consumer.target.members import primary_member
    from millrace.cli.arrival import capture_task_of, wait_until_arrived
    from millrace.errors import Fatal

    with control() as cluster:
        if not now:
            wait_until_arrived(cluster, task, timeout_s=timeout)
        document = cluster.store.task_entry(task).document
        if not isinstance(document, ApplyTask):
            raise Fatal("MR-5060", f"{task} is not an apply task: it has no target to compare with")
        captured = capture_task_of(cluster, document)
        source = primary_member(cluster.store.set_entry(captured.set_name).document)
        target = primary_member(cluster.store.set_entry(document.target).document)
    found = compare_sets(source, target, captured.tables.admits, task=task)
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
            out.print(f"{detail['table']}: {detail['what']}: {detail['key']}", markup=False)
        verdict = "equal" if found.is_equal else f"{found.difference_count} differences"
        out.print(f"{found.tables} tables, {found.rows} rows: {verdict}")
    sys.exit(0 if found.is_equal else 1)
