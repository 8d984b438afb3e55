"""``apply.bulk`` and ``apply.overhead``: the load of ``capture.bulk``, by a driver that has applied it once before.

``apply.overhead`` is the CPU time a change outside the target server: the driver with its JVM and Python workers, and
the broker, between the same two moments as the rate.
"""

from collections.abc import Iterator, Sequence
from statistics import median

from deploy.bench.apply.backlogs import against_replica, measure
from deploy.bench.apply.scene import open_scene
from deploy.bench.apply.size import Size
from deploy.bench.apply.workloads import bulk
from deploy.bench.figure import Figure

BULK, OVERHEAD = "apply.bulk", "apply.overhead"


def bulk_figures(size: Size, only: Sequence[str]) -> Iterator[Figure]:
    """The two lines; no peer runs when only the overhead is asked for."""
    has_peers = not only or BULK in only
    with open_scene(size.flavour, has_replica=has_peers) as scene:
        rates = measure(scene, bulk(), size, has_replica=has_peers)
    if has_peers:
        yield against_replica(BULK, rates, "rows/s")
    yield Figure(OVERHEAD, median(rates.overhead_us), "CPU us a change")
