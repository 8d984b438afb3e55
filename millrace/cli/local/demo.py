"""``millrace demo``: runs everything on this machine for half a minute."""

import os
import sys
from typing import Annotated

import typer

from millrace.cli.local.stack import Flavour, Mysqld, Secure

Duration = Annotated[float, typer.Option("--duration", help="Seconds of workload.")]
Seed = Annotated[int, typer.Option(help="Seed of the workload's random choices.")]


def demo(
    *,
    flavour: Flavour = "",
    mysqld: Mysqld = None,
    secure: Secure = False,
    duration: Duration = 10.0,
    seed: Seed = 1,
) -> None:
    """Start everything, change rows, watch them arrive, compare. Exit code 1 on any difference."""
    from millrace.deploy.demo.run import run_demo
    from millrace.deploy.local.stack import StackOptions
    from millrace.deploy.servers.programs import MYSQLD_ENVIRONMENT
    from millrace.schemas.gtid import Flavour as ServerFlavour

    if mysqld is not None:
        os.environ[MYSQLD_ENVIRONMENT] = str(mysqld.absolute())
    default = ServerFlavour.MYSQL if os.environ.get(MYSQLD_ENVIRONMENT) else ServerFlavour.MARIADB
    given = ServerFlavour(flavour) if flavour else default
    options = StackOptions(flavour=given, is_secured=secure)
    sys.exit(run_demo(options, duration_s=duration, seed=seed))
