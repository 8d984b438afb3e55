"""``millrace apply-ddl TASK --seq N --done|--execute|--end``: the operator decides about a DDL statement.

Done and execute resolve a statement that blocks the task. End ends one that runs on the target: nothing else does.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.control import control

if TYPE_CHECKING:
    from millrace.drivers.mysql.connection import MySqlSession

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

Seq = Annotated[int, typer.Option(min=1, help="The statement's seq, from the task's status.")]
Done = Annotated[
    bool,
    typer.Option(
        "--done", help="The statement has been executed, or its effect was made manually."
    ),
]
Execute = Annotated[
    bool, typer.Option("--execute", help="Let the task execute the statement unchanged.")
]
End = Annotated[
    bool,
    typer.Option(
        "--end", help="End the statement that the target executes now. The task then blocks at it."
    ),
]


@app.command("apply-ddl")
def apply_ddl(
    task: str, *, seq: Seq, done: Done = False, execute: Execute = False, end: End = False
) -> None:
    """Record on the target that a blocked DDL statement is done, or must be executed, or end a running one.

    Then run `millrace task resume TASK`.
    """
    from millrace.consumer.target.load_range import is_side
    from millrace.consumer.target.progress import decide_intent
    from millrace.consumer.target.streams import stream_with
    from millrace.drivers.mysql.connection import connect
    from millrace.drivers.mysql.primary import primary_member
    from millrace.errors import Fatal
    from millrace.schemas.documents import ApplyTask

    if done + execute + end != 1:
        raise typer.BadParameter("give one of --done, --execute and --end")
    with control() as cluster:
        document = cluster.store.task_entry(task).document
        if not isinstance(document, ApplyTask):
            raise Fatal("MR-5043", f"{task} is not an apply task")
        endpoint = primary_member(cluster.store.set_entry(document.target).document)
    with connect(endpoint) as session:
        stream = stream_with(session, "ddl_intent", task, seq)
        if end:
            print(_ended(session, task, stream, seq))
            return
        decide_intent(session, stream, seq=seq, decision="done" if done else "execute")
    where = " of the tables that are loaded" if is_side(stream) else ""
    print(
        f"{task}: seq {seq}{where} {'is done' if done else 'will be executed'};"
        f" now `millrace task resume {task}`"
    )


def _ended(session: "MySqlSession", task: str, stream: str, seq: int) -> str:
    """End the running statement; the text for the operator. Fatal MR-5043 if the target executes none."""
    from millrace.consumer.target.progress import decide_intent
    from millrace.consumer.target.running_statement import end_statement, find_statement
    from millrace.errors import Fatal

    running = find_statement(session, stream)
    if running is None:
        raise Fatal("MR-5043", f"the target executes no statement of {task}", task=task, seq=seq)
    decide_intent(session, stream, seq=seq, decision="ended")  # no run executes it again
    end_statement(session, running)
    return (
        f"{task}: {running.shown()}: ended. The target rolls it back, then the task blocks at seq {seq} (MR-5040),"
        f" unless the statement was done before. Decide with `millrace apply-ddl {task} --seq {seq} --execute` or"
        " `--done`."
    )
