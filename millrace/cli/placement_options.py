"""``--label`` and ``--capacity`` of ``millrace worker`` and ``millrace apply``."""

from collections.abc import Iterable
from typing import Annotated

import typer

from millrace.errors import Fatal

Labels = Annotated[
    list[str],
    typer.Option(
        "--label", help="A label NAME=VALUE that sets and tasks may ask for; may be repeated."
    ),
]
Sets = Annotated[
    int | None,
    typer.Option("--capacity", min=1, help="The most sets that it takes; any number by default."),
]
Tasks = Annotated[
    int | None,
    typer.Option("--capacity", min=1, help="The most tasks that it takes; any number by default."),
]


def labels_of(texts: Iterable[str]) -> frozenset[str]:
    """The labels; Fatal MR-4120 for one that is malformed."""
    from schemas.documents.fields import Unreadable
    from schemas.documents.readers import label

    try:
        return frozenset(map(label, texts))
    except Unreadable as error:
        raise Fatal("MR-4120", f"--label: found {error.found}, wanted {error.wanted}") from error
