"""``millrace relay purge``: deletes relay files that no task needs, on the worker's machine."""

import json
from pathlib import Path
from typing import Annotated

import typer

from millrace.errors import Fatal

app = typer.Typer(no_args_is_help=True, help="Purge a worker's relay logs, on its machine.")


@app.callback()
def _group() -> None:
    """Purge a worker's relay logs, on its machine."""


@app.command()
def purge(
    set_name: Annotated[str, typer.Argument(metavar="SET", help="The set.", show_default=False)],
    *,
    relay_dir: Annotated[
        Path, typer.Option("--relay-dir", help="The directory given to `millrace worker`.")
    ],
    filename: Annotated[
        str,
        typer.Option(
            "--filename",
            "--until",
            help="Delete the files before this one: mysql-bin.000017 or SUBDIR/mysql-bin.000017.",
        ),
    ] = "",
    sub_dir: Annotated[
        str,
        typer.Option("--sub-dir", help="The file's sub-directory; alone, delete all before it."),
    ] = "",
    inactive: Annotated[
        bool, typer.Option("--inactive", help="Delete what precedes the active sub-directory.")
    ] = False,
    older_than_h: Annotated[
        float | None,
        typer.Option("--older-than-h", min=0, help="Delete files unchanged for this many hours."),
    ] = None,
    evict: Annotated[
        list[str] | None,
        typer.Option("--evict", help="Also delete what this task needs; it stops with MR-2014."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Delete relay files, oldest first: by default all that are published. A file that a task needs is never deleted.

    The worker that runs the set's tasks deletes them. If a file is needed again, it is read from the source.
    """
    from producer.relay.control import PurgeRequest, find_file, find_subdir, request_purge

    if sum((bool(filename or sub_dir), inactive, older_than_h is not None)) > 1:
        message = "--filename with --sub-dir, --inactive and --older-than-h exclude each other"
        raise Fatal("MR-2013", message)
    root = relay_dir / set_name
    until = None
    if filename:
        until = find_file(root, f"{sub_dir}/{filename}" if sub_dir else filename)
    elif inactive or sub_dir:
        until = find_subdir(root, sub_dir)
    age_s = None if older_than_h is None else older_than_h * 3600
    answer = request_purge(root, PurgeRequest(until, age_s, tuple(evict or ())))
    if as_json:
        plain = {"deleted": answer.deleted, "oldest": answer.oldest, "evicted": answer.evicted}
        print(json.dumps(plain))
        return
    for task, gtid_set in answer.evicted.items():
        print(f"evicted {task}, which had published {gtid_set or 'nothing'}")
    for file in answer.deleted:
        print(f"deleted {file}")
    print(f"{len(answer.deleted)} files deleted; the oldest remaining file is {answer.oldest}")
