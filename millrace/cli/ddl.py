"""``millrace ddl list|show|skip|apply|end``: statements of the source that a target waits with for an operator.

The commands connect to the primary of the task's target set. ``list`` and ``show`` only read. ``skip`` and ``apply``
store a decision there, which the task carries out when it resumes. ``end`` ends a statement that runs on the target:
nothing else does. All find the statements of both streams of a task: ``main``, and ``load``.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.control import Control, console, control, new_table, operator, print_json
from millrace.cli.target import target_endpoint, target_session
from millrace.errors import Fatal, MillraceError
from millrace.schemas.documents import ApplyTask

if TYPE_CHECKING:
    from millrace.consumer.target.intents import Intent
    from millrace.drivers.mysql.connection import MySqlSession

NOTHING_WAITS = "MR-5043"
SHOWN_CHARS = 100  # of a statement and of a reason, in a list

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Show DDL statements that block apply tasks; skip them, let them be executed, or end one.",
)

Task = Annotated[str, typer.Argument(help="The apply task.", show_default=False)]
Seq = Annotated[int, typer.Argument(min=1, help="The seq of the statement.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_(
    task: Annotated[
        str | None, typer.Argument(help="The apply task; all without it.", show_default=False)
    ] = None,
    *,
    json: Json = False,
) -> None:
    """List the statements that wait on the targets of all apply tasks, or of one."""
    from millrace.consumer.target.intents import list_intents
    from millrace.consumer.target.load_range import streams_of

    found: list[tuple[str, Intent, str]] = []
    errors: list[MillraceError] = []
    with control() as now:
        names = [task] if task is not None else _apply_tasks(now)
        for name in names:
            try:
                with _target(now, name, for_writing=False) as session:
                    intents = list_intents(session, streams_of(name))
                    found += ((name, intent, _state(session, intent)) for intent in intents)
            except MillraceError as exc:
                if task is not None or exc.code != "MR-5043":  # it has never run
                    errors.append(exc)
    if json:
        print_json([_head(name, intent, state) for name, intent, state in found])
    else:
        table = new_table("TASK", "SEQ", "STREAM", "STATE", "STATEMENT", "WHY")
        for name, intent, state in found:
            texts = (_cut(intent.sql), _cut(intent.reason))
            table.add_row(name, str(intent.seq), _stream(intent), state, *map(_printable, texts))
        console().print(table if found else "no statements wait")
    if errors:
        raise errors[0]


@app.command()
def show(task: Task, seq: Seq, *, json: Json = False) -> None:
    """Show one statement: its text unless it is hidden, why it waits, its tables before it and now, and the answers."""
    from millrace.consumer.target.table_state import read_objects

    with control() as now, _target(now, task, for_writing=False) as session:
        intent = _intent(session, task, seq)
        state = _state(session, intent)
        objects = read_objects(session, list(intent.objects))
    states = [
        {"name": name, "before": intent.objects[name], "now": text}
        for name, text in objects.items()
    ]
    answers = _answers(task, intent, state)
    if json:
        plain = {"own_sql": intent.own_sql, "server": intent.server}
        print_json(_head(task, intent, state) | plain | {"objects": states, "answers": answers})
        return
    lines = (
        ("statement", intent.sql),
        ("instead", intent.own_sql),
        ("seq", str(intent.seq)),
        ("stream", _stream(intent)),
        ("state", state),
        ("why", intent.reason),
        *(("answer", answer) for answer in answers),
    )
    for name, value in lines:
        if value:
            print(f"{name:<11}{_printable(value)}")
    for one in states:
        for when in ("before", "now"):
            print(f"\n{_printable(one['name'])} {when}:")
            print("\n".join(map(_printable, (one[when] or "missing").splitlines())))


@app.command()
def skip(
    task: Task,
    seq: Seq,
    *,
    load: Annotated[
        str,
        typer.Option(
            "--load",
            help="DATABASE.TABLE, several separated by commas: they wait for a load from here.",
        ),
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask about the load.")] = False,
) -> None:
    """Pass a blocked statement: it has been executed, its effect was made manually, or a load brings it.

    Then run `millrace task resume TASK`.
    """
    from millrace.cli.task.load import confirmed, request_of
    from millrace.consumer.load.request import store
    from millrace.consumer.target.intents import DONE, decide_intent, put_decision

    names = [part.strip() for part in load.split(",") if part.strip()]
    with control() as now, _target(now, task) as session:
        intent = _waiting(session, task, seq)
        if names:
            request = request_of(now, task, names, session)
            if not (yes or confirmed(request)):
                raise Fatal("MR-4235", f"the load of {task} was not confirmed")

            def decide() -> None:
                put_decision(session, intent.stream, seq=seq, decision=DONE)

            store(session, task, request, by=operator(), also=decide)
        else:
            decide_intent(session, intent.stream, seq=seq, decision=DONE)
    loads = f"; {', '.join(names)} will be loaded" if names else ""
    print(f"{task}: seq {seq}{_where(intent)} is skipped{loads}; now `millrace task resume {task}`")


@app.command("apply")
def apply_(
    task: Task,
    seq: Seq,
    *,
    sql: Annotated[
        str, typer.Option("--sql", help="Execute this statement in place of the source's.")
    ] = "",
) -> None:
    """Let the task execute a blocked statement, or another one with the names and columns of the target.

    Names in `--sql` have their database. Then run `millrace task resume TASK`.
    """
    from millrace.consumer.target.intents import EXECUTE, UNEXECUTABLE, decide_intent

    if sql:
        _check_own(sql)
    with control() as now, _target(now, task) as session:
        intent = _waiting(session, task, seq)
        if intent.decision == UNEXECUTABLE and not sql:
            what = f"the statement at seq {seq} is not one for the target"
            raise Fatal("MR-5044", what, task=task, seq=seq)
        decide_intent(session, intent.stream, seq=seq, decision=EXECUTE, own_sql=sql)
    what = "your statement will be executed in place of" if sql else "will execute"
    print(f"{task}: {what} seq {seq}{_where(intent)}; now `millrace task resume {task}`")


@app.command()
def end(task: Task, seq: Seq) -> None:
    """End a statement that the target executes now. The target rolls it back, and the task blocks at it."""
    from millrace.consumer.target.intents import ENDED, decide_intent
    from millrace.consumer.target.running_statement import end_statement, find_statement

    with control() as now, _target(now, task) as session:
        intent = _intent(session, task, seq)
        running = find_statement(session, intent.stream)
        if running is None:
            what = f"the target executes no statement of {task}"
            raise Fatal("MR-5043", what, task=task, seq=seq)
        decide_intent(session, intent.stream, seq=seq, decision=ENDED)  # no run executes it again
        end_statement(session, running)
    print(
        f"{task}: {running.shown()}: ended. The target rolls it back, then the task blocks at seq {seq} (MR-5040),"
        f" unless the statement was done before. Decide with `millrace ddl apply {task} {seq}` or `skip`."
    )


# ---- shared -------------------------------------------------------------------------------------------


def _apply_tasks(now: Control) -> list[str]:
    entries = sorted(now.store.tasks().items())
    documents = ((name, getattr(entry, "document", None)) for name, entry in entries)
    return [name for name, document in documents if isinstance(document, ApplyTask)]


@contextmanager
def _target(now: Control, task: str, *, for_writing: bool = True) -> Iterator["MySqlSession"]:
    endpoint = target_endpoint(now, task, code=NOTHING_WAITS, for_writing=for_writing)
    with target_session(endpoint, task, code=NOTHING_WAITS) as session:
        yield session


def _intent(session: "MySqlSession", task: str, seq: int) -> "Intent":
    from millrace.consumer.target.intents import read_intent
    from millrace.consumer.target.streams import stream_with

    return read_intent(session, stream_with(session, "ddl_intent", task, seq), seq)


def _waiting(session: "MySqlSession", task: str, seq: int) -> "Intent":
    """Fatal MR-5043 if the target executes the statement now: then its outcome decides."""
    intent = _intent(session, task, seq)
    if _state(session, intent) == "running":
        what = f"the target executes the statement at seq {seq} now"
        fix = "Wait for it: `millrace status` shows it. Or end it with `millrace ddl end TASK N`, then decide."
        raise Fatal("MR-5043", what, fix=fix, task=task, seq=seq)
    return intent


def _state(session: "MySqlSession", intent: "Intent") -> str:
    """For the operator."""
    from millrace.consumer.target.intents import DONE, EXECUTE
    from millrace.consumer.target.running_statement import find_statement

    if find_statement(session, intent.stream) is not None:
        return "running"
    decided = {DONE: "will be skipped", EXECUTE: "will be executed"}
    if intent.decision in decided:
        return decided[intent.decision]
    return "blocks the task" if intent.reason or intent.decision else "begun"


def _check_own(sql: str) -> None:
    """Fatal MR-5044 unless a crash around this text can be decided."""
    from millrace.consumer.write.ddl_outcome import is_understood
    from millrace.schemas.sql.statement import classify
    from millrace.schemas.sql.tokens import tokenize

    statement = classify(sql, "")
    marks = [token.name for token in tokenize(sql)]
    if ";" in marks[:-1]:
        raise Fatal("MR-5044", "there are several statements in --sql")
    if not is_understood(statement):
        raise Fatal("MR-5044", f"{statement.verb or 'the text of --sql'} is not a DDL statement")
    named = {name.database for name in (*statement.tables, *statement.references)}
    if "" in named:
        raise Fatal("MR-5044", "a table in --sql is named without its database")
    if "millrace" in {name.lower() for name in (*named, *statement.databases)}:
        raise Fatal("MR-5044", "the database millrace is not one of the source")


def _head(task: str, intent: "Intent", state: str) -> dict[str, object]:
    return {
        "task": task,
        "stream": _stream(intent),
        "seq": intent.seq,
        "state": state,
        "decision": intent.decision,
        "sql": intent.sql,
        "reason": intent.reason,
    }


def _answers(task: str, intent: "Intent", state: str) -> Sequence[str]:
    """The commands that decide about it."""
    from millrace.consumer.target.intents import REFUSED, UNEXECUTABLE

    place = f"{task} {intent.seq}"
    if state == "running":
        return [f"millrace ddl end {place}"]
    own = f"millrace ddl apply {place} --sql STATEMENT"
    as_it_is = [] if intent.decision == UNEXECUTABLE else [f"millrace ddl apply {place}"]
    again = [f"millrace task resume {task}"] if intent.decision == REFUSED else []
    return [*again, f"millrace ddl skip {place}", *as_it_is, own]


def _where(intent: "Intent") -> str:
    return " of the tables that are loaded" if _stream(intent) == "load" else ""


def _stream(intent: "Intent") -> str:
    from millrace.consumer.target.load_range import is_side

    return "load" if is_side(intent.stream) else "main"


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return f"{text[:SHOWN_CHARS]} …" if len(text) > SHOWN_CHARS else text


def _printable(text: str) -> str:
    from millrace.consumer.topic.tail import printable

    return printable(text)
