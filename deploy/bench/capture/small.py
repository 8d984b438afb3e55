"""``capture.small``: one-row transactions that wait in the binlog, beside Debezium's MySQL connector."""

from collections.abc import Iterator
from dataclasses import replace
from statistics import median

from deploy.bench.apply import workloads
from deploy.bench.apply.size import Size
from deploy.bench.capture.backlog import capture_backlog, write_backlog
from deploy.bench.capture.debezium.peer import PEER, Debezium, debezium, debezium_jars
from deploy.bench.capture.scene import Scene, open_scene, say
from deploy.bench.figure import Figure

SMALL = "capture.small"
TRANSACTIONS = 200_000
WARM_UP = 0.25


def small_figures(size: Size) -> Iterator[Figure]:
    """The line; without Debezium's artifacts, or on MariaDB, it has no peer."""
    workload = replace(workloads.small(), changes=TRANSACTIONS)
    jars = debezium_jars(size.flavour)
    with open_scene(size.flavour) as scene:
        if jars is None:
            ours = [rate for rate, _ in _rounds(scene, workload, size, None)]
            yield Figure(SMALL, median(ours), "transactions/s")
            return
        with debezium(scene, jars, workload) as peer:
            rates = list(_rounds(scene, workload, size, peer))
    found = median(rate for _, rate in rates)
    yield Figure(SMALL, median(rate for rate, _ in rates), "transactions/s", PEER, found)


def _rounds(
    scene: Scene, workload: workloads.Workload, size: Size, peer: Debezium | None
) -> Iterator[tuple[float, float]]:
    """Capture's rate and the peer's, of each round after the warm-up."""
    for number in range(size.rounds + 1):
        say(f"  round {number} of {size.rounds}" if number else "  warm-up")
        changes = workload.sized(size.scale * (1.0 if number else WARM_UP))
        made = write_backlog(scene, workload, changes)
        ours = capture_backlog(scene, made).rate
        theirs = 0.0 if peer is None else peer.rate(made)
        if theirs:
            say(f"  Debezium {theirs:,.0f}/s: ratio {ours / theirs:.2f}")
        if number:
            yield ours, theirs
