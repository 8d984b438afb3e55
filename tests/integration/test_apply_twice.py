"""Repeated application on real targets: at once, later, or with other batch cuts. Each row appears once.

Spark is configured not to repeat tasks, but an executor that it dropped may still run. The target keeps rows exact.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count

import pytest

from consumer import runner
from consumer.apply import executor
from consumer.apply.batch import BatchApplier
from consumer.apply.executor import Order, Outcome
from consumer.row_schemas import Ints
from consumer.sql.table_plans import Catalogue
from consumer.target import fence
from consumer.target.connection import Endpoint, TargetConnection
from consumer.target.progress import Owner, SavedProgress, read_saved_progress
from consumer.target.sessions import open_session
from deploy.servers import DatabaseServer
from millrace.errors import Fenced, Retryable
from tests.kit.apply.local import (
    LaneCall,
    LocalRecords,
    WatchedRecords,
    apply_task,
    ignore,
    started,
)
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import RecordStream
from tests.kit.waiting import until_locked_out

ROWS = 40

_names = count(1)


@pytest.fixture
def name(target_server: DatabaseServer) -> Iterator[str]:
    """Name of a database and task; the database is dropped after the test."""
    made = f"twice{next(_names)}_{target_server.flavour}"
    target_server.execute(f"CREATE DATABASE {made} DEFAULT CHARSET utf8mb4")
    target_server.execute("CREATE TABLE bag (n INT)", db=made)
    target_server.execute("CREATE TABLE sums (id INT PRIMARY KEY, n INT)", db=made)
    yield made
    target_server.execute(f"DROP DATABASE {made}")


@pytest.fixture
def own_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives each thread its own session, as each Python worker has one."""
    mine = threading.local()

    def session_for(endpoint: Endpoint, owner: Owner) -> TargetConnection:
        if getattr(mine, "key", None) != (endpoint, owner) or not mine.session.is_open:
            mine.key, mine.session = (endpoint, owner), open_session(endpoint, owner)
        session: TargetConnection = mine.session
        return session

    monkeypatch.setattr(executor, "session_for", session_for)


def _stream(name: str) -> RecordStream:
    """Rows that any repetition would change: a table without a key and counter updates."""
    stream = RecordStream()
    bag, sums = (
        table(name, "bag", integer("n"), key=()),
        table(name, "sums", integer("id"), integer("n")),
    )
    for number in range(ROWS):
        stream.insert(bag, {"n": number})
        if number < 4:
            stream.insert(sums, {"id": number, "n": 0})
        else:
            key, times = number % 4, number // 4
            stream.update(sums, {"id": key, "n": times - 1}, {"id": key, "n": times})
    stream.commit()
    return stream


