"""``millrace bench``: measures Millrace and its peers; prints JSON lines. Wheels do not contain the benchmarks."""

from importlib.util import find_spec
from typing import Annotated

import typer

from millrace.cli.local.stack import known_flavour
from millrace.errors import Fatal

Flavour = Annotated[str, typer.Option(help="mariadb or mysql.", callback=known_flavour)]
Changes = Annotated[
    int, typer.Option(help="Row changes in the bulk measurement of capture; a multiple of 3,000.")
]
Apply = Annotated[bool, typer.Option("--apply", help="Measure apply beside its peers instead.")]
Capture = Annotated[
    bool, typer.Option("--capture", help="Measure capture alone beside its peers instead.")
]
Load = Annotated[
    bool, typer.Option("--load", help="Measure the copy of a table beside its peers instead.")
]
Compare = Annotated[bool, typer.Option("--compare", help="Measure comparisons instead.")]
Publish = Annotated[
    bool, typer.Option("--publish", help="Measure publish tasks beside their peers instead.")
]
Start = Annotated[
    bool, typer.Option("--start", help="Measure how soon a new installation shows rows instead.")
]
Only = Annotated[
    list[str],
    typer.Option(
        "--only",
        help="With one of the former options: print this line alone; may be repeated.",
    ),
]
Scale = Annotated[
    float,
    typer.Option(
        min=0.0,
        help="With one of the former options: the factor of all workloads' sizes.",
    ),
]
Rounds = Annotated[
    int,
    typer.Option(
        min=1,
        help="With one of the former options: a figure is the median of this many rounds.",
    ),
]


def bench(
    *,
    flavour: Flavour = "mysql",
    changes: Changes = 600_000,
    apply: Apply = False,
    capture: Capture = False,
    load: Load = False,
    compare: Compare = False,
    publish: Publish = False,
    start: Start = False,
    only: Only = [],  # noqa: B006 - Typer copies it
    scale: Scale = 1.0,
    rounds: Rounds = 3,
) -> None:
    """Measure a whole stack, or a part of it alone, beside its peers. Takes minutes.

    It needs a checkout of Millrace.
    """
    if find_spec("millrace.deploy.bench") is None:
        raise Fatal("MR-8012", "this installation of Millrace has no benchmarks")
    from millrace.deploy.bench import run
    from millrace.deploy.bench.figure import Size, run_groups
    from millrace.deploy.bench.load import CHANGES
    from millrace.schemas.gtid import Flavour as ServerFlavour

    kinds = (
        (apply, run.APPLY),
        (capture, run.CAPTURE),
        (load, run.LOAD),
        (compare, run.COMPARE),
        (publish, run.PUBLISH),
        (start, run.START),
    )
    for is_chosen, groups in kinds:
        if is_chosen:
            run_groups(groups, Size(ServerFlavour(flavour), scale, rounds, only))
            return
    run_groups(run.WHOLE_STACK, Size(ServerFlavour(flavour), changes / CHANGES))
