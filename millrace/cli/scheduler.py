"""``millrace scheduler``: run a scheduler until SIGTERM. Several may run; one leads."""

import sys

import typer

from zk.worker import run_scheduler


def scheduler(
    name: str = typer.Option("", help="Its name in `millrace status`; host-pid by default."),
) -> None:
    """Run a scheduler: assigns tasks to workers. Several may run, one leads; SIGTERM ends it in order."""
    sys.exit(run_scheduler(name=name))
