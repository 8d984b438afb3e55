"""``millrace relay serve SET --listen HOST:PORT``: serves a relay log to replicas, until SIGTERM or Ctrl-C.

Prints one line of JSON, ``{"serve": "127.0.0.1:3307"}``, when it accepts clients.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.options import Http
from millrace.errors import Fatal
from millrace.process.privacy import keep_private
from millrace.process.signals import stop_on_signals

if TYPE_CHECKING:
    from millrace.schemas.documents.secret import SecretReference

_PORT_MAX = 65535


def serve(
    set_name: Annotated[str, typer.Argument(metavar="SET", help="The set.", show_default=False)],
    *,
    relay_dir: Annotated[
        Path, typer.Option("--relay-dir", help="The directory given to `millrace worker`.")
    ],
    listen: Annotated[
        str, typer.Option("--listen", help="HOST:PORT; port 0 takes a free one.")
    ] = "127.0.0.1:3307",
    user: Annotated[str, typer.Option("--user", help="The account of the clients.")] = "replica",
    password: Annotated[
        str,
        typer.Option(
            "--password",
            help="Where its password is: env:NAME or file:/PATH. Without it, any password is accepted.",
        ),
    ] = "",
    tls_cert: Annotated[
        Path | None,
        typer.Option("--tls-cert", help="Certificate (PEM): clients must then use TLS."),
    ] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="Its key (PEM).")] = None,
    connections_max: Annotated[
        int, typer.Option("--connections-max", min=1, help="Clients at the same time.")
    ] = 100,
    http: Http = "",
) -> None:
    """Serve the relay log over the MySQL replication protocol: replicas and mysqlbinlog leave the source alone."""
    from millrace.http import Probes, open_page
    from millrace.producer.serve.login import ServedAccount
    from millrace.producer.serve.server import RelayServer, ServeOptions

    keep_private()
    host, port = parse_address(listen)
    options = ServeOptions(
        host=host,
        port=port,
        account=ServedAccount(user, _secret(password)),
        certificate=tls_cert,
        key=tls_key,
        connections_max=connections_max,
    )
    server = RelayServer(relay_dir / set_name, options)
    stop = stop_on_signals()
    with open_page(http) as page:

        def ready() -> None:
            page.show(Probes(hung=server.hung))
            print(json.dumps({"serve": server.address}), flush=True)

        server.run(stop, ready=ready)


def parse_address(text: str) -> tuple[str, int]:
    """HOST:PORT or [HOST]:PORT. Fatal MR-2022."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) <= _PORT_MAX):
        raise Fatal("MR-2022", f"--listen {text!r} is not HOST:PORT")
    return host, int(port)


def _secret(text: str) -> "SecretReference | None":
    from millrace.schemas.documents.secret import SecretReference, resolve_secret

    if not text:
        return None
    reference = SecretReference.parse(text)
    if reference is None:  # it may be the password itself, so it is not shown
        raise Fatal("MR-2022", "--password is not a reference: env:NAME or file:/PATH")
    resolve_secret(reference)  # a missing one is reported now, not to the first client
    return reference
