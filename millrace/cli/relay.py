"""``millrace relay purge``: delete relay files that nobody needs any more, on the machine of the worker."""

import json
from pathlib import Path
from typing import Annotated

import typer

from millrace.errors import Fatal

app = typer.Typer(no_args_is_help=True, help="A worker's relay logs, on its machine.")


@app.callback()
def _group() -> None:
    """A worker's relay logs, on its machine."""


@app.command()
def purge(
    set_name: Annotated[str, typer.Argument(metavar="SET", help="Whose.", show_default=False)],
    *,
    relay_dir: Annotated[Path, typer.Option("--relay-dir", help="As given to `millrace worker`.")],
    until: Annotated[
        str,
        typer.Option(
            help="Up to this file, which stays: mysql-bin.000017 or SUBDIR/mysql-bin.000017."
        ),
    ] = "",
    older_than_h: Annotated[
        float | None, typer.Option("--older-than-h", min=0, help="Unchanged for so many hours.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
) -> None:
    """Delete relay files, oldest first: by default all that are published; never one that a task still needs.

    The worker that runs the set's tasks does it. What is needed again later comes from the source.
    """
    from producer.relay.request import PurgeRequest, ask_purge, find_file

    if until and older_than_h is not None:
        raise Fatal("MR-2013", "--until and --older-than-h name two ends")
    root = relay_dir / set_name
    request = PurgeRequest(
        find_file(root, until) if until else None,
        None if older_than_h is None else older_than_h * 3600,
    )
    answer = ask_purge(root, request)
    if as_json:
        print(json.dumps({"deleted": answer.deleted, "oldest": answer.oldest}))
        return
    for place in answer.deleted:
        print(f"deleted {place}")
    print(f"{len(answer.deleted)} files deleted; the oldest that is left is {answer.oldest}")
