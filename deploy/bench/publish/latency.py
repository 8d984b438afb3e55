"""``publish.latency.p50`` and ``.p99``: from the commit of every source transaction to its record at a subscriber.

The subscriber is a consumer of the published topic that reads JSON (``deploy.bench.subscriber``). The peer is
``capture.latency`` on the same stack: the same transactions, up to the record in the set topic, in turns with ours and
while the publish task runs, too.
"""

from collections.abc import Iterator
from statistics import median

from millrace.deploy.bench import subscriber
from millrace.deploy.bench.beats import SHARES, Latencies, Round, create_beats
from millrace.deploy.bench.capture.latency import latency_round
from millrace.deploy.bench.figure import Figure, Size, say
from millrace.deploy.bench.publish.tasks import PARTITIONS, BenchTask, open_publish
from millrace.deploy.bench.scene import Scene

DATABASE = "bench_beats"
LINES = tuple(f"publish.latency.p{share * 100:.0f}" for share in SHARES)
PEER = "capture.latency of the same stack"


def latency_figures(size: Size) -> Iterator[Figure]:
    """The two lines: medians over the rounds. ``size.scale`` makes the seconds fewer."""
    task = BenchTask("beats", ("beats",), {"include": [f"{DATABASE}_*.*"]})
    ours, theirs = [], []
    with open_publish(size.flavour) as scene:
        task.create(scene)
        for number in range(size.rounds):
            say("  capture")
            theirs.append(latency_round(scene, number, size.scale))
            say("  publish")
            ours.append(_round(scene, task, number, size.scale))
    for share, name in zip(SHARES, LINES, strict=True):
        value, peer = (median(each.of(share) for each in rounds) for rounds in (ours, theirs))
        yield Figure(name, value, "ms", PEER, peer)


def _round(scene: Scene, task: BenchTask, number: int, scale: float) -> Latencies:
    """One round, which has its own table. One row more makes its topic exist."""
    database = f"{DATABASE}_{number}"
    create_beats(scene.source, database)
    scene.source.execute(f"INSERT INTO {database}.beats VALUES (0, 'the first row')")
    scene.wait_captured()
    with task.clock(scene, database) as clock:
        clock.wait_for(lambda end: end > 0)
    topic = f"{task.name}.{database}.beats"
    observer = (subscriber.__name__, scene.bootstrap, topic, str(PARTITIONS))
    return Round(number, scale).latencies(scene.source, database, observer)
