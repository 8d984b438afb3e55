"""``millrace conflict list|show|replay|discard TASK``: the changes that did not fit the target's row.

The commands connect to the primary of the task's target set. ``list`` and ``show`` only read. All find the
conflicts of both streams of the task: ``main``, and ``load``, which applies the tables that are loaded later.
"""

import base64
import json as json_module
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.cli.control import Control, console, control, new_table, print_json
from millrace.cli.target import known_target, target_endpoint, target_session
from millrace.errors import Fatal
from millrace.schemas.status import TaskState
from millrace.wording import counted

if TYPE_CHECKING:
    from millrace.consumer.target.conflicts import StoredConflict
    from millrace.consumer.write.resolve_conflict import Discarded
    from millrace.drivers.mysql.connection import Endpoint, MySqlSession

NOT_FOUND = "MR-5061"
OPERATIONS = {"c": "insert", "u": "update", "d": "delete"}

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Show changes that did not fit the target's row; apply them again, or discard them.",
)

Task = Annotated[str, typer.Argument(help="The apply task.", show_default=False)]
Seq = Annotated[int, typer.Argument(min=1, help="The seq of the change.", show_default=False)]
Seqs = Annotated[
    list[int], typer.Argument(min=1, help="The seqs of the changes.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_(
    task: Task,
    *,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="The number to print.")] = 100,
    first: Annotated[int, typer.Option("--from", min=0, help="Begin at this seq.")] = 0,
    json: Json = False,
) -> None:
    """List conflicts in the order of the source's changes, one line each."""
    from millrace.consumer.target.conflicts import count_conflicts, list_conflicts
    from millrace.consumer.target.load_range import streams_of

    with control() as now, _reading(now, task) as session:
        streams = streams_of(task)
        count = count_conflicts(session, streams)
        found = list_conflicts(session, streams, first_seq=first, limit=limit)
    if json:
        print_json([_head(stored) for stored in found])
        return
    table = new_table("SEQ", "STREAM", "TIME", "DECISION", "CHANGE", "TABLE", "WHY")
    for stored in found:
        conflict = stored.conflict
        change = OPERATIONS.get(conflict.op, conflict.op)
        head = (str(conflict.seq), _stream(stored), _time(stored.at), stored.decision, change)
        table.add_row(*head, _printable(conflict.shown_table), _printable(conflict.why))
    out = console()
    out.print(table if found else "no conflicts")
    if len(found) < count:
        out.print(f"{len(found)} of {count}; `--from SEQ` and `--limit N` show others")


@app.command()
def show(task: Task, seq: Seq, *, json: Json = False) -> None:
    """Show one conflict: the change, the target's rows in its way, the reason and the decision."""
    from millrace.consumer.target.conflicts import read_conflict, schema_of
    from millrace.consumer.target.streams import stream_with
    from millrace.consumer.topic.tail import as_json
    from millrace.schemas.record.record import KnownSchemas, RowRecord, decode_record

    with control() as now, _reading(now, task) as session:
        stored = read_conflict(session, stream_with(session, "conflict", task, seq), seq)
        text = schema_of(session, stored.stream, stored.conflict)
    record = decode_record(None, stored.conflict.record, KnownSchemas(lambda _: text))
    assert isinstance(record, RowRecord)
    target_rows = json_module.loads(stored.conflict.target_rows or "null")
    change = record.change
    if json:
        shown = as_json(0, 0, record)
        wanted = ("before", "after", "source", "op", "ts_ms", "transaction")
        plain = {name: shown[name] for name in wanted}
        print_json(_head(stored) | {"record": plain, "target_rows": target_rows})
        return
    _print_head(task, stored)
    count = len(target_rows or [])
    numbered = [f"TARGET {number + 1}" if count > 1 else "TARGET" for number in range(count)]
    table = new_table("COLUMN", "BEFORE", "AFTER", *numbered)
    images: list[Mapping[str, Any] | None] = [change.before, change.after, *(target_rows or [])]
    names = dict.fromkeys(name for image in images for name in image or {})
    for name in names:
        table.add_row(_printable(name), *(_shown(image, name) for image in images))
    console().print("", table)
    if target_rows is None:
        print("the target's rows in the way are not known")
    elif not target_rows:
        print("no row of the target was in the way")


@app.command()
def replay(task: Task, seqs: Seqs) -> None:
    """Apply resolved changes again, as they are in the topic, and delete their conflicts. The task may run.

    Later changes of the same rows are not repeated. A row that is kept aside is applied with all changes that are kept
    because of it, in order, all or none.
    """
    from millrace.consumer.write.resolve_conflict import replay as replay_one

    with control() as now:
        endpoint = target_endpoint(now, task, code=NOT_FOUND)
    with known_target(task, code=NOT_FOUND):
        for stream, found in _by_stream(endpoint, task, seqs).items():
            done = set[int]()
            for seq in found:
                for each in [] if seq in done else replay_one(endpoint, stream, seq):
                    print(f"{task}: seq {each} applied")
                    done.add(each)


