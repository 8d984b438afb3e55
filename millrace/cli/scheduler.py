"""``millrace scheduler``: runs a scheduler until SIGTERM. Several may run; one leads."""

import sys

import typer

from millrace.cli.options import Http
from millrace.http import open_page
from millrace.process.privacy import keep_private
from millrace.zk.lease.membership import process_name
from millrace.zk.run.worker import run_scheduler


def scheduler(
    name: str = typer.Option(
        "", help="The scheduler's name in `millrace status`; host-pid by default."
    ),
    http: Http = "",
) -> None:
    """Run a scheduler, which assigns tasks to workers. Several may run; one leads. SIGTERM shuts it down cleanly."""
    scheduler_name = process_name(name)
    keep_private()
    with open_page(http) as page:
        status = run_scheduler(name=scheduler_name, page=page)
    sys.exit(status)
