"""Repeated application on real targets: at once, later, or with other cuts. Each row appears once.

Spark is configured not to repeat tasks, but an executor that it dropped may still run. The target keeps rows exact.
"""

import threading
from collections.abc import Iterator, MutableMapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count

import pytest

from millrace.consumer.target import fence
from millrace.consumer.target.progress import Mark, read_mark
from millrace.consumer.task import start
from millrace.consumer.turn import resident
from millrace.consumer.turn.context import Tools
from millrace.consumer.turn.order import Outcome, TurnOrder
from millrace.consumer.turn.resident import Resident
from millrace.consumer.write import target_transaction
from millrace.consumer.write.lanes import Work
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.connection import MySqlSession
from millrace.errors import Fenced, MillraceError, Retryable
from tests.kit.apply.local import (
    InlineLanes,
    LocalApplier,
    LocalRecords,
    apply_task,
    ignore,
    run_once,
    seqs_above_the_mark,
    started,
)
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import RecordStream

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


class _OfEachThread(MutableMapping[str, Resident]):
    """Each thread keeps its own state, as each Python worker does."""

    def __init__(self) -> None:
        self._local = threading.local()
        self.made: list[Resident] = []

    @property
    def _mine(self) -> dict[str, Resident]:
        return self._local.__dict__

    def __getitem__(self, place: str) -> Resident:
        return self._mine[place]

    def __setitem__(self, place: str, kept: Resident) -> None:
        self.made.append(kept)
        self._mine[place] = kept

    def __delitem__(self, place: str) -> None:
        del self._mine[place]

    def __iter__(self) -> Iterator[str]:
        return iter(self._mine)

    def __len__(self) -> int:
        return len(self._mine)


