"""``millrace sql source|target [-e STATEMENT]``: an SQL client on a server of the local stack."""

import os
from typing import Annotated

import typer

from millrace.cli.local.stack import Name

Where = Annotated[
    str,
    typer.Argument(help="source (its primary) or target.", metavar="source|target"),
]
Execute = Annotated[
    str, typer.Option("-e", "--execute", help="Execute this statement and exit; default: a prompt.")
]


def sql(where: Where, *, execute: Execute = "", name: Name = "local") -> None:
    """Run an SQL client on a server of the local stack, as its administrator. It needs no installed client."""
    from millrace.deploy.local.background import server_program
    from millrace.deploy.local.description import StackDescription
    from millrace.deploy.servers.client import client_command
    from millrace.errors import Fatal
    from millrace.home_folder import local_stack_folder

    if where not in ("source", "target"):
        raise typer.BadParameter(f"{where!r} is not source or target")
    folder = local_stack_folder(name)
    description, program = StackDescription.read(folder), server_program(folder)
    if description is None or program is None:
        raise Fatal("MR-8010", f"no local stack named {name} is running")
    server = description.source[0] if where == "source" else description.targets[0]
    command = client_command(
        program, server.host, server.port, user=server.user, authority=description.tls_ca
    )
    if execute:
        command += ("-e", execute)
    os.execve(command[0], command, {**os.environ, "MYSQL_PWD": server.password})
