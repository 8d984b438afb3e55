"""The course of ``millrace demo``.

    1 start       real servers and the service, configured by the commands that a user would type
    2 one row     an UPDATE on the source, the record in the topic, the row on the target
    3 the shop    about 20 s of mixed workload, with a live view
    4 wait        until everything committed is applied (`millrace task wait`)
    5 compare     every row of every table (`millrace compare`)
    6 summary     changes captured and applied, ages of what was visible, differences

The exit code is 1 on any difference. Whatever happens, nothing is left running and no data is kept.
"""

import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from consumer.topic.kafka import TopicReader
from deploy.demo.observe import Sightings, watch_target, watch_topic
from deploy.demo.view import LiveView, Stage
from deploy.servers import DatabaseServer, sql
from deploy.services import APPLY_TASK, CAPTURE_TASK, TOPIC
from deploy.stack import LocalStack, StackOptions
from deploy.workload.shop import Connect, Connection, Counts, Pulse, create_shop, run_shop
from millrace.errors import Fatal
from millrace.home import home
from schemas.control import SchemaRecord
from schemas.gtid import Flavour
from schemas.record import RowRecord, SchemaBook, decode_record
from schemas.status import TaskReport, TaskState
from zk.session import Session
from zk.status import read_status
from zk.tree import Tree

DURATION_S = 20.0
WAIT_S = 300
SHOWN_CUSTOMER = 7


@dataclass(frozen=True, slots=True)
class Course:
    """What happened, for the summary; how much was captured and applied the tasks say (``seq``: rows and DDL)."""

    counts: Counts
    topic: Sightings
    target: Sightings


def run_demo(flavour: Flavour, *, duration_s: float = DURATION_S, seed: int = 1) -> int:
    """Run it; the exit code."""
    console = Console(highlight=False)
    folder = home() / "run"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="demo-", dir=folder) as name:
        stack = LocalStack(Path(name), StackOptions(flavour=flavour), say=console.print)
        with stack:
            return _run(stack, console, duration_s=duration_s, seed=seed)


def _run(stack: LocalStack, console: Console, *, duration_s: float, seed: int) -> int:
    source = _connect_to(stack.source.primary)
    create_shop(source)
    _wait_applied(stack)
    _show_one_update(stack, console)
    console.rule(f"a shop at work for {duration_s:.0f} s")
    return conclude(stack, console, _work(stack, console, duration_s=duration_s, seed=seed))


def conclude(stack: LocalStack, console: Console, course: Course) -> int:
    """Wait, compare, verify, summarise; 1 when anything differs."""
    console.print(f"$ millrace task wait {APPLY_TASK} --timeout {WAIT_S}")
    _wait_applied(stack)
    console.print(f"$ millrace compare {APPLY_TASK}")
    differences = _compare(stack, console)
    console.print(f"$ millrace topic verify {TOPIC}")
    console.print(stack.run_command("topic", "verify", TOPIC).rstrip())
    with closing(Session.open(stack.zookeeper.hosts)) as session:
        reports = [_report(session, task) for task in (CAPTURE_TASK, APPLY_TASK)]
    _summarise(console, course, reports, is_equal=differences == 0)
    return 1 if differences else 0


def _work(stack: LocalStack, console: Console, *, duration_s: float, seed: int) -> Course:
    source = _connect_to(stack.source.primary, "shop")
    target = _connect_to(stack.target)
    counts = Counts()
    topic_watcher = watch_topic(stack.kafka.bootstrap, TOPIC)
    target_watcher = watch_target(target)

    with closing(Session.open(stack.zookeeper.hosts)) as session:

        def look() -> list[Stage]:
            capture, apply = (_report(session, task) for task in (CAPTURE_TASK, APPLY_TASK))
            return [
                Stage("source", counts.rows, None, f"{counts.committed} transactions"),
                _stage("topic", capture, topic_watcher.seen),
                _stage("target", apply, target_watcher.seen),
            ]

        with topic_watcher, target_watcher:
            with Pulse(source), LiveView(console, look):
                run_shop(source, duration_s=duration_s, seed=seed, counts=counts)
            for watcher in (topic_watcher, target_watcher):
                watcher.wait_seen(WAIT_S)
    return Course(counts, topic_watcher.seen, target_watcher.seen)


