"""``apply.latency.p50`` and ``.p99``: from the commit of every source transaction to its row on the target.

A row has arrived when it is in the answer of a SELECT on the target. One connection asks every ``POLL_S``, so a latency
is up to ``POLL_S`` and one query too high, never too low. There is one round: it is long.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial

from millrace.background import Background
from millrace.deploy.bench.beats import ARRIVE_S, SHARES, Latencies, create_beats, write_beats
from millrace.deploy.bench.figure import Figure, Size
from millrace.deploy.bench.scene import open_scene
from millrace.deploy.servers import sql
from millrace.deploy.workload.beats import POLL_S
from millrace.deploy.workload.shop import Connect
from millrace.errors import Fatal

DATABASE = "bench_latency"
WARM_UP_S = 30.0
MEASURED_S = 60.0
LINES = tuple(f"apply.latency.p{share * 100:.0f}" for share in SHARES)


def latency_figures(size: Size) -> Iterator[Figure]:
    """The two lines; ``size.scale`` makes the seconds fewer."""
    with open_scene(size.flavour) as scene:
        create_beats(scene.source, DATABASE)
        scene.wait_applied()
        arrived: dict[int, float] = {}
        connect = partial(sql.open_root, scene.stack.target.socket, database=DATABASE)
        with Background("target observer", partial(_observe, connect, arrived)):
            committed = write_beats(scene.source, DATABASE, (WARM_UP_S + MEASURED_S) * size.scale)
            deadline = time.monotonic() + ARRIVE_S
            while len(arrived) < len(committed):
                if time.monotonic() > deadline:
                    raise Fatal("MR-8004", f"not all rows arrived within {ARRIVE_S:.0f} s")
                time.sleep(POLL_S)
    latencies = Latencies.of_beats(committed, arrived, WARM_UP_S * size.scale)
    for share, name in zip(SHARES, LINES, strict=True):
        yield Figure(name, latencies.of(share), "ms")


def _observe(connect: Connect, arrived: dict[int, float], stop: threading.Event) -> None:
    """Ask for the beats above the first that is missing; lanes commit in any order."""
    complete_to = 0
    with closing(connect()) as connection:
        cursor = connection.cursor()
        cursor.execute("SET autocommit = 1")
        while not stop.wait(POLL_S):
            cursor.execute("SELECT beat FROM beats WHERE beat > %s", (complete_to,))
            rows = cursor.fetchall()
            at_s = time.monotonic()
            for (beat,) in rows:
                arrived.setdefault(beat, at_s)
            while complete_to + 1 in arrived:
                complete_to += 1
