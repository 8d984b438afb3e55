"""``make bench-capture``: the figures of capture alone. ``docs/bench.md`` describes them.

Only JSON lines go to standard output. Progress goes to standard error. Every group of lines has a fresh scene, so each
can be run alone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from deploy.bench.apply.size import Size
from deploy.bench.capture import bulk, latency, relay, small, snapshot, upstream
from deploy.bench.capture.scene import say
from deploy.bench.figure import Figure, Part, check_lines, print_parts


@dataclass(frozen=True, slots=True)
class Group:
    lines: tuple[str, ...]
    measure: Callable[[Size], Iterator[Figure]]

    def figures(self, size: Size) -> Iterator[Figure]:
        """The result of ``measure``, announced."""
        say(", ".join(self.lines))
        yield from self.measure(size)


GROUPS: Mapping[str, Group] = {
    "relay": Group(relay.LINES, relay.relay_figures),
    "latency": Group(latency.LINES, latency.latency_figures),
    "bulk": Group((bulk.BULK,), bulk.bulk_figures),
    "small": Group((small.SMALL,), small.small_figures),
    "snapshot": Group(snapshot.LINES, snapshot.snapshot_figures),
    "upstream": Group(upstream.LINES, upstream.upstream_figures),
}


def run_bench_capture(size: Size, only: Sequence[str] = ()) -> None:
    """Measure and print the lines in ``only``, or all. Fatal MR-8004 for an unknown line."""
    check_lines(only, {line for group in GROUPS.values() for line in group.lines})
    print_parts(
        (
            Part(group.lines, partial(group.figures, size))
            for group in GROUPS.values()
            if not only or set(only) & set(group.lines)
        ),
        only,
    )
