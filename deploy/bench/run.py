"""``make bench``: the figures of capture and apply, each beside a peer that did the same in the same run.

    capture.bulk          600,000 row changes wait in the source's binlog; rows/s from the first to the last record that
                          a subscriber could read. Peer: python-mysql-replication decoding the same, no output.
    apply.bulk            the same changes wait in the topic; rows/s until the target has them all.
                          Peer: a native replica with 4 workers that has the same stretch of binlog to apply.
    capture.latency.*     at 500 source transactions a second: from the statement on the source to a subscriber, ms
    apply.latency.*       the same to a client of the target

Everything runs on this machine, servers included: they share its cores. JSON lines stand alone on standard output; what
is going on is told on standard error.
"""

import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from consumer.topic.kafka import TopicReader
from deploy.bench import load, peers
from deploy.bench.figure import Figure
from deploy.demo.observe import Sightings, watch_target, watch_topic
from deploy.servers import sql
from deploy.services import APPLY_TASK, CAPTURE_TASK, TOPIC
from deploy.stack import LocalStack, StackOptions
from deploy.workload.shop import Connect, Connection, Pulse, create_shop
from millrace.errors import Fatal
from millrace.home import home
from schemas.gtid import Flavour
from schemas.status import TaskReport
from zk.session import Session
from zk.status import read_status
from zk.tree import Tree

POLL_S = 0.02
WAIT_S = 600.0
LATENCY_S = 20.0
LATENCY_RATE = 500.0
PULSE_S = 0.02
DECODER = "python-mysql-replication, decode only"
REPLICA = f"native replica, {peers.REPLICA_WORKERS} workers"


def run_bench(flavour: Flavour, *, changes: int = load.CHANGES) -> None:
    """Measure all of it and print the lines."""
    folder = home() / "run"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=folder) as name:
        options = StackOptions(flavour=flavour, replica_count=1)
        with LocalStack(Path(name), options, say=_say) as stack:
            _latency(stack)
            _bulk(stack, changes)


def _bulk(stack: LocalStack, changes: int) -> None:
    for task in (CAPTURE_TASK, APPLY_TASK):
        stack.run_command("task", "pause", task)
    source = stack.source.primary
    beginning = source.gtid_position()
    _say(f"{changes:,} row changes on the source")
    load.create_load(_connect(stack))
    load.run_load(_connect(stack), changes=changes)
    stack.source.wait_for_replicas(timeout_s=WAIT_S)
    with closing(Session.open(stack.zookeeper.hosts)) as session:
        _say("capture.bulk")
        stack.run_command("task", "resume", CAPTURE_TASK)
        captured_to = _report(session, CAPTURE_TASK).seq + changes
        with closing(TopicReader(stack.kafka.bootstrap, TOPIC)) as reader:
            captured = _rate(
                lambda: reader.ends().stable,
                until=lambda: _report(session, CAPTURE_TASK).seq >= captured_to,
            )
        account = peers.make_account(source)
        decoded = peers.decode_rate(
            source, account, beginning, database=load.DATABASE, rows=changes
        )
        _print(Figure("capture.bulk", captured, "rows/s", DECODER, decoded))
        _say("apply.bulk")
        stack.run_command("task", "resume", APPLY_TASK)
        applied_to = _report(session, CAPTURE_TASK).seq
        applied = _rate(
            lambda: _report(session, APPLY_TASK).seq,
            until=lambda: _report(session, APPLY_TASK).seq >= applied_to,
        )
    folder = stack.folder / "peer"
    replica = peers.replica_rate(source, account, beginning, folder, rows=changes)
    _print(Figure("apply.bulk", applied, "rows/s", REPLICA, replica))


def _rate(position: Callable[[], int], *, until: Callable[[], bool]) -> float:
    """How fast ``position`` grows: from where it first moved to where it last did, once ``until`` holds."""
    start = seen = position()
    marks: list[tuple[float, int]] = []
    deadline = time.monotonic() + WAIT_S
    is_done = False
    while not is_done:
        is_done = until()  # asked first: what was done then is seen below
        if (now := position()) != seen:
            seen = now
            marks.append((time.monotonic(), now))
        if time.monotonic() > deadline:
            raise Fatal("MR-8004", f"from {start} only {seen} was reached within {WAIT_S:.0f} s")
        time.sleep(POLL_S)
    (begin_s, first), (end_s, last) = marks[0], marks[-1]
    return (last - first) / (end_s - begin_s)


def _latency(stack: LocalStack) -> None:
    _say(f"latency at {LATENCY_RATE:.0f} transactions a second for {LATENCY_S:.0f} s")
    shop = _connect(stack, "shop")
    create_shop(_connect(stack))
    stack.run_command("task", "wait", APPLY_TASK, "--timeout", "90")
    target = _connect_target(stack)
    topic_watcher, target_watcher = watch_topic(stack.kafka.bootstrap, TOPIC), watch_target(target)
    stop = threading.Event()
    others = [threading.Thread(target=_tick, args=(shop, n, stop)) for n in range(2)]
    with topic_watcher, target_watcher, Pulse(shop, interval_s=PULSE_S):
        for thread in others:
            thread.start()
        stop.wait(LATENCY_S)
        stop.set()
        for thread in others:
            thread.join()
    for name, seen in (("capture", topic_watcher.seen), ("apply", target_watcher.seen)):
        for share in (0.5, 0.99):
            _print(Figure(f"{name}.latency.p{share * 100:.0f}", _age(seen, share), "ms"))


def _tick(connect: Connect, number: int, stop: threading.Event) -> None:
    """One-row transactions, half of the rate that the pulse leaves."""
    pause_s = 2 / (LATENCY_RATE - 1 / PULSE_S)
    with closing(connect()) as connection:
        cursor = connection.cursor()
        key = (number + 1) * 1_000_000
        due = time.monotonic()
        while not stop.is_set():
            key += 1
            cursor.execute("INSERT INTO orders VALUES (%s, 1, 'open', NOW(6), 1.5, 0)", (key,))
            connection.commit()
            due += pause_s
            if (rest := due - time.monotonic()) > 0:
                time.sleep(rest)


def _age(seen: Sightings, share: float) -> float:
    age = seen.percentile(share)
    if age is None:
        raise Fatal("MR-8004", "nothing was seen")
    return age


def _report(session: Session, task: str) -> TaskReport:
    standing = read_status(session, Tree("default"), task)
    if standing is None:
        raise Fatal("MR-8004", f"task {task} has no status")
    return standing.report


def _connect(stack: LocalStack, database: str | None = None) -> Connect:
    def connect() -> Connection:
        return sql.open_root(stack.source.primary.socket, database=database)

    return connect


def _connect_target(stack: LocalStack) -> Connect:
    return lambda: sql.open_root(stack.target.socket)


def _print(figure: Figure) -> None:
    print(figure.as_line(), flush=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