@pytest.fixture
def own_sessions(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Gives each thread its own sessions."""
    kept = _OfEachThread()
    monkeypatch.setattr(resident, "residents", kept)
    yield
    for one in kept.made:
        one.sessions.close()


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
        if point == target_transaction.BEFORE_LANE_COMMIT and not self.reached.is_set():
            self.reached.set()
            assert self.opened.wait(120)
            if self._dies:
                raise Retryable("MR-9002", "the execution dies")


@dataclass
class _ExecutedTwice(LocalRecords):
    """Executes the turn twice; the second starts and ends when the first is at its first commit."""

    gate: _Gate = field(default_factory=lambda: _Gate(dies=False))
    ends: list[str] = field(default_factory=list)

    def apply(self, order: TurnOrder) -> Outcome:
        """The outcome of the first execution."""
        execute = super().apply
        with ThreadPoolExecutor(2) as tasks:
            first = tasks.submit(execute, order)
            assert self.gate.reached.wait(120)
            refused = _code(tasks.submit(execute, order))
            self.gate.opened.set()
            self.ends = [_code(first), refused]
        return first.result()


def _code(task: "Future[Outcome]") -> str:
    try:
        task.result(120)
    except MillraceError as exc:
        return exc.code
    return ""


@pytest.mark.usefixtures("own_sessions")
@pytest.mark.parametrize("dies", [False, True], ids=["", "first dies"])
@pytest.mark.parametrize("is_large", [True, False], ids=["lanes", "one lane"])
def test_second_execution_of_one_spark_task_writes_nothing(
    name: str,
    target_server: DatabaseServer,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_large: bool,
    dies: bool,
) -> None:
    """It finds that the turn is taken, and ends no session of the first, even if the first dies."""
    monkeypatch.setattr(fence, "HUNG_S", 0.1)
    stream, task = _stream(name), apply_task(name, lanes=2)
    gate = _Gate(dies=dies)
    monkeypatch.setattr(target_transaction, "fault_point", gate)
    applier = started(target_server, task)
    records = _ExecutedTwice(stream.values, is_large=is_large, gate=gate)
    if dies:
        with pytest.raises(Retryable, match="MR-9002"):
            applier.process(records, ignore)
        assert target_server.execute(f"SELECT COUNT(*) FROM {name}.bag") == [(0,)]
        applier = started(target_server, task)
        applier.process(LocalRecords(stream.values, is_large=is_large), ignore)
    else:
        applier.process(records, ignore)
    assert records.ends == ["MR-9002" if dies else "", "MR-5020"]
    assert applier.mark.seq == stream.seq
    _check(target_server, name)


@dataclass
class _Watched(LocalRecords):
    """Keeps the orders."""

    orders: list[TurnOrder] = field(default_factory=list)

    def apply(self, order: TurnOrder) -> Outcome:
        """One turn."""
        self.orders.append(order)
        return super().apply(order)


def _applied_turn(server: DatabaseServer, name: str) -> tuple[_Watched, TurnOrder]:
    """Apply the whole stream in lanes; returns the records and the order of the turn."""
    applier = started(server, apply_task(name, lanes=5))
    records = _Watched(_stream(name).values)
    applier.process(records, ignore)
    applier.close()
    _check(server, name)
    (order,) = records.orders
    return records, order


def test_late_execution_of_a_turn_writes_nothing(name: str, target_server: DatabaseServer) -> None:
    """The turn is over and no other has begun: it took the fence from the owner that its order names."""
    records, order = _applied_turn(target_server, name)
    target_server.execute(
        "UPDATE millrace.progress SET seq = 0, next_offset = -2 WHERE task = %s", (name,)
    )
    with pytest.raises(Fenced) as caught:
        records.apply(order)
    assert caught.value.code == "MR-5020"
    _check(target_server, name)


def test_turn_of_an_earlier_run_writes_nothing(name: str, target_server: DatabaseServer) -> None:
    """Its run is over, wherever the mark is."""
    applier = started(target_server, apply_task(name))
    records = _Watched(_stream(name).values)
    run_once(target_server, apply_task(name), _stream(name))
    target_server.execute(
        "UPDATE millrace.progress SET seq = 0, next_offset = -2 WHERE task = %s", (name,)
    )
    with pytest.raises(Fenced):
        applier.process(records, ignore)
    _check(target_server, name)


@pytest.mark.parametrize("is_large", [True, False], ids=["lanes", "one lane"])
def test_turn_overtaken_by_a_later_run_writes_nothing(
    name: str, target_server: DatabaseServer, *, is_large: bool
) -> None:
    """A later run applies everything after the turn has read the progress; the turn continues from there."""
    stream, task = _stream(name), apply_task(name, lanes=2)

    def overtake() -> None:
        run_once(target_server, task, stream, is_large=is_large)

    stale = started(target_server, task)
    with pytest.raises(Fenced):
        stale.process(LocalRecords(stream.values, is_large=is_large, begun=overtake), ignore)
    stale.close()
    _check(target_server, name)


def test_next_turn_with_other_cuts_loses_nothing(name: str, target_server: DatabaseServer) -> None:
    """A part of a lane does not count as the lane: the next run cuts windows, lanes and parts elsewhere."""
    stream = _stream(name)
    applier = started(target_server, apply_task(name, lanes=2))
    with pytest.raises(Retryable, match="MR-9002"):
        applier.process(_CutShort(stream.values), ignore)
    applier.close()
    again = started(target_server, apply_task(name, lanes=3))
    assert 0 < len(seqs_above_the_mark(target_server, name)) < stream.seq
    again.process(LocalRecords(stream.values, window_rows=30), ignore)
    again.close()
    _check(target_server, name)


class _CutShort(LocalRecords):
    """Parts of five rows; the process dies after the second."""

    def tools(self, order: TurnOrder) -> Tools:
        """With small parts."""
        tools = super().tools(order)
        return replace(tools, limits=replace(tools.limits, part_rows=5))

    def lanes(self) -> InlineLanes:
        """Lanes that die."""
        return _DyingLanes()


class _DyingLanes(InlineLanes):
    parts = 0

    def run(self, work: Work) -> int:
        if self.parts == 2:
            raise Retryable("MR-9002", "the process dies")
        self.parts += 1
        return super().run(work)


def test_later_of_two_concurrent_first_starts_owns_the_mark(
    name: str, target_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both found no mark; the one that raised the fence first writes none and blocks no other run."""
    others: list[LocalApplier] = []

    def read_then_lose_the_race(session: MySqlSession, task: str) -> tuple[Mark, int] | None:
        found = read_mark(session, task)
        monkeypatch.undo()
        others.append(started(target_server, apply_task(name)))
        return found

    monkeypatch.setattr(start, "read_mark", read_then_lose_the_race)
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
    successors: list[LocalApplier] = []

    def start_successor(point: str) -> None:
        if point == target_transaction.BEFORE_LANE_COMMIT and not successors:
            successors.append(started(target_server, apply_task(name)))

    monkeypatch.setattr(target_transaction, "fault_point", start_successor)
    stale = started(target_server, apply_task(name, lanes=1))
    with suppress(Fenced, Retryable):
        stale.process(LocalRecords(_bag_only(name).values), ignore)
    (successor,) = successors
    stale.close()
    assert (successor.mark.seq, len(seqs_above_the_mark(target_server, name))) == (0, 0)
    assert target_server.execute(f"SELECT COUNT(*) FROM {name}.bag") == [(0,)]
    successor.close()


def _bag_only(name: str) -> RecordStream:
    stream = RecordStream()
    for number in range(ROWS):
        stream.insert(table(name, "bag", integer("n"), key=()), {"n": number})
    stream.commit()
    return stream
