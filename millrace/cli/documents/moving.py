"""``millrace import FILE…``: documents from the configuration of Debezium, Canal, Maxwell or DM."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from millrace.cli.control import origin_of, print_json, text_from_file
from millrace.cli.documents.files import print_documents, write_documents
from millrace.errors import MillraceError
from millrace.schemas.documents import parse_set, parse_task
from millrace.schemas.moving import Draft, read_configuration
from millrace.schemas.moving.draft import Plain
from millrace.wording import counted

app = typer.Typer()


@app.command("import")
def import_configuration(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE…", help="The files of one configuration; - is standard input."
        ),
    ],
    folder: Annotated[
        str,
        typer.Option("--to", metavar="DIR", help="Write the documents here, not to the output."),
    ] = "",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Turn the configuration of another tool into documents.

    It reads a connector of Debezium (JSON, properties, Strimzi), an instance.properties of Canal with the
    canal.properties beside it, a config.properties of Maxwell, or a task of DM with the files of its sources. It
    names each setting without an equal, and what only you know. Nothing is created: `millrace plan -f DIR` does that.
    Passwords are not copied.
    """
    draft = read_configuration({origin_of(file): text_from_file(file) for file in files})
    to_fill = [*draft.to_fill, *_problems(draft)]
    if folder:
        write_documents(Path(folder), draft.documents)
    if json:
        left = [
            {"name": each.name, "value": each.value, "answer": each.answer} for each in draft.left
        ]
        print_json(
            {"tool": draft.tool, "documents": draft.documents, "no_equal": left, "to_fill": to_fill}
        )
        return
    if not folder:
        print_documents(draft.documents)
    report = sys.stdout if folder else sys.stderr
    print(f"{draft.tool}: {counted(len(draft.documents), 'document')}", file=report)
    for each in draft.left:
        print(f"  no equal: {each.name} = {each.value}\n            {each.answer}", file=report)
    for line in to_fill:
        print(f"  to fill in: {line}", file=report)


def _problems(draft: Draft) -> list[str]:
    """The reasons why a document would be refused as it is."""
    problems = []
    for plain in draft.documents:
        try:
            _parse(plain)
        except MillraceError as error:
            problems += str(error).splitlines()
    return problems


def _parse(plain: Plain) -> None:
    if "task" in plain:
        parse_task(plain, origin=f"task {plain['task']}")
    else:
        parse_set(plain, origin=f"set {plain['set']}")
