"""``millrace up`` and ``millrace down``: the whole stack on this machine, in the background."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from millrace.home import local_stack_folder


def _stack_name(name: str) -> str:
    """A wrong use where it is none: the folder of this name is removed."""
    try:
        local_stack_folder(name)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    return name


def known_flavour(name: str) -> str:
    """A wrong use where it is none; "" is the default's."""
    if name not in ("", "mariadb", "mysql"):
        raise typer.BadParameter(f"{name!r} is none of mariadb, mysql")
    return name


Flavour = Annotated[
    str,
    typer.Option(help="mariadb, or mysql (the one in the cache).", callback=known_flavour),
]
Mysqld = Annotated[
    Path | None, typer.Option(help="A MySQL server program to use; implies --flavour mysql.")
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object that says where everything is.")
]
Name = Annotated[
    str,
    typer.Option(help="Which local stack; several may run side by side.", callback=_stack_name),
]
Keep = Annotated[bool, typer.Option("--keep", help="Leave its data and logs where they are.")]


def up(
    *, flavour: Flavour = "", mysqld: Mysqld = None, as_json: Json = False, name: Name = "local"
) -> None:
    """Start servers and service in the background; return when everything runs. A running stack is left as it is.

    A keeper starts again whichever of its processes dies or is killed; `millrace down` ends all of them.
    """
    from deploy.background import start_background
    from deploy.servers.programs import MYSQLD_ENVIRONMENT
    from deploy.stack import StackOptions
    from schemas.gtid import Flavour as ServerFlavour

    if mysqld is not None:
        os.environ[MYSQLD_ENVIRONMENT] = str(mysqld.absolute())
    default = ServerFlavour.MYSQL if os.environ.get(MYSQLD_ENVIRONMENT) else ServerFlavour.MARIADB
    chosen = ServerFlavour(flavour) if flavour else default

    def say(text: str) -> None:
        typer.echo(text, err=as_json)

    description = start_background(name, StackOptions(flavour=chosen), say=say)
    if as_json:
        typer.echo(json.dumps(description.as_json(), indent=2))
    else:
        typer.echo(description.as_text())


def down(*, name: Name = "local", keep: Keep = False) -> None:
    """End the stack that ``millrace up`` started, with everything it wrote."""
    from deploy.background import end_background

    typer.echo("ended" if end_background(name, keep=keep) else "nothing was running")
