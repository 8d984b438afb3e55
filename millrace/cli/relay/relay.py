"""``millrace relay``: commands about the files, on the worker's machine; the others through ZooKeeper.

``purge`` asks the worker. ``list``, ``verify``, ``dump`` and ``serve`` read the files, with or without a running
worker, and change nothing. ``start|stop|pause|resume|status`` are in ``millrace.cli.relay.service``.
"""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.exits import Finding
from millrace.cli.relay import service
from millrace.cli.relay.serve import serve
from millrace.errors import Fatal
from millrace.wording import counted

if TYPE_CHECKING:
    from millrace.producer.convert.dump import EventHead
    from millrace.producer.relay.survey import ListedFile, Survey
    from millrace.schemas.place import Coordinates

SetName = Annotated[str, typer.Argument(metavar="SET", help="The set.", show_default=False)]
RelayDir = Annotated[
    Path, typer.Option("--relay-dir", help="The directory given to `millrace worker`.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

app = typer.Typer(
    no_args_is_help=True,
    help="Start, stop and show a set's relay; list, verify, dump, serve and purge its files.",
)
for command in (
    service.start,
    service.stop,
    service.pause,
    service.resume,
    service.status,
    serve,
):
    app.command()(command)


@app.callback()
def _group() -> None:
    """Start, stop and show a set's relay; list, verify, dump, serve and purge its files on the worker's machine."""


@app.command()
def purge(
    set_name: SetName,
    *,
    relay_dir: Annotated[
        Path | None,
        typer.Option(
            "--relay-dir",
            help="The directory given to `millrace worker`. Without it, the request goes through ZooKeeper.",
        ),
    ] = None,
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
    from millrace.producer.relay.control import PurgeRequest, request_purge

    if sum((bool(filename or sub_dir), inactive, older_than_h is not None)) > 1:
        message = "--filename or --sub-dir, --inactive, and --older-than-h exclude each other"
        raise Fatal("MR-2013", message).name(set=set_name)
    request = PurgeRequest(
        filename=filename,
        sub_dir=sub_dir,
        is_inactive=inactive,
        age_s=None if older_than_h is None else older_than_h * 3600,
        evict=tuple(evict or ()),
    )
    if relay_dir is None:
        answer = service.request_purge_from_afar(set_name, request)
    else:
        answer = request_purge(relay_dir / set_name, request)
    if as_json:
        plain = {"deleted": answer.deleted, "oldest": answer.oldest, "evicted": answer.evicted}
        print(json.dumps(plain))
        return
    for task, gtid_set in answer.evicted.items():
        print(f"evicted {task}, which had published {gtid_set or 'nothing'}")
    for file in answer.deleted:
        print(f"deleted {file}")
    print(
        f"{counted(len(answer.deleted), 'file')} deleted; the oldest remaining file is {answer.oldest}"
    )
    if not answer.deleted:
        print(f"`millrace relay status {set_name}` shows which tasks need files")


@app.command(name="list")
def list_(set_name: SetName, *, relay_dir: RelayDir, as_json: Json = False) -> None:
    """List the files with their bytes and GTIDs, the active one, and the tasks that need them.

    The tasks are known if MILLRACE_ZOOKEEPER is set.
    """
    from millrace.producer.relay.evictions import read_evictions
    from millrace.producer.relay.survey import Survey

    survey = Survey(relay_dir / set_name)
    listed = survey.list_files()
    needed = survey.needed_by(listed, _positions(set_name))
    plain = [_plain_file(survey, file, needed) for file in listed]
    if as_json:
        evicted = sorted(read_evictions(survey.root))
        print(json.dumps({"set": set_name, "files": plain, "evicted": evicted}))
        return
    subdir = ""
    for each in plain:
        name = f"{each['subdir']}/{each['file']}"
        if each["subdir"] != subdir:
            subdir = str(each["subdir"])
            print(f"{subdir}")
        marks = [word for word in ("active", "packed") if each[word]]
        tasks = ", ".join(sorted(task for task, place in needed.items() if place == name))
        marks += [f"needed by {tasks}"] if tasks else []
        print(
            f"  {each['file']:<24} {each['bytes']:>14,}  {each['gtids'] or '-'}"
            f"{'  ' + '; '.join(marks) if marks else ''}"
        )


@app.command()
def verify(set_name: SetName, *, relay_dir: RelayDir, as_json: Json = False) -> None:
    """Verify every event of every file. Names each damaged place and the GTIDs that it affects, and exits with 1."""
    from millrace.producer.relay.survey import Survey

    verdict = Survey(relay_dir / set_name).verify()
    bad = len(verdict.damages) + len(verdict.problems)
    if as_json:
        damages = [
            {
                "subdir": damage.at.subdir,
                "file": damage.at.file,
                "pos": damage.at.pos,
                "why": damage.why,
                "after": None if damage.lost.after is None else str(damage.lost.after),
                "through": None if damage.lost.through is None else str(damage.lost.through),
                "gtids": str(damage.lost),
            }
            for damage in verdict.damages
        ]
        print(
            json.dumps(
                {
                    "whole": not bad,
                    "files": verdict.files,
                    "bytes": verdict.bytes,
                    "gtid_set": verdict.position,
                    "damages": damages,
                    "problems": verdict.problems,
                    "notes": verdict.notes,
                }
            )
        )
    else:
        for line in (*verdict.damages, *verdict.problems, *verdict.notes):
            print(line)
        print(
            f"{counted(verdict.files, 'file')}, {counted(verdict.bytes, 'byte')}, up to {verdict.position or '-'}"
        )
    if bad:
        raise Finding(Fatal("MR-2004", f"{counted(bad, 'problem')} in the relay log of {set_name}"))


@app.command()
def dump(
    set_name: SetName,
    *,
    relay_dir: RelayDir,
    start: Annotated[
        str, typer.Option("--from", help="The first place: FILE, SUBDIR/FILE, with :POS or not.")
    ] = "",
    end: Annotated[str, typer.Option("--to", help="The place to stop before, as in --from.")] = "",
    gtid: Annotated[str, typer.Option("--gtid", help="Only these source transactions.")] = "",
    raw: Annotated[
        bool, typer.Option("--raw", help="Write the bytes, for `mysqlbinlog -`.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Print the events: position, type, server id, GTID, table and row count, as mysqlbinlog's heads."""
    from millrace.producer.convert.dump import Bounds, event_heads, raw_bytes
    from millrace.producer.relay.survey import Survey
    from millrace.schemas.gtid import Flavour, parse_gtid, parse_gtid_set

    survey = Survey(relay_dir / set_name)
    wanted = parse_gtid_set(survey.flavour, gtid) if gtid else None

    named = set("".join(gtid.split()).split(","))

    def is_wanted(text: str) -> bool:
        if wanted is None or survey.flavour is Flavour.MARIADB:
            return wanted is None or text in named  # its sets would include all earlier ones
        return wanted.covers(parse_gtid(survey.flavour, text))

    first = _place(survey, start) if start else None
    bounds = Bounds(first, _place(survey, end) if end else None, is_wanted)
    if raw:
        for piece in raw_bytes(survey, bounds):
            sys.stdout.buffer.write(piece)
        return
    for head in event_heads(survey, bounds):
        print(_plain_event(head) if as_json else _event_line(head))


def _positions(set_name: str) -> dict[str, str]:
    """The published positions of the set's tasks; empty, with a note, if ZooKeeper is not there."""
    from millrace.cli.control import control
    from millrace.errors import MillraceError

    try:
        with control() as now:
            return dict(now.store.positions_of(set_name))
    except MillraceError as error:
        print(f"the tasks are unknown: {error}", file=sys.stderr)
        return {}


def _plain_file(
    survey: "Survey", file: "ListedFile", needed: dict[str, str]
) -> dict[str, "str | int | bool | list[str]"]:
    from millrace.producer.relay.damage import GtidInterval

    name = f"{file.at.subdir}/{file.at.file}"
    is_known = file.before is not None and file.through is not None
    return {
        "subdir": file.at.subdir,
        "server": file.at.subdir.rpartition(".")[0],
        "file": file.at.file,
        "bytes": file.stored_bytes,
        "packed": file.is_packed,
        "active": file.is_active,
        "first_gtid": survey.first_gtid(file),
        "gtids": str(GtidInterval(file.before, file.through)) if is_known else "",
        "gtid_set": str(file.through) if file.through is not None else "",
        "needed_by": sorted(task for task, place in needed.items() if place == name),
    }


def _place(survey: "Survey", text: str) -> "Coordinates":
    from millrace.producer.relay.control import find_file

    name, colon, pos = text.rpartition(":")
    if not colon:
        return find_file(survey.root, text)
    if not (pos.isascii() and pos.isdigit()):
        raise Fatal("MR-2013", f"{text!r} is not FILE, SUBDIR/FILE, FILE:POS or SUBDIR/FILE:POS")
    return find_file(survey.root, name).at(int(pos))


def _plain_event(head: "EventHead") -> str:
    plain: dict[str, str | int] = {
        "subdir": head.at.subdir,
        "file": head.at.file,
        "pos": head.at.pos,
        "end_pos": head.end_pos,
        "type": head.type,
        "server_id": head.server_id,
        "timestamp_s": head.timestamp_s,
    }
    return json.dumps(plain | head.fields, ensure_ascii=False)


def _event_line(head: "EventHead") -> str:
    fields = " ".join(f"{name} {value}" for name, value in head.fields.items())
    return (
        f"{head.at} end_log_pos {head.end_pos} server id {head.server_id}"
        f" {head.type}{'  ' + fields if fields else ''}"
    )
