"""``apply.bulk`` and ``apply.overhead``: the load of ``capture.bulk``, by a driver that has applied it once before.

``apply.overhead`` is the CPU time a change outside the target server: the driver with its JVM and Python workers, and
the broker, between the same two moments as the rate.

``apply.bulk`` has two peers, and a line for each. Without the artifacts of Debezium's sink its line is left out.
"""

from collections.abc import Iterator, Sequence
from statistics import median

from deploy.bench.apply.backlogs import against_replica, measure
from deploy.bench.apply.scene import open_scene, say
from deploy.bench.apply.sink.jars import SinkJars, fetch_sink
from deploy.bench.apply.sink.peer import SINK, sink_rates
from deploy.bench.apply.size import Size
from deploy.bench.apply.workloads import bulk
from deploy.bench.figure import Figure
from millrace.errors import Fatal

BULK, OVERHEAD = "apply.bulk", "apply.overhead"
ROWS = "rows/s"


def bulk_figures(size: Size, only: Sequence[str]) -> Iterator[Figure]:
    """The three lines; no peer runs when only the overhead is asked for."""
    has_peers = not only or BULK in only
    jars = sink_jars() if has_peers else None
    with open_scene(size.flavour, has_replica=has_peers) as scene:
        rates = measure(scene, bulk(), size, has_replica=has_peers)
        if has_peers:
            yield against_replica(BULK, rates, ROWS)
        yield Figure(OVERHEAD, median(rates.overhead_us), "CPU us a change")
        if jars is not None:
            sink = median(sink_rates(scene, jars, bulk(), size))
            yield Figure(BULK, median(rates.ours), ROWS, SINK, sink)


def sink_jars() -> SinkJars | None:
    """The artifacts of Debezium's sink. None, with a sentence on standard error, if they cannot be fetched."""
    try:
        return fetch_sink()
    except Fatal as error:
        say(f"  no line with the peer {SINK}: {error}")
        return None
