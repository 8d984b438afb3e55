"""``millrace cluster show | raise-generation``: the generation, the high bits of all epochs."""

import typer

from millrace.cli.control import control
from zk.lease.epoch import generation_of, raise_generation

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Show the generation; raise it after ZooKeeper was rebuilt.",
)


@app.command()
def show() -> None:
    """Print the cluster's generation."""
    with control() as now:
        print(f"cluster {now.tree.cluster} generation {generation_of(now.session, now.tree)}")


@app.command("raise-generation")
def raise_generation_command() -> None:
    """After ZooKeeper was rebuilt or restored: make new epochs greater than all earlier ones.

    If ZooKeeper lost all data, the generation is 1 again: raise it as often as it had been raised before, and once
    more. First make sure that no other cluster runs the same tasks.
    """
    with control() as now:
        print(f"cluster {now.tree.cluster} generation {raise_generation(now.session, now.tree)}")
