"""The option ``--http`` of every command that runs until a signal."""

from typing import Annotated

import typer

Http = Annotated[
    str,
    typer.Option(
        "--http",
        metavar="HOST:PORT",
        envvar="MILLRACE_HTTP",
        help="Where /metrics, /livez and /readyz answer; `none`: nowhere. By default a free port on loopback, which the"
        " log names.",
        show_default=False,
    ),
]
