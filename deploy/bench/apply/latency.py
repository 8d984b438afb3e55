"""``apply.latency.p50`` and ``.p99``: from the commit of every source transaction to its row on the target.

``WRITERS`` processes offer ``RATE`` one-row transactions a second together. Each transaction is timed, none is sampled:

    begin   after INSERT has been answered, just before COMMIT is sent: a latency includes the source's commit
    end     the row was in the answer of a SELECT on the target; one connection asks every ``POLL_S``, so a latency is
            up to ``POLL_S`` and one query too high, never too low

The writers are separate processes, so that the observer's Python does not delay their stamps. All clocks are the
machine's monotonic clock. The first ``WARM_UP_S`` do not count. A row that has not arrived after ``ARRIVE_S`` fails the
run, and so does a source that commits less than ``OFFERED_MIN`` of what was offered. There is one round: it is long.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path

from deploy.bench.apply.scene import open_scene, say
from deploy.bench.apply.size import Size
from deploy.bench.figure import Figure
from deploy.servers import sql
from deploy.workload.beats import POLL_S, percentile
from deploy.workload.shop import Connect
from millrace.background import Background
from millrace.errors import Fatal

DATABASE = "bench_latency"
RATE = 500.0
WRITERS = 2
WARM_UP_S = 30.0
MEASURED_S = 60.0
ARRIVE_S = 600.0
OFFERED_MIN = 0.9


def latency_figures(size: Size) -> Iterator[Figure]:
    """The two lines; ``size.scale`` makes the seconds fewer."""
    seconds = (WARM_UP_S + MEASURED_S) * size.scale
    with open_scene(size.flavour, has_replica=False) as scene:
        scene.source.execute(f"CREATE DATABASE {DATABASE}")
        scene.source.execute(
            f"CREATE TABLE {DATABASE}.beats (beat BIGINT NOT NULL PRIMARY KEY, note VARCHAR(100))"
        )
        scene.wait_applied()
        arrived: dict[int, float] = {}
        connect = partial(sql.open_root, scene.stack.target.socket, database=DATABASE)
        with Background("target observer", partial(_observe, connect, arrived)):
            committed = _write(scene.source.socket, seconds)
            _wait(lambda: len(arrived) >= len(committed))
    since_s = min(committed.values()) + seconds * WARM_UP_S / (WARM_UP_S + MEASURED_S)
    counted = {beat: at_s for beat, at_s in committed.items() if at_s >= since_s}
    measured_s = max(counted.values(), default=since_s) - since_s
    say(f"  {len(counted):,} transactions in {measured_s:.1f} s")
    if len(committed) < OFFERED_MIN * RATE * seconds:
        raise Fatal("MR-8004", f"the source committed {len(committed)} of {RATE * seconds:.0f}")
    latencies = [(arrived[beat] - at_s) * 1000 for beat, at_s in counted.items()]
    for share in (0.5, 0.99):
        value = percentile(latencies, share)
        assert value is not None
        yield Figure(f"apply.latency.p{share * 100:.0f}", value, "ms")


def _write(socket: Path, seconds: float) -> Mapping[int, float]:
    """Run the writers; when each beat was committed."""
    writers = [
        subprocess.Popen(
            (sys.executable, "-m", __name__, str(socket), str(number), str(seconds)),
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(WRITERS)
    ]
    committed: dict[int, float] = {}
    for writer in writers:
        printed, _ = writer.communicate()
        if writer.returncode != 0:
            raise Fatal("MR-8004", f"a writer ended with {writer.returncode}")
        for line in printed.splitlines():
            beat, at_s = line.split()
            committed[int(beat)] = float(at_s)
    return committed


def _observe(connect: Connect, arrived: dict[int, float], stop: threading.Event) -> None:
    """Ask for the beats above the first that is missing; lanes commit in any order."""
    complete_to = 0
    with closing(connect()) as connection:
        cursor = connection.cursor()
        cursor.execute("SET autocommit = 1")
        while not stop.wait(POLL_S):
            cursor.execute("SELECT beat FROM beats WHERE beat > %s", (complete_to,))
            found = cursor.fetchall()
            at_s = time.monotonic()
            for (beat,) in found:
                arrived.setdefault(beat, at_s)
            while complete_to + 1 in arrived:
                complete_to += 1


def _wait(is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + ARRIVE_S
    while not is_done():
        if time.monotonic() > deadline:
            raise Fatal("MR-8004", f"not all rows arrived within {ARRIVE_S:.0f} s")
        time.sleep(POLL_S)


def _run_writer(socket: Path, number: int, seconds: float) -> None:
    """Beats ``number + 1``, ``number + 1 + WRITERS``, …; at the end a line for each: the beat and its commit."""
    committed: list[tuple[int, float]] = []
    with closing(sql.open_root(socket, database=DATABASE)) as connection:
        cursor = connection.cursor()
        begin_s = time.monotonic()
        for turn in range(round(seconds * RATE / WRITERS)):
            time.sleep(max(begin_s + turn * WRITERS / RATE - time.monotonic(), 0.0))
            beat = turn * WRITERS + number + 1
            cursor.execute("INSERT INTO beats VALUES (%s, 'a row of a transaction')", (beat,))
            at_s = time.monotonic()
            connection.commit()
            committed.append((beat, at_s))
    for beat, at_s in committed:
        print(beat, at_s)


if __name__ == "__main__":
    _run_writer(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
