"""``millrace set create -f FILE | list | show``: the sets, a primary and its replicas each."""

import typer

from millrace.cli.control import a_table, console, control, origin_of, plain_from_file, print_json
from schemas.documents import parse_set, plain_set, yaml_from_plain
from zk.entries import Refused, SetEntry

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="The sets: a primary and its replicas each."
)


@app.command()
def create(
    file: str = typer.Option(
        ..., "-f", "--file", help="The set document (YAML); - is the standard input."
    ),
    replace: bool = typer.Option(False, help="Put it in the place of another one of its name."),
) -> None:
    """Put a set document in place; tasks that run with it start again, blocked ones with `millrace task resume`."""
    document = parse_set(plain_from_file(file), origin=origin_of(file))
    with control() as now:
        outcome = now.store.create_set(document, replace=replace)
    print(f"set {document.name} {outcome.value}")


@app.command("list")
def list_sets(json: bool = typer.Option(False, "--json", help="One JSON array.")) -> None:
    """List all sets."""
    with control() as now:
        sets = now.store.sets()
    if json:
        print_json([_as_plain(name, entry) for name, entry in sets.items()])
        return
    table = a_table("SET", "MEMBERS", "USER", "TLS")
    for name, entry in sets.items():
        if isinstance(entry, Refused):
            table.add_row(name, str(entry.error), "", "")
            continue
        document = entry.document
        members = ", ".join(map(str, document.members))
        table.add_row(name, members, document.account.user, document.tls.mode.value)
    console().print(table if sets else "no sets: millrace set create -f FILE")


@app.command()
def show(
    name: str, json: bool = typer.Option(False, "--json", help="JSON instead of YAML.")
) -> None:
    """Print one set document."""
    with control() as now:
        plain = plain_set(now.store.set_entry(name).document)
    if json:
        print_json(plain)
    else:
        print(yaml_from_plain(plain), end="")


def _as_plain(name: str, entry: SetEntry | Refused) -> dict[str, object]:
    if isinstance(entry, Refused):
        return {"set": name, "error": str(entry.error)}
    return plain_set(entry.document)
