"""``millrace up`` and ``millrace down``: a local stack, in the background on this machine."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from millrace.home_folder import STACK, local_stack_folder


def _stack_name(name: str) -> str:
    """Refuses an invalid name: `down` removes the folder of this name."""
    try:
        local_stack_folder(name)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    return name


def known_flavour(name: str) -> str:
    """Refuses an unknown flavour. "" means the default."""
    if name not in ("", "mariadb", "mysql"):
        raise typer.BadParameter(f"{name!r} is not mariadb or mysql")
    return name


Flavour = Annotated[
    str,
    typer.Option(help="mariadb, or mysql (the server in the cache).", callback=known_flavour),
]
Mysqld = Annotated[
    Path | None, typer.Option(help="The MySQL server program to use; implies --flavour mysql.")
]
Secure = Annotated[
    bool, typer.Option("--secure", help="TLS and logins everywhere; needs the program openssl.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object with all addresses.")]
Name = Annotated[
    str,
    typer.Option(
        help="The local stack's name; several may run side by side.",
        callback=_stack_name,
        envvar=STACK,
    ),
]
Keep = Annotated[bool, typer.Option("--keep", help="Keep its data and logs.")]


def up(
    *,
    flavour: Flavour = "",
    mysqld: Mysqld = None,
    secure: Secure = False,
    as_json: Json = False,
    name: Name = "local",
) -> None:
    """Start servers and Millrace in the background; returns when everything runs. A running stack is not changed.

    A keeper process restarts every process of the stack that ends. `millrace down` stops all of them.
    """
    from millrace.deploy.local.background import start_background
    from millrace.deploy.local.stack import StackOptions
    from millrace.deploy.servers.programs import MYSQLD_ENVIRONMENT
    from millrace.schemas.gtid import Flavour as ServerFlavour

    if mysqld is not None:
        os.environ[MYSQLD_ENVIRONMENT] = str(mysqld.absolute())
    default = ServerFlavour.MYSQL if os.environ.get(MYSQLD_ENVIRONMENT) else ServerFlavour.MARIADB
    chosen = ServerFlavour(flavour) if flavour else default

    def say(text: str) -> None:
        typer.echo(text, err=as_json)

    description = start_background(name, StackOptions(flavour=chosen, is_secured=secure), say=say)
    if as_json:
        typer.echo(json.dumps(description.as_json(), indent=2))
    else:
        typer.echo(description.as_text(name))


def down(*, name: Name = "local", keep: Keep = False) -> None:
    """Stop a local stack and delete all its files."""
    from millrace.deploy.local.background import end_background

    typer.echo("stopped" if end_background(name, keep=keep) else "nothing was running")
