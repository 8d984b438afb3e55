"""Figures of a backlog: a workload waits in the topic (and in the source's binlog), and appliers catch up.

A round with ``warm_up`` of the changes comes first and is not counted; then ``rounds`` rounds are. A figure is the
median of its rounds, and so is its peer's; the ratio is that of the medians.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median

from deploy.bench.apply.scene import Scene, open_scene, say
from deploy.bench.apply.size import Size
from deploy.bench.apply.workloads import Workload
from deploy.bench.figure import Figure
from deploy.bench.peers import REPLICA_WORKERS

REPLICA = f"native-replica, {REPLICA_WORKERS} workers"


@dataclass(slots=True)
class Rates:
    """The results of each round: changes per second, and CPU microseconds a change."""

    ours: list[float] = field(default_factory=list)
    replica: list[float] = field(default_factory=list)
    overhead_us: list[float] = field(default_factory=list)

    def add(self, scene: Scene, changes: int, *, has_replica: bool) -> None:
        """Run both appliers over a backlog of ``changes``."""
        replica = scene.replicate().rate(changes) if has_replica else 0.0
        applied = scene.apply()
        self.replica.append(replica)
        self.ours.append(applied.pace.rate(changes))
        self.overhead_us.append(applied.cpu_s * 1e6 / (changes * applied.pace.share))
        say(
            f"  {self.ours[-1]:,.0f}/s, replica {replica:,.0f}/s, {self.overhead_us[-1]:.1f} µs a change"
        )

    def drop_first(self) -> None:
        """Forget the warm-up."""
        for values in (self.ours, self.replica, self.overhead_us):
            values.pop(0)


def measure(scene: Scene, workload: Workload, size: Size, *, has_replica: bool = True) -> Rates:
    """The warm-up and all rounds of a workload in a scene."""
    rates = Rates()
    for number in range(size.rounds + 1):
        share = workload.warm_up if number == 0 else 1.0
        say(f"  round {number} of {size.rounds}" if number else "  warm-up")
        scene.create(workload)
        changes = scene.write(workload, workload.sized(size.scale * share))
        rates.add(scene, changes, has_replica=has_replica)
        scene.check(workload)
    rates.drop_first()
    return rates


def against_replica(name: str, rates: Rates, unit: str) -> Figure:
    """The line of a figure whose peer is the native replica."""
    return Figure(name, median(rates.ours), unit, REPLICA, median(rates.replica))


def backlog_figure(name: str, workload: Workload, size: Size, *, unit: str) -> Iterator[Figure]:
    """One workload against the native replica, on a separate scene."""
    with open_scene(size.flavour) as scene:
        yield against_replica(name, measure(scene, workload, size), unit)


def small_figures(workload: Workload, size: Size) -> Iterator[Figure]:
    """``apply.small`` with and without a sync at each commit of target and replica."""
    with open_scene(size.flavour) as scene:
        for name, is_durable in (("apply.small", False), ("apply.small.durable", True)):
            scene.set_durable(is_durable=is_durable)
            rates = measure(scene, workload, size)
            yield against_replica(name, rates, "transactions/s")
