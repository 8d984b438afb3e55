"""``millrace doctor [--bundle FILE]``: the troubles of a cluster, in the order in which to fix them.

From the state of all tasks and `millrace check`.

It changes nothing. Exit code 0: nothing to fix. 1: something. With ``--bundle`` all of it goes into one file, without
secrets, for those who help.
"""

import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer

from millrace.checks.requirement import Level, Requirement
from millrace.checks.text import as_plain as check_as_plain
from millrace.cli.check.check import Use, find_requirements
from millrace.cli.check.scope import Known, scope_of, stored_documents
from millrace.cli.control import print_json
from millrace.cli.doctor.bundle import Bundle, check_new, unreadable, write_bundle
from millrace.cli.doctor.troubles import Trouble, open_doors, troubles_of
from millrace.cli.exits import ExitCode
from millrace.cli.status.json_form import as_plain as status_as_plain
from millrace.errors import MillraceError
from millrace.home_folder import local_stack_folder, local_stack_name
from millrace.schemas.documents import plain_set, plain_task, yaml_from_plain
from millrace.wording import counted
from millrace.zk.ensemble import Ensemble
from millrace.zk.view import Cluster, TaskView, read_cluster, views

CONNECT_S = 5.0
WIDTH = 80


def doctor(
    bundle: Path | None = typer.Option(
        None, "--bundle", metavar="FILE", help="Write all findings to this new zip file."
    ),
    log: list[Path] = typer.Option(
        [], "--log", help="A log file for the bundle; its last MiB. Repeatable."
    ),
    relay_dir: Path | None = typer.Option(None, help="Where the worker here keeps the relay log."),
    json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Find what to fix first. Changes nothing."""
    if bundle is not None:
        check_new(bundle)
    for missing in unreadable(log):
        print(f"warning: --log {missing}", file=sys.stderr)
    stored, ensemble, error = stored_documents(connect_timeout_s=CONNECT_S)
    cluster, found = _tasks(ensemble) if error is None else (None, [])
    scope = scope_of(stored, Known(), ())
    requirements = find_requirements(scope, ensemble, error, Use(relay_dir=relay_dir))
    troubles = troubles_of(cluster, found, requirements)
    troubles += open_doors(ensemble.access.weaknesses() if ensemble is not None else [])
    name = ensemble.tree.cluster if ensemble is not None else "unknown"
    lines = list(lines_of(name, found, requirements, troubles))
    if json:
        print_json(as_plain(name, troubles))
    else:
        print("\n".join(lines))
    if bundle is not None:
        status = status_as_plain(name, cluster, found) if cluster is not None else None
        documents = _yaml_of(stored)
        logs = [*log, *_local_logs()]
        write_bundle(
            bundle,
            Bundle(
                summary="\n".join(lines),
                status=status,
                check=check_as_plain(requirements),
                documents=documents,
                logs=logs,
            ),
        )
        if not json:
            print(f"bundle: {bundle}")
    raise typer.Exit(ExitCode.FINDING if troubles else ExitCode.DONE)


def lines_of(
    name: str,
    found: Sequence[TaskView],
    requirements: Sequence[Requirement],
    troubles: Sequence[Trouble],
) -> Iterator[str]:
    """The troubles in the order in which to fix them, for a terminal of 80 columns."""
    holds = sum(one.level is Level.OK for one in requirements)
    yield f"cluster {name}: {counted(len(found), 'task')}, {holds} of {counted(len(requirements), 'requirement')} hold"
    if not troubles:
        yield "nothing to fix"
    for number, trouble in enumerate(troubles, start=1):
        level = "warn" if trouble.is_warning else "fix "
        code = f"{trouble.code} " if trouble.code else ""
        yield from _wrapped(f"{number:3} {level} {code}{trouble.subject}: {trouble.what}", indent=9)
        yield from _wrapped(f"         {trouble.fix}", indent=9) if trouble.fix else ()


def as_plain(name: str, troubles: Sequence[Trouble]) -> dict[str, object]:
    """The value of ``--json``."""
    return {
        "cluster": name,
        "troubles": [
            {
                "level": "warn" if trouble.is_warning else "fix",
                "subject": trouble.subject,
                "code": trouble.code,
                "what": trouble.what,
                "fix": trouble.fix,
            }
            for trouble in troubles
        ],
    }


def _tasks(ensemble: Ensemble | None) -> tuple[Cluster | None, list[TaskView]]:
    if ensemble is None:
        return None, []
    try:
        session = ensemble.open(connect_timeout_s=CONNECT_S)
    except MillraceError:
        return None, []  # the check of ZooKeeper reports it
    try:
        cluster = read_cluster(session, ensemble.tree)
        return cluster, views(cluster)
    finally:
        session.close()


def _yaml_of(stored: Known) -> dict[str, str]:
    sets = {f"set-{n}": yaml_from_plain(plain_set(d)) for n, d in stored.sets.items()}
    return sets | {f"task-{n}": yaml_from_plain(plain_task(d)) for n, d in stored.tasks.items()}


def _local_logs() -> list[Path]:
    """The logs of Millrace's processes in the local stack, if one runs here."""
    return sorted(local_stack_folder(local_stack_name()).glob("millrace*/log"))


def _wrapped(text: str, *, indent: int) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
