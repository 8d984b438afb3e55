"""``millrace schema set | task``: prints the JSON Schema of a document, for editors."""

import json
from typing import Annotated

import typer

Kind = Annotated[str, typer.Argument(metavar="set|task", help="The kind of document.")]


def schema(kind: Kind) -> None:
    """Print the JSON Schema of a set or task document (docs/schema/)."""
    from millrace.schemas.documents.json_schema import set_schema, task_schema

    if kind not in ("set", "task"):
        raise typer.BadParameter(f"{kind!r} is not set or task")
    print(json.dumps(set_schema() if kind == "set" else task_schema(), indent=2))
