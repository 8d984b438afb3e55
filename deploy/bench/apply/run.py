"""``make bench-apply``: the figures of apply beside its peers. ``docs/bench.md`` describes them.

Only JSON lines go to standard output. Progress goes to standard error. Every group of lines has a fresh stack, so each
can be run alone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from deploy.bench.apply import workloads
from deploy.bench.apply.backlogs import backlog_figure, small_figures
from deploy.bench.apply.bulk import BULK, OVERHEAD, bulk_figures
from deploy.bench.apply.cluster import CLUSTER, cluster_figures
from deploy.bench.apply.ddl import ddl_figures
from deploy.bench.apply.latency import latency_figures
from deploy.bench.apply.memory import rss_figures
from deploy.bench.apply.scene import say
from deploy.bench.apply.size import Size
from deploy.bench.figure import Figure, Part, check_lines, print_parts

ROWS, TRANSACTIONS = "changes/s", "transactions/s"


@dataclass(frozen=True, slots=True)
class Group:
    """Lines that are measured together; ``measure`` gets the lines that are asked for, none for all.

    A long group runs only when one of its lines is named.
    """

    lines: tuple[str, ...]
    measure: Callable[[Size, Sequence[str]], Iterator[Figure]]
    is_long: bool = False

    def wanted(self, only: Sequence[str]) -> bool:
        """Whether a line of it is in ``only``; without ``only``, unless it is long."""
        return not self.is_long if not only else bool(set(only) & set(self.lines))

    def figures(self, size: Size, only: Sequence[str]) -> Iterator[Figure]:
        """The result of ``measure``, announced."""
        say(", ".join(self.lines))
        yield from self.measure(size, only)


GROUPS: Mapping[str, Group] = {
    "bulk": Group((BULK, OVERHEAD), bulk_figures),
    "cluster": Group((CLUSTER,), lambda size, _: cluster_figures(size)),
    "merge": Group(
        ("apply.merge",),
        lambda size, _: backlog_figure("apply.merge", workloads.merge(), size, unit=ROWS),
    ),
    "ddl": Group(("apply.ddl", "apply.ddl.last"), lambda size, _: ddl_figures(size)),
    "small": Group(
        ("apply.small", "apply.small.durable"),
        lambda size, _: small_figures(workloads.small(), size),
    ),
    "hot": Group(
        ("apply.hot",),
        lambda size, _: backlog_figure("apply.hot", workloads.hot(), size, unit=TRANSACTIONS),
    ),
    "latency": Group(
        ("apply.latency.p50", "apply.latency.p99"), lambda size, _: latency_figures(size)
    ),
    "rss": Group(
        (
            "apply.rss.driver",
            "apply.rss.driver.jvm",
            "apply.rss.driver.python",
            "apply.rss.worker",
        ),
        lambda size, _: rss_figures(size),
        is_long=True,
    ),
    "text": Group(
        ("apply.text",),
        lambda size, _: backlog_figure("apply.text", workloads.text(), size, unit=ROWS),
    ),
}


def run_bench_apply(size: Size, only: Sequence[str] = ()) -> None:
    """Measure and print the lines in ``only``, or all but the long ones. Fatal MR-8004 for an unknown line."""
    check_lines(only, {line for group in GROUPS.values() for line in group.lines})
    print_parts(
        (
            Part(group.lines, partial(group.figures, size, only))
            for group in GROUPS.values()
            if group.wanted(only)
        ),
        only,
    )
