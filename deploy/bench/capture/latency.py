"""``capture.latency.p50`` and ``.p99``: from the commit of every source transaction to its record at a subscriber.

``WRITERS`` processes offer ``RATE`` one-row transactions a second together. Each transaction is timed, none is sampled:

    begin   after INSERT has been answered, just before COMMIT is sent: a latency includes the source's commit
    end     a subscriber, reading with ``read_committed``, has the record

Writers and subscriber are separate processes, so that they do not delay each other's stamps. All clocks are the
machine's monotonic clock. The first ``WARM_UP_S`` do not count. A record that has not arrived after ``ARRIVE_S`` fails
the run, and so does a writer that commits less than ``OFFERED_MIN`` of what it offered.
"""

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from statistics import median

from deploy.bench.apply.size import Size
from deploy.bench.capture.scene import Scene, open_scene, say
from deploy.bench.figure import Figure
from deploy.local.services import TOPIC
from deploy.servers import sql
from deploy.workload.beats import percentile
from drivers.kafka.reader import TopicReader
from millrace.errors import Fatal
from schemas.documents import Brokers
from schemas.record.control import SchemaRecord
from schemas.record.record import KnownSchemas, RowRecord, decode_record

DATABASE = "bench_latency"
RATE = 500.0
WRITERS = 2
WARM_UP_S = 10.0
MEASURED_S = 30.0
MEASURED_S_MIN = 5.0  # in a shorter time, one slow commit is a tenth of what is offered
ARRIVE_S = 600.0
OFFERED_MIN = 0.9
SHARES = (0.5, 0.99)
LINES = tuple(f"capture.latency.p{share * 100:.0f}" for share in SHARES)


def latency_figures(size: Size) -> Iterator[Figure]:
    """The two lines: medians over the rounds. ``size.scale`` makes the seconds fewer."""
    rounds = []
    with open_scene(size.flavour) as scene:
        for number in range(size.rounds):
            rounds.append(latency_round(scene, number, size.scale))
    for share, name in zip(SHARES, LINES, strict=True):
        yield Figure(name, median(latencies[share] for latencies in rounds), "ms")


def latency_round(scene: Scene, number: int, scale: float) -> Mapping[float, float]:
    """The percentiles of one round, which has its own table."""
    warm_up_s = (WARM_UP_S if number == 0 else WARM_UP_S / 4) * scale
    seconds = warm_up_s + max(MEASURED_S * scale, MEASURED_S_MIN)
    scene.source.execute(f"CREATE DATABASE {DATABASE}_{number}")
    scene.source.execute(
        f"CREATE TABLE {DATABASE}_{number}.beats (beat BIGINT NOT NULL PRIMARY KEY, note VARCHAR(100))"
    )
    scene.wait_captured()
    count = round(seconds * RATE / WRITERS) * WRITERS
    subscriber = _process("subscribe", scene.kafka.bootstrap, f"{DATABASE}_{number}", str(count))
    assert subscriber.stdout is not None
    subscriber.stdout.readline()  # it is at the end of the topic
    database = f"{DATABASE}_{number}"
    writers = [
        _process("write", str(scene.source.socket), database, str(turn), str(seconds))
        for turn in range(WRITERS)
    ]
    committed: dict[int, float] = {}
    for writer in writers:
        stamps = _stamps(writer, timeout_s=3 * seconds + ARRIVE_S)
        took_s = max(stamps.values()) - min(stamps.values())
        if len(stamps) < OFFERED_MIN * RATE / WRITERS * took_s:
            raise Fatal("MR-8004", f"a writer committed {len(stamps)} in {took_s:.1f} s")
        committed |= stamps
    arrived = _stamps(subscriber, timeout_s=ARRIVE_S)
    since_s = min(committed.values()) + warm_up_s
    counted = {beat: at_s for beat, at_s in committed.items() if at_s >= since_s}
    until_s = max(committed.values())
    latencies = [(arrived[beat] - at_s) * 1000 for beat, at_s in counted.items()]
    found = {share: percentile(latencies, share) or 0.0 for share in SHARES}
    say(
        f"  {len(counted):,} transactions in {until_s - since_s:.1f} s: "
        + ", ".join(f"p{share * 100:.0f} {value:.1f} ms" for share, value in found.items())
    )
    return found


def _process(*arguments: str) -> "subprocess.Popen[str]":
    command = (sys.executable, "-P", "-m", __name__, *arguments)
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _stamps(process: "subprocess.Popen[str]", *, timeout_s: float) -> dict[int, float]:
    """The lines that the process printed at its end, each a beat and a moment. Fatal MR-8004 if it failed."""
    try:
        printed, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise Fatal("MR-8004", "not all records arrived") from None
    if process.returncode != 0:
        raise Fatal("MR-8004", f"a process of the benchmark ended with {process.returncode}")
    pairs = (line.split() for line in printed.splitlines())
    return {int(beat): float(at_s) for beat, at_s in pairs}


def _write(socket: Path, database: str, number: int, seconds: float) -> None:
    """Beats ``number + 1``, ``number + 1 + WRITERS``, …; at the end a line for each: the beat and its commit."""
    committed: list[tuple[int, float]] = []
    with closing(sql.open_root(socket, database=database)) as connection:
        cursor = connection.cursor()
        begin_s = time.monotonic() + number / RATE
        for turn in range(round(seconds * RATE / WRITERS)):
            time.sleep(max(begin_s + turn * WRITERS / RATE - time.monotonic(), 0.0))
            beat = turn * WRITERS + number + 1
            cursor.execute("INSERT INTO beats VALUES (%s, 'a row of a transaction')", (beat,))
            at_s = time.monotonic()
            connection.commit()
            committed.append((beat, at_s))
    for beat, at_s in committed:
        print(beat, at_s)


def _subscribe(bootstrap: str, database: str, count: int) -> None:
    """Read until ``count`` beats have arrived; at the end a line for each: the beat and its arrival."""
    arrived: list[tuple[int, float]] = []
    schemas, name = KnownSchemas(), database.encode()
    reader = TopicReader(Brokers(bootstrap), TOPIC)
    end = reader.ends().stable
    print("ready", flush=True)
    for chunk in reader.follow(end, lambda: len(arrived) >= count):
        at_s = time.monotonic()
        for record in chunk:
            if name not in (record.value or b""):
                continue  # 100,000 rows of a snapshot a second would delay the stamps
            found = decode_record(record.key, record.value, schemas)
            if isinstance(found, SchemaRecord):
                schemas.learn(found)
            elif isinstance(found, RowRecord) and found.source.database == database:
                assert found.change.after is not None
                arrived.append((int(str(found.change.after["beat"])), at_s))
    for beat, at_s in arrived:
        print(beat, at_s)


if __name__ == "__main__":
    if sys.argv[1] == "write":
        _write(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), float(sys.argv[5]))
    else:
        _subscribe(sys.argv[2], sys.argv[3], int(sys.argv[4]))
