"""``millrace bench``: measures Millrace and its peers; prints JSON lines."""

from typing import Annotated

import typer

from millrace.cli.local import known_flavour

Flavour = Annotated[str, typer.Option(help="mariadb or mysql.", callback=known_flavour)]
Changes = Annotated[
    int, typer.Option(help="Row changes in the bulk measurements; a multiple of 3,000.")
]


def bench(*, flavour: Flavour = "mysql", changes: Changes = 600_000) -> None:
    """Measure capture, apply and their peers. Takes several minutes."""
    from deploy.bench.run import run_bench
    from schemas.gtid import Flavour as ServerFlavour

    run_bench(ServerFlavour(flavour), changes=changes)
