"""The course of ``millrace demo``.

    1 start       real servers and our processes, configured with the commands that a user types
    2 one row     an UPDATE on the source, its record in the topic, the row on the target
    3 the shop    about 10 s of mixed workload, with a live view
    4 wait        until everything committed is applied (`millrace task wait`)
    5 compare     every row of every table (`millrace compare`)
    6 summary     changes captured and applied, latencies, differences

The exit code is 1 if anything differs. In every case all processes end and all data is removed.
"""

import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from millrace.deploy.demo.view import LiveView, Stage
from millrace.deploy.local.readiness import task_report
from millrace.deploy.local.services import APPLY_TASK, CAPTURE_TASK, TOPIC
from millrace.deploy.local.stack import LocalStack, StackOptions
from millrace.deploy.servers import sql
from millrace.deploy.workload.beats import (
    Arrivals,
    percentile,
    watch_target,
    watch_topic,
    write_beats,
)
from millrace.deploy.workload.shop import Counts, create_shop, run_shop
from millrace.drivers.kafka.reader import TopicReader
from millrace.errors import Fatal
from millrace.home_folder import home
from millrace.schemas.record.control import SchemaRecord
from millrace.schemas.record.record import KnownSchemas, RowRecord, decode_record
from millrace.schemas.status import TaskReport
from millrace.wording import counted

DURATION_S = 10.0
WAIT_S = 300
ROW_POLL_S = 0.02
ARRIVE_S = 30.0  # later beats are left out: `task wait` reports a task that does not move
SHOWN_CUSTOMER = 7


@dataclass(frozen=True, slots=True)
class ShopRun:
    """The figures of the summary. The tasks' reports add the number of rows and DDL statements (``seq``)."""

    counts: Counts
    topic: Arrivals
    target: Arrivals


def run_demo(options: StackOptions, *, duration_s: float = DURATION_S, seed: int = 1) -> int:
    """Run the demonstration; returns the exit code."""
    console = Console(highlight=False)
    folder = home() / "run"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="demo-", dir=folder) as name:
        stack = LocalStack(Path(name), options, say=console.print)
        with ExitStack() as ends:
            ends.callback(stack.stop)
            # the apply driver reads its first rows while the rest still starts
            stack.start(
                before_services=lambda: create_shop(
                    partial(sql.open_root, stack.source.primary.socket)
                )
            )
            return _run(stack, console, duration_s=duration_s, seed=seed)


def _run(stack: LocalStack, console: Console, *, duration_s: float, seed: int) -> int:
    _show_one_update(stack, console)
    console.rule(f"a shop at work for {duration_s:.0f} s")
    return conclude(stack, console, _run_shop(stack, console, duration_s=duration_s, seed=seed))


def conclude(stack: LocalStack, console: Console, run: ShopRun) -> int:
    """Wait, compare, verify, summarize; 1 if anything differs."""
    console.print(f"$ millrace task wait {APPLY_TASK} --timeout {WAIT_S}")
    _wait_applied(stack)
    console.print(f"$ millrace compare {APPLY_TASK}")
    differences = _compare(stack, console)
    console.print(f"$ millrace topic verify {TOPIC}")
    console.print(stack.run_command("topic", "verify", TOPIC).rstrip())
    with closing(stack.ensemble.open()) as session:
        reports = [task_report(session, task) for task in (CAPTURE_TASK, APPLY_TASK)]
    _summarize(console, run, reports, is_equal=differences == 0)
    return 1 if differences else 0


def _run_shop(stack: LocalStack, console: Console, *, duration_s: float, seed: int) -> ShopRun:
    source = partial(sql.open_root, stack.source.primary.socket, database="shop")
    counts = Counts()
    acknowledged: dict[int, float] = {}
    topic = watch_topic(Arrivals(acknowledged), stack.endpoints.brokers(), TOPIC)
    target = watch_target(
        Arrivals(acknowledged), partial(sql.open_root, stack.target.socket, database="shop")
    )

    with closing(stack.ensemble.open()) as session:

        def read_stages() -> list[Stage]:
            capture, apply = (task_report(session, task) for task in (CAPTURE_TASK, APPLY_TASK))
            return [
                Stage("source", counts.rows, None, counted(counts.committed, "transaction")),
                stage_of("topic", capture, topic.arrivals),
                stage_of("target", apply, target.arrivals),
            ]

        with topic, target:
            with write_beats(acknowledged, source), LiveView(console, read_stages):
                run_shop(source, duration_s=duration_s, seed=seed, counts=counts)
            for observer in (topic, target):
                observer.wait_complete(ARRIVE_S)
    return ShopRun(counts, topic.arrivals, target.arrivals)


