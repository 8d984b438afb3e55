"""``millrace cluster show | raise-generation``: the ensemble's generation, above which all epochs stand."""

import typer

from millrace.cli.control import control
from zk.epoch import generation_of, raise_generation

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="The cluster's own node: the ensemble's generation.",
)


@app.command()
def show() -> None:
    """Print the generation."""
    with control() as now:
        print(f"cluster {now.tree.cluster} generation {generation_of(now.session, now.tree)}")


@app.command("raise-generation")
def raise_it() -> None:
    """After the ensemble was rebuilt or restored: epochs given from now on are above all given before.

    An ensemble that lost everything begins with generation 1 again: raise it as often as it had been raised, and once
    more. Make sure first that no other cluster runs the same tasks.
    """
    with control() as now:
        print(f"cluster {now.tree.cluster} generation {raise_generation(now.session, now.tree)}")
