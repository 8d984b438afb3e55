"""``millrace set create -f FILE | list | show | delete | history | diff | rollback``: manages sets.

A set is a primary and its replicas.
"""

import typer

from millrace.cli.control import (
    console,
    control,
    new_table,
    origin_of,
    plain_from_file,
    print_json,
    wait_until_free,
)
from millrace.cli.history import add_history, former_document
from millrace.schemas.documents import RelayTask, SetDocument, parse_set, plain_set, yaml_from_plain
from millrace.zk.tree.documents import set_key
from millrace.zk.tree.entries import SetEntry, UnreadableEntry

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Manage sets: each is a primary and its replicas.",
)


@app.command()
def create(
    file: str = typer.Option(
        ..., "-f", "--file", help="The set document (YAML); - reads standard input."
    ),
    replace: bool = typer.Option(False, help="Replace the set of this name."),
) -> None:
    """Create a set, or replace it with --replace.

    Running tasks of the set restart. Resume blocked ones with `millrace task resume`.
    """
    document = parse_set(plain_from_file(file), origin=origin_of(file))
    with control("set create") as now:
        outcome = now.store.create_set(document, replace=replace)
    print(f"set {document.name} {outcome.value}")


@app.command("list")
def list_sets(json: bool = typer.Option(False, "--json", help="Print one JSON array.")) -> None:
    """List all sets."""
    with control() as now:
        sets = now.store.sets()
    if json:
        print_json([_as_plain(name, entry) for name, entry in sets.items()])
        return
    table = new_table("SET", "MEMBERS", "USER", "TLS")
    for name, entry in sets.items():
        if isinstance(entry, UnreadableEntry):
            table.add_row(name, str(entry.error), "", "")
            continue
        document = entry.document
        members = ", ".join(map(str, document.members))
        table.add_row(name, members, document.account.user, document.tls.mode.value)
    console().print(table if sets else "no sets: millrace set create -f FILE")


@app.command()
def show(
    name: str, json: bool = typer.Option(False, "--json", help="Print JSON instead of YAML.")
) -> None:
    """Print a set document."""
    with control() as now:
        plain = plain_set(now.store.set_entry(name).document)
    if json:
        print_json(plain)
    else:
        print(yaml_from_plain(plain), end="")


@app.command()
def delete(name: str) -> None:
    """Delete a set that no task uses. Waits until a relay that runs without tasks has stopped."""
    with control("set delete") as now:
        now.store.delete_set(name)
        wait_until_free(now, RelayTask(name).name)
    print(f"set {name} deleted")


add_history(app, "set", set_key)


@app.command()
def rollback(name: str, revision: int = typer.Argument(metavar="REV")) -> None:
    """Write a former document of a set again, as a new revision. Running tasks of the set restart."""
    with control(f"set rollback {revision}") as now:
        document = former_document(now, set_key(name), revision)
        assert isinstance(document, SetDocument), "the key of a set"
        outcome = now.store.create_set(document, replace=True)
    print(f"set {name} {outcome.value}")


def _as_plain(name: str, entry: SetEntry | UnreadableEntry) -> dict[str, object]:
    if isinstance(entry, UnreadableEntry):
        return {"set": name, "error": str(entry.error)}
    return plain_set(entry.document)
