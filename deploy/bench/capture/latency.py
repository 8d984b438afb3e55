"""``capture.latency.p50`` and ``.p99``: from the commit of every source transaction to its record at a subscriber.

A record has arrived when a subscriber, a process that reads with ``read_committed``, has it.
"""

import sys
import time
from collections.abc import Iterator
from statistics import median

from millrace.deploy.bench.beats import SHARES, Latencies, Round, create_beats, print_stamps
from millrace.deploy.bench.figure import Figure, Size
from millrace.deploy.bench.scene import Scene, open_capture
from millrace.deploy.local.services import TOPIC
from millrace.drivers.kafka.reader import TopicReader
from millrace.schemas.documents import Brokers
from millrace.schemas.record.control import SchemaRecord
from millrace.schemas.record.record import KnownSchemas, RowRecord, decode_record

DATABASE = "bench_latency"
LINES = tuple(f"capture.latency.p{share * 100:.0f}" for share in SHARES)


def latency_figures(size: Size) -> Iterator[Figure]:
    """The two lines: medians over the rounds. ``size.scale`` makes the seconds fewer."""
    with open_capture(size.flavour) as scene:
        rounds = [latency_round(scene, number, size.scale) for number in range(size.rounds)]
    for share, name in zip(SHARES, LINES, strict=True):
        yield Figure(name, median(latencies.of(share) for latencies in rounds), "ms")


def latency_round(scene: Scene, number: int, scale: float) -> Latencies:
    """One round, which has its own table."""
    database = f"{DATABASE}_{number}"
    create_beats(scene.source, database)
    scene.wait_captured()
    observer = (__name__, scene.bootstrap, database)
    return Round(number, scale).latencies(scene.source, database, observer)


def _subscribe(bootstrap: str, database: str, count: int) -> None:
    """Read until ``count`` beats have arrived; at the end a line for each: the beat and its arrival."""
    arrived: dict[int, float] = {}
    schemas, name = KnownSchemas(), database.encode()
    reader = TopicReader(Brokers(bootstrap), TOPIC)
    end = reader.ends().stable
    print("ready", flush=True)
    for chunk in reader.follow(end, lambda: len(arrived) >= count):
        at_s = time.monotonic()
        for record in chunk:
            if name not in (record.value or b""):
                continue  # 100,000 rows of a snapshot a second would delay the stamps
            decoded = decode_record(record.key, record.value, schemas)
            if isinstance(decoded, SchemaRecord):
                schemas.learn(decoded)
            elif isinstance(decoded, RowRecord) and decoded.source.database == database:
                assert decoded.change.after is not None
                arrived.setdefault(int(str(decoded.change.after["beat"])), at_s)
    print_stamps(arrived)


if __name__ == "__main__":
    _subscribe(sys.argv[1], sys.argv[2], int(sys.argv[3]))
