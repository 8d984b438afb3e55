"""``millrace bench``: measures Millrace and its peers; prints JSON lines."""

from typing import Annotated

import typer

from millrace.cli.local import known_flavour

Flavour = Annotated[str, typer.Option(help="mariadb or mysql.", callback=known_flavour)]
Changes = Annotated[
    int, typer.Option(help="Row changes in the bulk measurement of capture; a multiple of 3,000.")
]
Apply = Annotated[bool, typer.Option("--apply", help="Measure apply beside its peers instead.")]
Only = Annotated[
    list[str], typer.Option("--only", help="With --apply: print this line alone; may be repeated.")
]
Scale = Annotated[
    float, typer.Option(min=0.0, help="With --apply: the factor of the sizes of all workloads.")
]
Rounds = Annotated[
    int, typer.Option(min=1, help="With --apply: a figure is the median of this many rounds.")
]


def bench(
    *,
    flavour: Flavour = "mysql",
    changes: Changes = 600_000,
    apply: Apply = False,
    only: Only = [],  # noqa: B006 - Typer copies it
    scale: Scale = 1.0,
    rounds: Rounds = 3,
) -> None:
    """Measure capture, or apply (--apply), beside their peers. Takes several minutes; --apply takes longer."""
    from deploy.bench.apply.run import run_bench_apply
    from deploy.bench.apply.size import Size
    from deploy.bench.run import run_bench
    from schemas.gtid import Flavour as ServerFlavour

    if apply:
        run_bench_apply(Size(ServerFlavour(flavour), scale, rounds), only)
    else:
        run_bench(ServerFlavour(flavour), changes=changes)
