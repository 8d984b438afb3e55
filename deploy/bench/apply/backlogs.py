"""Figures of a backlog: a workload waits in the topic (and in the source's binlog), and appliers catch up.

A round with ``warm_up`` of the changes comes first and is not counted; then ``rounds`` rounds are. A figure is the
median of its rounds, and so is its peer's; the ratio is that of the medians.

    apply.bulk       the load of ``capture.bulk``, by a driver that has applied it once before; it has two peers, and a
                     line for each. Without the artifacts of Debezium's sink its line is left out
    apply.overhead   its CPU time a change outside the target server: the driver with its JVM and Python workers, and
                     the broker, between the same two moments as the rate
    apply.cluster    that load on a standalone Spark cluster of two workers with one core each, beside ``local[2]``.
                     Spark does not bind them to cores, so both drivers share the same machine with the servers
    apply.small      one-row transactions, with and without a sync at each commit of target and replica
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import median

from millrace.deploy.bench.apply import workloads
from millrace.deploy.bench.apply.sink.connect import connector_jars
from millrace.deploy.bench.apply.sink.peer import SINK, fetch_sink, sink_rates
from millrace.deploy.bench.apply.workloads import Workload
from millrace.deploy.bench.figure import Figure, Size, announced_rounds, say
from millrace.deploy.bench.peers import REPLICA_WORKERS
from millrace.deploy.bench.scene import Scene, open_scene
from millrace.deploy.servers.spark import SparkCluster, driver_settings

BULK, OVERHEAD, CLUSTER = "apply.bulk", "apply.overhead", "apply.cluster"
SMALL = ("apply.small", "apply.small.durable")
ROWS = "rows/s"
CLUSTER_WORKERS = 2
REPLICA = f"native-replica, {REPLICA_WORKERS} workers"


@dataclass(slots=True)
class Rates:
    """The results of each round: changes per second, and CPU microseconds a change."""

    ours: list[float] = field(default_factory=list)
    replica: list[float] = field(default_factory=list)
    overhead_us: list[float] = field(default_factory=list)

    def add(self, scene: Scene, changes: int) -> None:
        """Run the appliers of the scene over a backlog of ``changes``."""
        replica = scene.replicate().rate(changes) if scene.peer is not None else 0.0
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


def measure(scene: Scene, workload: Workload, size: Size) -> Rates:
    """The warm-up and all rounds of a workload in a scene."""
    rates = Rates()
    for number in announced_rounds(size):
        share = workload.warm_up if number == 0 else 1.0
        scene.create(workload)
        rates.add(scene, scene.write(workload, workload.sized(size.scale * share)))
        scene.check(workload)
    rates.drop_first()
    return rates


def against_replica(name: str, rates: Rates, unit: str) -> Figure:
    """The line of a figure whose peer is the native replica."""
    return Figure(name, median(rates.ours), unit, REPLICA, median(rates.replica))


def backlog_figure(
    name: str, workload: Callable[[], Workload], unit: str, size: Size
) -> Iterator[Figure]:
    """One workload against the native replica, on a separate scene."""
    with open_scene(size.flavour, has_peer=True) as scene:
        yield against_replica(name, measure(scene, workload(), size), unit)


def small_figures(size: Size) -> Iterator[Figure]:
    with open_scene(size.flavour, has_peer=True) as scene:
        for name in SMALL:
            scene.set_durable(is_durable=name.endswith("durable"))
            rates = measure(scene, workloads.small(), size)
            yield against_replica(name, rates, "transactions/s")


def bulk_figures(size: Size) -> Iterator[Figure]:
    """The three lines; no peer runs when only the overhead is asked for."""
    has_peers = size.wants(BULK)
    jars = connector_jars(SINK, fetch_sink) if has_peers else None
    with open_scene(size.flavour, has_peer=has_peers) as scene:
        rates = measure(scene, workloads.bulk(), size)
        if has_peers:
            yield against_replica(BULK, rates, ROWS)
        yield Figure(OVERHEAD, median(rates.overhead_us), "CPU us a change")
        if jars is not None:
            sink = median(sink_rates(scene, jars, workloads.bulk(), size))
            yield Figure(BULK, median(rates.ours), ROWS, SINK, sink)


def cluster_figures(size: Size) -> Iterator[Figure]:
    with open_scene(size.flavour) as scene:
        local = measure(scene, workloads.bulk(), size)
        with SparkCluster(scene.stack.folder / "cluster", workers=CLUSTER_WORKERS) as cluster:
            say(f"  {cluster.master}")
            settings = driver_settings(CLUSTER_WORKERS).items()
            options = [word for name, value in settings for word in ("--conf", f"{name}={value}")]
            scene.stack.restart_apply(("--master", cluster.master, *options))
            scene.executors = cluster.processes
            ours = measure(scene, workloads.bulk(), size)
    yield Figure(CLUSTER, median(ours.ours), ROWS, "local[2]", median(local.ours))
