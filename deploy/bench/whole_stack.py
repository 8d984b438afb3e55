"""``make bench``: latency and bulk of capture in a whole stack, whose apply task and replica run meanwhile.

The peer of the bulk load decodes the same binlog and writes nothing.
"""

from collections.abc import Iterator

from millrace.deploy.bench import peers
from millrace.deploy.bench.apply import workloads
from millrace.deploy.bench.beats import SHARES
from millrace.deploy.bench.capture.backlog import capture_backlog, write_backlog
from millrace.deploy.bench.capture.latency import LINES as LATENCIES
from millrace.deploy.bench.capture.latency import latency_round
from millrace.deploy.bench.figure import Figure, Size
from millrace.deploy.bench.scene import open_scene
from millrace.deploy.local.services import APPLY_TASK

BULK, LOAD = "capture.bulk", "latency.load"
LINES = (LOAD, *LATENCIES, BULK)
DECODER = "python-mysql-replication, decode only"
WAIT_S = 600.0


def stack_figures(size: Size) -> Iterator[Figure]:
    """All lines. ``size.scale`` is that of the bulk load; latency is measured as long as in capture's own benchmark."""
    with open_scene(size.flavour, replica_count=1) as scene:
        scene.wait_applied()
        latencies = latency_round(scene, 0, 1.0)
        yield Figure(LOAD, latencies.load, "transactions/s")
        for share, name in zip(SHARES, LATENCIES, strict=True):
            yield Figure(name, latencies.of(share), "ms")
        scene.pause(APPLY_TASK)
        beginning = scene.source.gtid_position()
        workload = workloads.bulk()
        changes = write_backlog(scene, workload, workload.sized(size.scale))
        scene.stack.source.wait_for_replicas(timeout_s=WAIT_S)
        captured = capture_backlog(scene, changes).rate
        account = peers.make_account(scene.source)
        decoded = peers.decode_rate(
            scene.source, account, beginning, database=workload.database, rows=changes
        )
        yield Figure(BULK, captured, "rows/s", DECODER, decoded)
