"""``millrace export [DIR]``: writes all documents as YAML files that ``millrace plan`` finds equal."""

from pathlib import Path
from typing import Annotated

import typer

from millrace.cli.control import control
from millrace.cli.documents.files import print_documents, write_documents
from millrace.wording import counted
from millrace.zk.tree.documents import plain_document
from millrace.zk.tree.entries import UnreadableEntry


def export(
    folder: Annotated[
        str,
        typer.Argument(metavar="DIR", help="A new or empty folder; - prints the documents."),
    ] = "-",
) -> None:
    """Write all sets and tasks to files: sets/NAME.yaml and tasks/NAME.yaml.

    `millrace plan -f DIR` compares them with a cluster, and creates them in it with --execute. Documents hold
    references to secrets, never secrets. Whether a task is paused is not in its document.
    """
    with control() as now:
        entries = now.store.documents().entries
    documents = []
    for key in sorted(entries):
        entry = entries[key]
        if isinstance(entry, UnreadableEntry):
            raise entry.error
        documents.append(plain_document(entry.document))
    if folder == "-":
        print_documents(documents)
        return
    count = write_documents(Path(folder), documents)
    print(f"{counted(count, 'document')} written to {folder}")
