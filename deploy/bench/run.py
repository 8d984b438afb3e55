"""``make bench``: the figures of capture. What each one means is in ``docs/bench.md``.

Only JSON lines go to standard output. Progress goes to standard error.
"""

import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from deploy.bench import load, peers
from deploy.bench.figure import Figure
from deploy.local.readiness import task_report
from deploy.local.services import APPLY_TASK, CAPTURE_TASK, TOPIC
from deploy.local.stack import LocalStack, StackOptions
from deploy.servers import sql
from deploy.workload.beats import (
    Arrivals,
    percentile,
    watch_topic,
    write_beats,
)
from deploy.workload.shop import Connect, create_shop
from drivers.kafka.reader import TopicReader
from millrace.background import Background
from millrace.errors import Fatal
from millrace.home_folder import home
from schemas.documents import Brokers
from schemas.gtid import Flavour
from zk.client.session import Session

POLL_S = 0.02
WAIT_S = 600.0
WARM_UP_S = 30.0  # a driver's first 20 s are slower: the JVM compiles
LATENCY_S = 30.0
ARRIVE_S = 600.0
LATENCY_RATE = 500.0
LATENCY_WRITERS = 2
BEAT_S = 0.02
DECODER = "python-mysql-replication, decode only"


def run_bench(flavour: Flavour, *, changes: int = load.CHANGES) -> None:
    folder = home() / "run"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=folder) as name:
        options = StackOptions(flavour=flavour, replica_count=1)
        with LocalStack(Path(name), options, say=_say) as stack:
            _latency(stack)
            _bulk(stack, changes)


def _latency(stack: LocalStack) -> None:
    """Offer ``LATENCY_RATE`` source transactions a second, drop the warm-up, and measure what follows."""
    _say(f"latency: {WARM_UP_S:.0f} s of warm-up, then {LATENCY_S:.0f} s measured")
    root = partial(sql.open_root, stack.source.primary.socket)
    create_shop(root)
    stack.run_command("task", "wait", APPLY_TASK, "--timeout", str(WAIT_S))
    shop = partial(root, database="shop")
    acknowledged: dict[int, float] = {}
    commits: list[float] = []
    topic = watch_topic(Arrivals(acknowledged), stack.endpoints.brokers(), TOPIC)
    first, second = (
        Background(f"orders {number}", partial(_write_orders, shop, number, commits))
        for number in range(LATENCY_WRITERS)
    )
    with topic:
        with write_beats(acknowledged, shop, interval_s=BEAT_S), first, second:
            time.sleep(WARM_UP_S)
            since_s = time.monotonic()
            time.sleep(LATENCY_S)
            until_s = time.monotonic()
        if not topic.wait_complete(ARRIVE_S):
            missing = len(topic.arrivals.missing())
            raise Fatal("MR-8004", f"{missing} beats did not arrive within {ARRIVE_S:.0f} s")
    done = [at_s for at_s in (*acknowledged.values(), *commits) if since_s <= at_s < until_s]
    _print(Figure("latency.load", len(done) / (until_s - since_s), "transactions/s"))
    latencies = topic.arrivals.latencies_ms(since_s, until_s)
    for share in (0.5, 0.99):
        value = percentile(latencies, share)
        if value is None:
            raise Fatal("MR-8004", "no beat was written while latency was measured")
        _print(Figure(f"capture.latency.p{share * 100:.0f}", value, "ms"))


def _write_orders(
    connect: Connect, number: int, commits: list[float], stop: threading.Event
) -> None:
    """One-row transactions at this writer's share of the rate that beats leave; notes when each was acknowledged."""
    pause_s = LATENCY_WRITERS / (LATENCY_RATE - 1 / BEAT_S)
    with closing(connect()) as connection:
        cursor = connection.cursor()
        key = (number + 1) * 1_000_000
        due_s = time.monotonic()
        while not stop.wait(max(due_s - time.monotonic(), 0.0)):
            key += 1
            cursor.execute("INSERT INTO orders VALUES (%s, 1, 'open', NOW(6), 1.5, 0)", (key,))
            connection.commit()
            commits.append(time.monotonic())
            due_s += pause_s


def _bulk(stack: LocalStack, changes: int) -> None:
    """Write the load while both tasks are paused, then time capture."""
    for task in (CAPTURE_TASK, APPLY_TASK):
        stack.run_command("task", "pause", task)
    source = stack.source.primary
    beginning = source.gtid_position()
    _say(f"writing {changes:,} row changes to the source")
    connect = partial(sql.open_root, source.socket)
    load.create_load(connect)
    load.run_load(connect, changes=changes)
    stack.source.wait_for_replicas(timeout_s=WAIT_S)
    with closing(Session.open(stack.zookeeper.hosts)) as session:
        _say("capture.bulk")
        stack.run_command("task", "resume", CAPTURE_TASK)
        captured_to = task_report(session, CAPTURE_TASK).seq + changes
        with closing(TopicReader(Brokers(stack.kafka.bootstrap), TOPIC)) as reader:
            captured = _rate(
                lambda: reader.ends().stable,
                until=lambda: task_report(session, CAPTURE_TASK).seq >= captured_to,
            )
        account = peers.make_account(source)
        decoded = peers.decode_rate(
            source, account, beginning, database=load.DATABASE, rows=changes
        )
        _print(Figure("capture.bulk", captured, "rows/s", DECODER, decoded))


def _rate(position: Callable[[], int], *, until: Callable[[], bool]) -> float:
    """How fast ``position`` grows, from its first to its last observed move, once ``until`` holds."""
    start = seen = position()
    moves: list[tuple[float, int]] = []
    deadline = time.monotonic() + WAIT_S
    is_done = False
    while not is_done:
        is_done = until()  # asked first, so that the last move is seen below
        if (now := position()) != seen:
            seen = now
            moves.append((time.monotonic(), now))
        if time.monotonic() > deadline:
            raise Fatal("MR-8004", f"only {seen} was reached from {start} within {WAIT_S:.0f} s")
        time.sleep(POLL_S)
    if len(moves) < 2:
        what = f"{seen - start} changes arrived at once: too few for a rate"
        raise Fatal("MR-8004", what, fix="Measure more changes with `--changes`.")
    (begin_s, first), (end_s, last) = moves[0], moves[-1]
    return (last - first) / (end_s - begin_s)


def _print(figure: Figure) -> None:
    print(figure.as_line(), flush=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
