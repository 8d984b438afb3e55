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
    until: Annotated[
        str,
        typer.Option(
            help="Delete the files before this one: mysql-bin.000017 or SUBDIR/mysql-bin.000017."
        ),
    ] = "",
    older_than_h: Annotated[
        float | None,
        typer.Option("--older-than-h", min=0, help="Delete files unchanged for this many hours."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Delete relay files, oldest first: by default all that are published. A file that a task needs is never deleted.

    The worker that runs the set's tasks deletes them. If a file is needed again, it is read from the source.
    """
    from producer.relay.control import PurgeRequest, find_file, request_purge

    if until and older_than_h is not None:
        raise Fatal("MR-2013", "--until and --older-than-h exclude each other")
    root = relay_dir / set_name
    request = PurgeRequest(
        find_file(root, until) if until else None,
        None if older_than_h is None else older_than_h * 3600,
    )
    answer = request_purge(root, request)
    if as_json:
        print(json.dumps({"deleted": answer.deleted, "oldest": answer.oldest}))
        return
    for file in answer.deleted:
        print(f"deleted {file}")
    print(f"{len(answer.deleted)} files deleted; the oldest remaining file is {answer.oldest}")
