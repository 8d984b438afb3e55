"""``millrace scheduler``: runs a scheduler until SIGTERM. Several may run; one leads."""

import sys

import typer

from zk.run.worker import run_scheduler


def scheduler(
    name: str = typer.Option(
        "", help="The scheduler's name in `millrace status`; host-pid by default."
    ),
) -> None:
    """Run a scheduler, which assigns tasks to workers. Several may run; one leads. SIGTERM shuts it down cleanly."""
    sys.exit(run_scheduler(name=name))