def _check(server: DatabaseServer, name: str) -> None:
    assert server.execute(f"SELECT COUNT(*), SUM(n) FROM {name}.bag") == [(ROWS, sum(range(ROWS)))]
    assert server.execute(f"SELECT n FROM {name}.sums") == [(ROWS // 4 - 1,)] * 4


class _Gate:
    """Holds the first execution at its commit until opened; then the execution commits or dies."""

    def __init__(self, *, dies: bool) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        self._dies = dies

    def __call__(self, point: str) -> None:
        if point == executor.BEFORE_LANE_COMMIT and not self.reached.is_set():
            self.reached.set()
            assert self.opened.wait(120)
            if self._dies:
                raise Retryable("MR-9002", "the execution dies")


@dataclass
class _ExecutedTwice(LocalRecords):
    """Executes the first Spark task twice; the second starts when the first is at its commit."""

    gate: _Gate = field(default_factory=lambda: _Gate(dies=False))
    server: DatabaseServer | None = None
    ends: list[str] = field(default_factory=list)

    def serial(self, order: Order, catalogue: Catalogue, applied: Ints) -> Outcome:
        """Execute the batch twice."""
        return self._twice(lambda: super(_ExecutedTwice, self).serial(order, catalogue, applied))

    def lanes(
        self, order: Order, catalogue: Catalogue, applied: Ints, *, offsets: Ints, lanes: Ints
    ) -> list[Outcome]:
        """Execute the first lane twice."""
        call = LaneCall.of(self, order, catalogue, applied, offsets=offsets, lanes=lanes)
        first = self._twice(lambda: call.apply(0))
        return [first, *(call.apply(lane) for lane in range(1, len(call.offsets)))]

    def _twice(self, work: Callable[[], Outcome]) -> Outcome:
        with ThreadPoolExecutor(2) as tasks:
            first = tasks.submit(work)
            assert self.gate.reached.wait(120)
            second = tasks.submit(work)
            assert self.server is not None
            until_locked_out(self.server, what="the second waits for the first")
            self.gate.opened.set()
            done = [self._ended(task) for task in (first, second)]
        return next(outcome for outcome in done if outcome is not None)

    def _ended(self, task: "Future[Outcome]") -> Outcome | None:
        try:
            outcome = task.result(120)
        except Retryable as exc:
            self.ends.append(exc.code)
            return None
        self.ends.append("")
        return outcome


@pytest.mark.usefixtures("own_sessions")
@pytest.mark.parametrize(
    ("is_large", "dies", "ends"),
    [
        (True, False, ["", ""]),
        (True, True, ["MR-9002", ""]),
        (False, False, ["", "MR-5021"]),
        (False, True, ["MR-9002", ""]),
    ],
    ids=["lane", "lane, first dies", "serial lane", "serial lane, first dies"],
)
def test_concurrent_executions_of_one_spark_task_apply_once(
    name: str,
    target_server: DatabaseServer,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_large: bool,
    dies: bool,
    ends: list[str],
) -> None:
    """The second execution waits until the first has ended, then does nothing or all of the work."""
    stream = _stream(name)
    gate = _Gate(dies=dies)
    monkeypatch.setattr(executor, "fault_point", gate)
    applier = started(target_server, apply_task(name, lanes=2))
    records = _ExecutedTwice(stream.values, is_large=is_large, gate=gate, server=target_server)
    applier.process(records, ignore)
    applier.close()
    assert records.ends == ends
    assert applier.mark.seq == stream.seq
    _check(target_server, name)


def _applied_lanes(server: DatabaseServer, name: str) -> LaneCall:
    """Apply the whole stream in lanes, move the mark, and return the call that applied the lanes."""
    applier = started(server, apply_task(name, lanes=5))
    records = WatchedRecords(_stream(name).values)
    applier.process(records, ignore)
    applier.close()
    _check(server, name)
    (call,) = records.calls
    return call


def test_late_lane_of_the_same_run_writes_nothing(name: str, target_server: DatabaseServer) -> None:
    """The bitmap was removed when the mark moved, so the mark refuses a late execution."""
    call = _applied_lanes(target_server, name)
    for lane in range(len(call.offsets)):
        with pytest.raises(Retryable) as caught:
            call.apply(lane)
        assert caught.value.code == "MR-5021"
    _check(target_server, name)


def test_lane_of_an_earlier_run_writes_nothing(name: str, target_server: DatabaseServer) -> None:
    """Its run is over, wherever the mark is."""
    call = _applied_lanes(target_server, name)
    started(target_server, apply_task(name)).close()
    target_server.execute(
        "UPDATE millrace.progress SET seq = 0, next_offset = -2 WHERE task = %s", (name,)
    )
    with pytest.raises(Fenced):
        call.apply(0)
    _check(target_server, name)


def test_second_execution_with_other_cuts_loses_nothing(
    name: str, target_server: DatabaseServer
) -> None:
    """A partial lane does not count as done when the second execution cut its Arrow batches elsewhere."""
    stream = _stream(name)
    applier = started(target_server, apply_task(name, lanes=2))
    with pytest.raises(Retryable) as caught:
        applier.process(_CutDifferently(stream.values, arrow_rows=30), ignore)
    applier.close()
    assert caught.value.code == "MR-5021"
    again = started(target_server, apply_task(name, lanes=3))
    assert 0 < len(again.applied) < stream.seq
    again.process(LocalRecords(stream.values), ignore)
    again.close()
    _check(target_server, name)


class _CutDifferently(LocalRecords):
    """The first execution of a lane dies after its first part; the second cuts its Arrow batches elsewhere."""

    def lanes(
        self, order: Order, catalogue: Catalogue, applied: Ints, *, offsets: Ints, lanes: Ints
    ) -> list[Outcome]:
        """One lane."""
        call = LaneCall.of(self, order, catalogue, applied, offsets=offsets, lanes=lanes)
        replace(call, offsets=(call.offsets[0][:5],)).apply(0)
        return [call.apply(lane) for lane in range(2)]


def test_later_of_two_concurrent_first_starts_owns_the_mark(
    name: str, target_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both found no mark; the one that raised the fence first writes none and blocks no other run."""
    others: list[BatchApplier] = []

    def read_then_lose_the_race(session: TargetConnection, task: str) -> SavedProgress:
        found = read_saved_progress(session, task)
        monkeypatch.undo()
        others.append(started(target_server, apply_task(name)))
        return found

    monkeypatch.setattr(runner, "read_saved_progress", read_then_lose_the_race)
    with pytest.raises(Fenced):
        started(target_server, apply_task(name))
    (other,) = others
    other.process(LocalRecords(_stream(name).values), ignore)
    other.close()
    _check(target_server, name)


def test_lane_cannot_commit_after_its_successor_read_progress(
    name: str, target_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lane holds a shared lock on the fence until its commit; a successor that kills it finds no row."""
    monkeypatch.setattr(fence, "HUNG_S", 0.3)
    successors: list[BatchApplier] = []

    def start_successor(point: str) -> None:
        if point == executor.BEFORE_LANE_COMMIT and not successors:
            successors.append(started(target_server, apply_task(name)))

    monkeypatch.setattr(executor, "fault_point", start_successor)
    stale = started(target_server, apply_task(name, lanes=1))
    with suppress(Fenced, Retryable):
        stale.process(LocalRecords(_bag_only(name).values), ignore)
    (successor,) = successors
    stale.close()
    assert (successor.mark.seq, len(successor.applied)) == (0, 0)
    assert target_server.execute(f"SELECT COUNT(*) FROM {name}.bag") == [(0,)]
    successor.close()


def _bag_only(name: str) -> RecordStream:
    stream = RecordStream()
    for number in range(ROWS):
        stream.insert(table(name, "bag", integer("n"), key=()), {"n": number})
    stream.commit()
    return stream