@app.command()
def discard(
    task: Task,
    seqs: Annotated[
        list[int] | None, typer.Argument(min=1, help="The seqs of the changes.", show_default=False)
    ] = None,
    *,
    every: Annotated[
        bool, typer.Option("--all", help="Delete every resolved conflict that the task has passed.")
    ] = False,
) -> None:
    """Delete conflicts. A change that blocks the task is left out when the task resumes."""
    from millrace.consumer.target.load_range import streams_of
    from millrace.consumer.write.resolve_conflict import discard as discard_these
    from millrace.consumer.write.resolve_conflict import discard_resolved

    if every == bool(seqs):
        raise typer.BadParameter("give either SEQ or --all")
    with control() as now:
        endpoint = target_endpoint(now, task, code=NOT_FOUND)
        with known_target(task, code=NOT_FOUND):
            if every:
                counts = [discard_resolved(endpoint, stream) for stream in streams_of(task)]
                count, kept = map(sum, zip(*counts, strict=True))
                print(f"{task}: {_conflicts(count)} discarded")
                if kept:
                    print(f"{task}: {_conflicts(kept)} kept; {_not_passed(task)}")
                return
            by_stream = _by_stream(endpoint, task, seqs or [])
            _check_stopped(now, endpoint, task, by_stream)
            discarded = {
                stream: discard_these(endpoint, stream, found)
                for stream, found in by_stream.items()
            }
    for stream, found in by_stream.items():
        for seq in found:
            print(f"{task}: seq {seq} {_done(discarded[stream], task, seq)}")


def _done(discarded: "Discarded", task: str, seq: int) -> str:
    if seq in discarded.left_out:
        return f"will be left out; now `millrace task resume {task}`"
    if seq in discarded.kept:
        return f"is left out already, its conflict is kept; {_not_passed(task)}"
    return "discarded"


def _by_stream(endpoint: "Endpoint", task: str, seqs: Sequence[int]) -> dict[str, list[int]]:
    """The seqs in their order, by the stream that has stored the conflict. Fatal MR-5061 if one does not exist."""
    from millrace.consumer.target.conflicts import read_conflict
    from millrace.consumer.target.streams import stream_with

    found: dict[str, list[int]] = {}
    with target_session(endpoint, task, code=NOT_FOUND) as session:
        for seq in sorted(set(seqs)):
            stream = stream_with(session, "conflict", task, seq)
            found.setdefault(read_conflict(session, stream, seq).stream, []).append(seq)
    return found


def _conflicts(count: int) -> str:
    return counted(count, "conflict")


def _not_passed(task: str) -> str:
    return f"the task has not passed it yet: `millrace task resume {task}` if it is stopped"


@contextmanager
def _reading(now: Control, task: str) -> Iterator["MySqlSession"]:
    endpoint = target_endpoint(now, task, code=NOT_FOUND, for_writing=False)
    with target_session(endpoint, task, code=NOT_FOUND) as session:
        yield session


def _check_stopped(
    now: Control, endpoint: "Endpoint", task: str, by_stream: Mapping[str, Sequence[int]]
) -> None:
    """Fatal MR-5063 if one of these changes blocks the task and the task has not stopped."""
    from millrace.consumer.target.conflicts import STOP, read_conflict
    from millrace.zk.view import read_cluster, status_of

    with target_session(endpoint, task, code=NOT_FOUND) as session:
        decisions = {
            read_conflict(session, stream, seq).decision
            for stream, seqs in by_stream.items()
            for seq in seqs
        }
    if STOP not in decisions:
        return
    state = status_of(task, now.store.task_entry(task), read_cluster(now.session, now.tree)).state
    if state not in (TaskState.BLOCKED, TaskState.PAUSED):
        raise Fatal("MR-5063", f"{task} is {state.value}", task=task)


def _head(stored: "StoredConflict") -> dict[str, object]:
    conflict = stored.conflict
    return {
        "seq": conflict.seq,
        "stream": _stream(stored),
        "gtid": conflict.gtid,
        "time": _time(stored.at),
        "decision": stored.decision,
        "op": conflict.op,
        "table": conflict.table,
        "target_table": conflict.target_table or conflict.table,
        "why": conflict.why,
    }


def _print_head(task: str, stored: "StoredConflict") -> None:
    conflict, change = stored.conflict, OPERATIONS.get(stored.conflict.op, stored.conflict.op)
    meaning = {
        "stop": f"stop: the task is blocked at this change. `millrace task resume {task}` tries it again,"
        f" `millrace conflict discard {task} {conflict.seq}` leaves it out.",
        "aside": f"aside: kept with all later changes of its keys. `millrace conflict replay {task} {conflict.seq}`"
        " applies them in order, `discard` leaves only this change out.",
        "skip": "skip: the target's row is unchanged",
        "overwrite": "overwrite: the source's row replaced the target's",
    }
    for name, value in (
        ("change", f"{change} of {conflict.shown_table}"),
        ("seq", f"{conflict.seq}, GTID {conflict.gtid}"),
        ("stream", _stream(stored)),
        ("time", _time(stored.at) or "unknown"),
        ("why", conflict.why),
        ("decision", meaning.get(stored.decision, stored.decision)),
    ):
        print(f"{name:<10}{_printable(value)}")


def _stream(stored: "StoredConflict") -> str:
    from millrace.consumer.target.load_range import is_side

    return "load" if is_side(stored.stream) else "main"


def _time(at: str) -> str:
    """ISO 8601 in UTC; "" if unknown."""
    return f"{at.replace(' ', 'T')}Z" if at else ""


def _shown(image: Mapping[str, Any] | None, name: str) -> str:
    from millrace.consumer.topic.tail import shown_value

    if image is None or name not in image:
        return ""
    value = image[name]
    if isinstance(
        value, dict
    ):  # of a target row: bytes in base64, with an ellipsis if they were cut
        value = base64.b64decode(value["base64"].rstrip("…"))
    return _printable(shown_value(value))


def _printable(text: str) -> str:
    from millrace.consumer.topic.tail import printable

    return printable(text)
