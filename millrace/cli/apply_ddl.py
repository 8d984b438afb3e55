"""``millrace apply-ddl TASK --seq N --done|--execute``: the operator resolves a blocked DDL statement."""

from typing import Annotated

import typer

from millrace.cli.control import control

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


@app.command("apply-ddl")
def apply_ddl(task: str, *, seq: Seq, done: Done = False, execute: Execute = False) -> None:
    """Record on the target that a blocked DDL statement is done, or must be executed.

    Then run `millrace task resume TASK`.
    """
    from consumer.streams.state import stream_with
    from consumer.streams.view import is_side
    from consumer.target.connection import connect
    from consumer.target.members import primary_member
    from consumer.target.progress import decide_intent
    from millrace.errors import Fatal
    from schemas.documents import ApplyTask

    if done == execute:
        raise typer.BadParameter("give either --done or --execute")
    with control() as cluster:
        document = cluster.store.task_entry(task).document
        if not isinstance(document, ApplyTask):
            raise Fatal("MR-5043", f"{task} is not an apply task")
        endpoint = primary_member(cluster.store.set_entry(document.target).document)
    session = connect(endpoint)
    try:
        stream = stream_with(session, "ddl_intent", task, seq)
        decide_intent(session, stream, seq=seq, decision="done" if done else "execute")
    finally:
        session.close()
    where = " of the tables that are loaded" if is_side(stream) else ""
    print(
        f"{task}: seq {seq}{where} {'is done' if done else 'will be executed'};"
        f" now `millrace task resume {task}`"
    )
