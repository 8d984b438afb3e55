"""``capture.snapshot``: rows that exist already are published, beside Debezium's snapshot of the same table.

capture.snapshot                the clock runs on the readable end of the topic, for both
capture.snapshot.latency.p…     the transactions of ``latency``, while snapshots of the table run without a pause
"""

from collections.abc import Iterator
from statistics import median

from millrace.deploy.bench import load
from millrace.deploy.bench.beats import SHARES
from millrace.deploy.bench.capture.backlog import end_clock
from millrace.deploy.bench.capture.debezium.peer import PEER, debezium_jars, snapshot_rate
from millrace.deploy.bench.capture.latency import latency_round
from millrace.deploy.bench.figure import Figure, Size, announced_rounds, say
from millrace.deploy.bench.scene import Scene, open_capture
from millrace.deploy.local.services import CAPTURE_TASK, TOPIC

SNAPSHOT = "capture.snapshot"
LATENCIES = tuple(f"{SNAPSHOT}.latency.p{share * 100:.0f}" for share in SHARES)
LINES = (SNAPSHOT, *LATENCIES)
TABLE = "orders"
_FIRST_ROWS = 1000
_DOUBLINGS = 9
_WAITING = 30  # snapshots that are asked for, so that one always runs
_COLUMNS = "customer, state, total, tax, placed, shipped, gift, weight, note, extra, region"


def snapshot_figures(size: Size) -> Iterator[Figure]:
    """All lines; without Debezium's artifacts, or on MariaDB, the first has no peer."""
    jars = debezium_jars(size.flavour)
    ours, theirs, latencies = [], [], []
    with open_capture(size.flavour) as scene:
        rows = _fill(scene, size.scale)
        for number in announced_rounds(size):
            rate = _rate(scene, rows)
            peer = snapshot_rate(scene, jars, (load.DATABASE, TABLE), rows) if jars else 0.0
            say(f"  snapshot {rate:,.0f}/s, Debezium {peer:,.0f}/s")
            if number:
                ours.append(rate)
                theirs.append(peer)
        for _ in range(_WAITING):
            _ask(scene)
        for number in range(size.rounds):
            latencies.append(latency_round(scene, number, size.scale))
    peer_name = PEER if jars else None
    yield Figure(SNAPSHOT, median(ours), "rows/s", peer_name, median(theirs) or None)
    for share, name in zip(SHARES, LATENCIES, strict=True):
        yield Figure(name, median(each.of(share) for each in latencies), "ms")


def _fill(scene: Scene, scale: float) -> int:
    """Make a table, and wait until the topic has its changes. Returns its rows."""
    load.create_load(scene.connect)
    load.run_load(scene.connect, changes=3 * _FIRST_ROWS)
    rows = _FIRST_ROWS
    while 2 * rows <= _FIRST_ROWS * scale * 2**_DOUBLINGS:
        scene.source.execute(
            f"INSERT INTO {load.DATABASE}.{TABLE}"
            f" SELECT id + {rows}, {_COLUMNS} FROM {load.DATABASE}.{TABLE}"
        )
        rows *= 2
    scene.wait_captured()
    return rows


def _ask(scene: Scene) -> None:
    scene.stack.run_command(
        "task", "snapshot", CAPTURE_TASK, "--tables", f"{load.DATABASE}.{TABLE}"
    )


def _rate(scene: Scene, rows: int) -> float:
    """Rows per second of one snapshot."""
    wanted = scene.seq() + rows
    with end_clock(scene.bootstrap, TOPIC) as clock:
        _ask(scene)
        scene.wait_seq(wanted)
    return clock.rate()