def stage_of(name: str, report: TaskReport, arrivals: Arrivals) -> Stage:
    """A line of the live view: a task's progress, and the age of the newest beat that arrived."""
    note = f"{report.state.value}: {report.why}"[:70]
    return Stage(name, report.seq, arrivals.age_now_ms(), note)


def _show_one_update(stack: LocalStack, console: Console) -> None:
    """Show the row on the source, its record, and the row on the target."""
    query = f"SELECT * FROM customers WHERE id = {SHOWN_CUSTOMER}"
    statement = f"UPDATE customers SET name = 'Grace', tags = 'gold' WHERE id = {SHOWN_CUSTOMER}"
    console.rule("one row, from source to target")
    console.print(f"source> {statement}", markup=False)
    stack.source.primary.execute(statement, db="shop")
    row = stack.source.primary.execute(query, db="shop")[0]
    console.print(f"        {row}", markup=False)
    if not _arrives(stack, query, row):
        _wait_applied(stack)  # raises the error of a task that is blocked
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


def _arrives(stack: LocalStack, query: str, row: sql.Row) -> bool:
    """Whether the target's answer to ``query`` becomes ``row`` within ``ARRIVE_S``. Its table may not exist yet."""
    exists = "SELECT 1 FROM information_schema.tables WHERE table_schema = 'shop' AND table_name = 'customers'"
    deadline_s = time.monotonic() + ARRIVE_S
    while time.monotonic() < deadline_s:
        if stack.target.execute(exists) and stack.target.execute(query, db="shop") == [row]:
            return True
        stack.check_services()
        time.sleep(ROW_POLL_S)
    return False


def _last_update(stack: LocalStack) -> RowRecord:
    reader = TopicReader(stack.endpoints.brokers(), TOPIC)
    known = KnownSchemas()
    found: RowRecord | None = None
    try:
        ends = reader.ends()
        for chunk in reader.chunks(ends.low, ends.stable):
            for record in chunk:
                decoded = decode_record(record.key, record.value, known)
                if isinstance(decoded, SchemaRecord):
                    known.learn(decoded)
                elif isinstance(decoded, RowRecord) and decoded.change.op == "u":
                    found = decoded
    finally:
        reader.close()
    if found is None:
        raise Fatal("MR-9001", "the demonstration's UPDATE is not in the topic")
    return found


def _wait_applied(stack: LocalStack) -> None:
    stack.run_command("task", "wait", APPLY_TASK, "--timeout", str(WAIT_S))


def _compare(stack: LocalStack, console: Console) -> int:
    """Run `millrace compare` and print its output; returns its exit code."""
    done = stack.try_command("compare", APPLY_TASK)
    console.print(done.stdout.rstrip() or done.stderr.rstrip(), markup=False)
    return done.returncode


def _summarize(
    console: Console, run: ShopRun, reports: Sequence[TaskReport], *, is_equal: bool
) -> None:
    counts = run.counts
    console.rule("summary")
    console.print(
        f"source   {counted(counts.committed, 'transaction')}, {counted(counts.rows, 'row change')} by the shop,"
        f" {counts.rolled_back:,} rolled back, {counted(counts.ddl, 'DDL statement')}"
    )
    stages = (("topic", "captured", run.topic), ("target", "applied", run.target))
    for (name, done, arrivals), report in zip(stages, reports, strict=True):
        latencies = arrivals.latencies_ms()
        p50, p99 = percentile(latencies, 0.5), percentile(latencies, 0.99)
        times = (
            f"p50 {p50:.0f} ms, p99 {p99:.0f} ms" if p50 is not None and p99 is not None else "-"
        )
        console.print(
            f"{name:<9}{counted(report.seq, 'change')} {done}, visible after {times}"
            f" ({counted(len(latencies), 'beat')})"
        )
    verdict = "none: every row of every table is equal" if is_equal else "see above"
    console.print(f"differences  {verdict}")
