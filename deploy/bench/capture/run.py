"""``make bench-capture``: the figures of capture alone. ``docs/bench.md`` describes them.

Only JSON lines go to standard output. Progress goes to standard error. Every group of lines has a fresh scene, so each
can be run alone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from deploy.bench.apply.size import Size
from deploy.bench.capture import bulk, latency, relay, small, snapshot, upstream
from deploy.bench.capture.scene import say
from deploy.bench.figure import Figure
from millrace.errors import Fatal


@dataclass(frozen=True, slots=True)
class Group:
    """Lines that are measured together."""

    lines: tuple[str, ...]
    measure: Callable[[Size], Iterator[Figure]]


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
    known = {line for group in GROUPS.values() for line in group.lines}
    if unknown := sorted(set(only) - known):
        raise Fatal("MR-8004", f"no such line: {', '.join(unknown)}; there are {sorted(known)}")
    for name, group in GROUPS.items():
        if not only or set(only) & set(group.lines):
            say(f"{name}: {', '.join(group.lines)}")
            for figure in group.measure(size):
                if not only or figure.name in only:
                    print(figure.as_line(), flush=True)
