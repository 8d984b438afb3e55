"""``apply.cluster``: the load of ``apply.bulk`` on a standalone Spark cluster, beside the same on ``local[2]``.

The cluster has two workers with one core each. Spark does not bind them to cores, so both drivers share the same
machine with the servers. The rounds of both follow each other on one stack.
"""

from collections.abc import Iterator
from statistics import median

from deploy.bench.apply.backlogs import Rates, measure
from deploy.bench.apply.scene import open_scene, say
from deploy.bench.apply.size import Size
from deploy.bench.apply.workloads import bulk
from deploy.bench.figure import Figure
from deploy.servers.spark import SparkCluster, driver_settings

CLUSTER = "apply.cluster"
WORKERS = 2
PEER = "local[2]"


def cluster_figures(size: Size) -> Iterator[Figure]:
    with open_scene(size.flavour, has_replica=False) as scene:
        say(f"  {PEER}")
        local = measure(scene, bulk(), size, has_replica=False)
        with SparkCluster(scene.stack.folder / "cluster", workers=WORKERS) as cluster:
            say(f"  {cluster.master}")
            scene.stack.restart_apply(_arguments(cluster))
            scene.executors = cluster.processes
            ours: Rates = measure(scene, bulk(), size, has_replica=False)
    yield Figure(CLUSTER, median(ours.ours), "rows/s", PEER, median(local.ours))


def _arguments(cluster: SparkCluster) -> tuple[str, ...]:
    settings = driver_settings(WORKERS).items()
    given = [word for name, value in settings for word in ("--conf", f"{name}={value}")]
    return ("--master", cluster.master, *given)