def _stage(name: str, report: TaskReport, seen: Sightings) -> Stage:
    return Stage(name, report.seq, seen.age_now_ms(), f"{report.state.value}: {report.why}"[:70])


def _report(session: Session, task: str) -> TaskReport:
    standing = read_status(session, Tree("default"), task)
    return TaskReport(TaskState.PENDING) if standing is None else standing.report


def _show_one_update(stack: LocalStack, console: Console) -> None:
    """The source row, the record, the target row."""
    query = f"SELECT * FROM customers WHERE id = {SHOWN_CUSTOMER}"
    statement = f"UPDATE customers SET name = 'Grace', tags = 'gold' WHERE id = {SHOWN_CUSTOMER}"
    console.rule("one row, all the way")
    console.print(f"source> {statement}", markup=False)
    stack.source.primary.execute(statement, db="shop")
    console.print(f"        {stack.source.primary.execute(query, db='shop')[0]}", markup=False)
    _wait_applied(stack)
    record = _last_update(stack)
    source = record.source
    console.print(
        f"topic>  seq {source.seq}  op {record.change.op}  {source.database}.{source.table}"
        f"  gtid {source.place.gtid}  {source.place.file}:{source.place.pos}",
        markup=False,
    )
    console.print(f"        before {dict(record.change.before or {})}", markup=False)
    console.print(f"        after  {dict(record.change.after or {})}", markup=False)
    console.print(f"target> {stack.target.execute(query, db='shop')[0]}", markup=False)


def _last_update(stack: LocalStack) -> RowRecord:
    reader = TopicReader(stack.kafka.bootstrap, TOPIC)
    book = SchemaBook()
    found: RowRecord | None = None
    try:
        ends = reader.ends()
        for chunk in reader.chunks(ends.low, ends.stable):
            for record in chunk:
                decoded = decode_record(record.key, record.value, book)
                if isinstance(decoded, SchemaRecord):
                    book.learn(decoded)
                elif isinstance(decoded, RowRecord) and decoded.change.op == "u":
                    found = decoded
    finally:
        reader.close()
    if found is None:
        raise Fatal("MR-9001", "the update is not in the topic")
    return found


def _wait_applied(stack: LocalStack) -> None:
    stack.run_command("task", "wait", APPLY_TASK, "--timeout", str(WAIT_S))


def _compare(stack: LocalStack, console: Console) -> int:
    """Differences found; the command's words are printed as they are."""
    done = stack.try_command("compare", APPLY_TASK)
    console.print(done.stdout.rstrip() or done.stderr.rstrip(), markup=False)
    return done.returncode


def _summarise(
    console: Console, course: Course, reports: Sequence[TaskReport], *, is_equal: bool
) -> None:
    counts = course.counts
    console.rule("summary")
    console.print(
        f"source   {counts.committed:,} transactions, {counts.rows:,} row changes by the shop,"
        f" {counts.rolled_back:,} rolled back, {counts.ddl} DDL statements"
    )
    stages = (("topic", "captured", course.topic), ("target", "applied", course.target))
    for (name, done, seen), report in zip(stages, reports, strict=True):
        p50, p99 = seen.percentile(0.5), seen.percentile(0.99)
        ages = f"p50 {p50:.0f} ms, p99 {p99:.0f} ms" if p50 is not None and p99 is not None else "-"
        console.print(
            f"{name:<9}{report.seq:,} changes {done}, visible after {ages}"
            f" ({len(seen.ages_ms):,} sightings)"
        )
    verdict = "none: every row of every table is equal" if is_equal else "see above"
    console.print(f"differences  {verdict}")


def _connect_to(server: DatabaseServer, database: str | None = None) -> Connect:
    def connect() -> Connection:
        return sql.open_root(server.socket, database=database)

    return connect
