"""Backlogs that capture catches up with. ``capture.bulk``: the load of ``deploy.bench.load``, beside a bare producer.

The peer sends the same records (keys and values, byte for byte) in Kafka transactions of the same sizes to another
topic of the same broker, from memory. That is what capture would reach without receiving, storing, converting and
auditing. It uses the same client with the same settings, and its bulk call.

``capture.small``: one-row transactions, beside Debezium's MySQL connector.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from millrace.deploy.bench.apply import workloads
from millrace.deploy.bench.capture.backlog import Backlog, capture_backlog, end_clock, write_backlog
from millrace.deploy.bench.capture.debezium.peer import PEER as DEBEZIUM
from millrace.deploy.bench.capture.debezium.peer import Debezium, debezium, debezium_jars, topics_of
from millrace.deploy.bench.capture.topics import RECORD_BYTES_MAX, create_topic
from millrace.deploy.bench.figure import Figure, Size, announced_rounds, say
from millrace.deploy.bench.scene import Scene, open_capture
from millrace.deploy.local.services import TOPIC
from millrace.drivers.kafka.bulk import Bounds, Octets
from millrace.drivers.kafka.reader import TopicReader
from millrace.schemas.documents import Brokers
from millrace.schemas.record.control import RecordKind
from millrace.schemas.record.framing import peek_kind

BULK, SMALL = "capture.bulk", "capture.small"
SIZE = 4  # the load's own size gives five Kafka transactions, too few to time
PEER = "bare transactional producer, the same records"


SMALL_TRANSACTIONS = 200_000
SMALL_WARM_UP = 0.25


@dataclass(frozen=True, slots=True)
class KafkaTransaction:
    """The records of one Kafka transaction, as ``Transactions.add_slices`` takes them."""

    buffer: Octets
    bounds: Bounds


def bulk_figures(size: Size) -> Iterator[Figure]:
    """The line. A first round warms up both; then each round measures capture and the peer, one after the other."""
    ours, bare = [], []
    workload = workloads.bulk()
    with open_capture(size.flavour) as scene:
        for number in announced_rounds(size):
            changes = workload.sized(SIZE * size.scale * (1.0 if number else workload.warm_up))
            backlog = capture_backlog(scene, write_backlog(scene, workload, changes))
            peer = bare_rate(scene, read_transactions(scene, backlog), f"bare-{number}")
            say(f"  bare producer {peer:,.0f}/s: ratio {backlog.rate / peer:.2f}")
            if number:
                ours.append(backlog.rate)
                bare.append(peer)
    yield Figure(BULK, median(ours), "records/s", PEER, median(bare))


def small_figures(size: Size) -> Iterator[Figure]:
    """The line; without Debezium's artifacts, or on MariaDB, it has no peer."""
    workload = replace(workloads.small(), changes=SMALL_TRANSACTIONS)
    jars = debezium_jars(size.flavour)
    with open_capture(size.flavour) as scene, ExitStack() as undo:
        peer = None
        if jars is not None:
            topics_of(scene.bootstrap, workload).create()
            peer = undo.enter_context(debezium(scene, jars, f"{workload.database}[.].*"))
        ours, theirs = zip(*_small_rounds(scene, workload, size, peer), strict=True)
    name, rate = (None, None) if peer is None else (DEBEZIUM, median(theirs))
    yield Figure(SMALL, median(ours), "transactions/s", name, rate)


def _small_rounds(
    scene: Scene, workload: workloads.Workload, size: Size, peer: Debezium | None
) -> Iterator[tuple[float, float]]:
    """Capture's rate and the peer's, of each round after the warm-up."""
    for number in announced_rounds(size):
        changes = workload.sized(size.scale * (1.0 if number else SMALL_WARM_UP))
        count = write_backlog(scene, workload, changes)
        ours = capture_backlog(scene, count).rate
        topics = topics_of(scene.bootstrap, workload)
        theirs = 0.0 if peer is None else peer.rate(count, topics)
        if theirs:
            say(f"  Debezium {theirs:,.0f}/s: ratio {ours / theirs:.2f}")
        if number:
            yield ours, theirs


def read_transactions(scene: Scene, backlog: Backlog) -> list[KafkaTransaction]:
    """The Kafka transactions of a backlog: each ends with its ``resolved`` record."""
    transactions: list[KafkaTransaction] = []
    records: list[tuple[bytes | None, bytes]] = []
    with closing(TopicReader(Brokers(scene.bootstrap), TOPIC)) as reader:
        for chunk in reader.chunks(backlog.first, backlog.end):
            for record in chunk:
                records.append((record.key, record.value))
                if peek_kind(record.value) is RecordKind.RESOLVED:
                    transactions.append(_packed(records))
                    records = []
    counts = [len(each.bounds) for each in transactions]
    say(f"  {len(transactions)} Kafka transactions of up to {max(counts):,} records")
    return transactions


def bare_rate(scene: Scene, transactions: list[KafkaTransaction], topic: str) -> float:
    """Records per second of the bare producer."""
    driver = create_topic(scene.bootstrap, topic)
    producer = driver.transactions(RECORD_BYTES_MAX)
    producer.init()
    end = sum(len(each.bounds) + 1 for each in transactions)
    with end_clock(scene.bootstrap, topic) as clock:
        for each in transactions:
            producer.begin()
            producer.add_slices(each.buffer, each.bounds)
            producer.flush()
            producer.commit()
        clock.wait_for(lambda reached: reached >= end)
    producer.discard()
    return clock.rate()


def _packed(records: list[tuple[bytes | None, bytes]]) -> KafkaTransaction:
    """Keys and values one after another in one buffer."""
    lengths = np.array([(-1 if key is None else len(key), len(value)) for key, value in records])
    sizes = np.maximum(lengths, 0).reshape(-1)
    ends = np.cumsum(sizes).reshape(-1, 2)
    bounds = np.empty((len(records), 4), np.int64)
    bounds[:, 1], bounds[:, 3] = ends[:, 0], ends[:, 1]
    bounds[:, 0], bounds[:, 2] = ends[:, 0] - sizes[0::2], ends[:, 0]
    bounds[lengths[:, 0] < 0, :2] = -1
    joined = b"".join(part for pair in records for part in pair if part is not None)
    return KafkaTransaction(np.frombuffer(joined, np.uint8), bounds)
