"""Apply without Spark and Kafka: turns in this process, on a list of records, against a real target.

``LocalRecords`` are the records of a micro-batch. Lanes run one after the other in an order that the test chooses, and
each runs all of its parts, so a dependency that planning missed always shows as a wrong row.
"""

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from millrace import faults
from millrace.consumer.records.numbers import Seqs
from millrace.consumer.records.pieces import Size, Taken
from millrace.consumer.target.progress import Mark, read_position
from millrace.consumer.target.sessions import Sessions
from millrace.consumer.task.start import take_over
from millrace.consumer.turn.context import Limits, Tools
from millrace.consumer.turn.driver import BatchApplier
from millrace.consumer.turn.executor import look_up_at
from millrace.consumer.turn.order import (
    Answer,
    Outcome,
    Share,
    ShareEnd,
    TurnOrder,
    guarded,
    result_of,
)
from millrace.consumer.turn.resident import forget, resident_of, residents
from millrace.consumer.turn.spread_applier import run_share
from millrace.consumer.turn.turn import run_turn
from millrace.consumer.write.incidents import Tally
from millrace.consumer.write.lanes import Done, Work
from millrace.consumer.write.target_transaction import BEFORE_LANE_COMMIT
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.kafka.reader import Retention, TopicSample
from millrace.drivers.mysql.catalog import Inventory
from millrace.drivers.mysql.connection import Endpoint, connect
from millrace.errors import Retryable
from millrace.schemas.documents import (
    ApplyRules,
    ApplyTask,
    Brokers,
    ConflictPolicy,
    Consistency,
    RefusedPolicy,
    SafeMode,
    Start,
    TableFilter,
    Tls,
    TlsMode,
    TopicAddress,
)
from millrace.schemas.view.view import view_of_filter
from tests.kit.apply.topic import RecordStream
from tests.kit.apply.values import values_of

LaneOrder = Callable[[int], Sequence[int]]
ALL = 1 << 60
# whether micro-batches are applied in lanes or in one: `make test` takes turns
IN_LANES = pytest.mark.parametrize(
    "in_lanes",
    [
        pytest.param((True, False), id="in turn"),
        pytest.param((True,), marks=pytest.mark.chaos, id="lanes"),
        pytest.param((False,), marks=pytest.mark.chaos, id="one lane"),
    ],
)


def ignore(_: Mark) -> None:
    """A listener that ignores each mark."""


def in_turn(count: int) -> Sequence[int]:
    """Lanes in their order."""
    return range(count)


def backwards(count: int) -> Sequence[int]:
    """The last lane first."""
    return range(count - 1, -1, -1)


@dataclass
class KnownTopic:
    """A topic that reports these ids in turn, then none, and its end."""

    ids: list[str] = field(default_factory=list)
    last: int = 0

    def ask(self) -> str:
        """See ``drivers.kafka.reader.TopicIdentity``."""
        return self.ids.pop(0) if self.ids else ""

    def end(self) -> int:
        """See ``drivers.kafka.reader.TopicIdentity``."""
        return self.last

    def seq_before(self, end: int) -> int | None:
        """Every offset has a row."""
        return end - 1

    def retention(self) -> Retention:
        """It keeps all."""
        return Retention(-1, -1)

    def sample(self, start: int, stop: int) -> TopicSample | None:
        """None is read."""
        return None

    def close(self) -> None:
        """Nothing to release."""


@dataclass
class ListSource:
    """Values whose offsets count from ``first``, at most ``rows`` at once. It starts before the wanted offset."""

    values: Sequence[bytes]
    first: int
    rows: int
    begun: Callable[[], object] = list
    at: int = 0

    def seek(self, offset: int) -> None:
        """Go back if ``offset`` was taken; otherwise continue: the applier must skip what it has."""
        self.begun()
        self.at = min(self.at, max(offset - self.first, 0))

    def is_read(self) -> bool:
        """Whether all values were returned."""
        return self.at == len(self.values)

    def take(self, size: Size, *, wait_s: float) -> Taken | None:
        """See ``Source``."""
        part = self.values[self.at : self.at + min(self.rows, size.rows)]
        if not part:
            return None
        begin = self.first + self.at
        self.at += len(part)
        offsets = np.arange(begin, begin + len(part), dtype=np.int64)
        return Taken(offsets, values_of(part), self.at == len(self.values))


@dataclass
class InlineLanes:
    """Lanes in this thread: a wait runs all parts, lane after lane."""

    order: LaneOrder = in_turn
    waiting: dict[int, list[tuple[int, Work]]] = field(default_factory=dict)

    def submit(self, lane: int, flight: int, work: Work) -> None:
        """See ``Lanes``."""
        self.waiting.setdefault(lane, []).append((flight, work))

    def take(self, *, wait: bool) -> list[Done]:
        """See ``Lanes``."""
        done: list[Done] = []
        if wait:
            lanes, waiting = sorted(self.waiting), self.waiting
            self.waiting = {}
            for place in self.order(len(lanes)):
                for flight, work in waiting[lanes[place]]:
                    done.append(Done(flight, self.run(work)))
        return done

    def run(self, work: Work) -> int:
        """Apply one part."""
        return work()

    def close(self) -> None:
        """See ``Lanes``."""
        self.waiting.clear()


class OneExecutor:
    """A micro-batch that is never shared."""

    def executor_count(self) -> int:
        """See ``Cluster``."""
        return 1

    def apply_shares(self, shares: Sequence[Share]) -> Sequence[ShareEnd]:
        """See ``Cluster``."""
        raise AssertionError(shares)


@dataclass
class LocalRecords:
    """Values whose offsets count from ``first``. ``is_large``: in lanes, however few.

    ``begun`` is called when a turn has read the progress. ``executors``: with several, a backlog is applied in shares,
    one after the other, the last one first. ``tally``: as the driver's.
    """

    values: Sequence[bytes]
    first: int = 0
    is_large: bool = True
    window_rows: int = 1000
    lane_order: LaneOrder = in_turn
    begun: Callable[[], object] = list
    executors: int = 1
    turn_s: float = float(ALL)
    tally: Tally = field(default_factory=Tally)

    @property
    def end(self) -> int:
        """The offset after the last value."""
        return self.first + len(self.values)

    def apply(self, order: TurnOrder) -> Outcome:
        """One turn; Spark would send order and outcome as bytes."""
        sent: TurnOrder = pickle.loads(pickle.dumps(order))
        resident = resident_of(sent)
        outcome = guarded(
            sent.owner.task,
            lambda: run_turn(sent, self.tools(sent), resident),
            resident.incidents,
        )
        answer: Answer[Outcome] = pickle.loads(pickle.dumps(outcome))
        self.tally.add(answer.task, answer.incidents)
        return result_of(answer)

    def executor_count(self) -> int:
        """See ``Cluster``."""
        return self.executors

    def apply_shares(self, shares: Sequence[Share]) -> Sequence[ShareEnd]:
        """See ``Cluster``."""
        return [self.apply_share(share) for share in reversed(shares)][::-1]

    def apply_share(self, share: Share) -> ShareEnd:
        """One share; Spark would send it and its end as bytes."""
        sent: Share = pickle.loads(pickle.dumps(share))
        resident = resident_of(sent.order)
        end = guarded(
            sent.order.owner.task,
            lambda: run_share(sent, self.tools(sent.order), resident),
            resident.incidents,
        )
        answer: Answer[ShareEnd] = pickle.loads(pickle.dumps(end))
        self.tally.add(answer.task, answer.incidents)
        return result_of(answer)

    def tools(self, order: TurnOrder) -> Tools:
        """The list as source, lanes in this thread."""
        source = ListSource(self.values, self.first, self.window_rows, self.begun)
        serial_rows = 0 if self.is_large else ALL
        limits = Limits(
            window=Size(self.window_rows, 8 << 20),
            serial_rows=serial_rows,
            linger_s=0.0,
            turn_s=self.turn_s,
        )
        look_up = look_up_at(order.assignment.source.registry)
        return Tools(source, self.lanes(), look_up, limits, is_read=source.is_read)

    def lanes(self) -> InlineLanes:
        """The lanes of one turn."""
        return InlineLanes(self.lane_order)


class LocalApplier(BatchApplier):
    """Ends what this process keeps of the task when it is closed."""

    @property
    def inventory(self) -> Inventory:
        """The knowledge of this process about the target's tables after the last turn."""
        last = residents[self.owner.task].last
        assert last is not None
        return last.plans.inventory

    @property
    def sessions(self) -> Sessions:
        """The sessions that this process keeps, for the next turn."""
        order = TurnOrder(owner=self.owner, assignment=self.assignment)
        return resident_of(order).writing(order).sessions

    def close(self) -> None:
        """Close the sessions; the next run reads everything again."""
        forget(self.owner.task)


def endpoint_of(server: DatabaseServer) -> Endpoint:
    """The service's account over TLS; MySQL accepts its password only encrypted."""
    tls = Tls(TlsMode.REQUIRE_UNVERIFIED)
    return Endpoint(server.host, server.port, server.user, server.password, tls)


def apply_task(
    name: str,
    *,
    lanes: int = 4,
    conflict: ConflictPolicy = ConflictPolicy.STOP,
    refused: RefusedPolicy = RefusedPolicy.STOP,
    consistency: Consistency = Consistency.CAUSAL,
    start: str = "",
    exclude: tuple[str, ...] = (),
    safe_until: str = "",
) -> ApplyTask:
    """A task of this name."""
    return ApplyTask(
        name=name,
        source=TopicAddress(topic="local", brokers=Brokers("")),
        target="target",
        start=Start(start),
        view=view_of_filter(TableFilter(exclude=exclude)),
        rules=ApplyRules(
            lanes=lanes,
            conflict=conflict,
            refused=refused,
            consistency=consistency,
            safe_mode=SafeMode(safe_until),
        ),
    )


def started(server: DatabaseServer, task: ApplyTask, *, epoch: int = 1) -> LocalApplier:
    """A new run of a task."""
    return started_at(endpoint_of(server), task, epoch=epoch)


def started_at(endpoint: Endpoint, task: ApplyTask, *, epoch: int = 1) -> LocalApplier:
    """A new run of a task on the server at this address."""
    session = connect(endpoint)
    try:
        made = take_over(session, endpoint, task, epoch=epoch)
    finally:
        session.close()
    return LocalApplier(made.assignment, made.owner, made.mark, is_partial=made.is_partial)


def apply_with_failures(
    server: DatabaseServer, task: ApplyTask, values: Sequence[bytes], *, window_rows: int
) -> None:
    """Apply all values. Each target transaction fails once before its commit, and its rows come again."""
    passed: list[str] = []

    def fail(point: str) -> None:
        passed.append(point)
        if point == BEFORE_LANE_COMMIT and passed.count(point) % 2:
            raise Retryable("MR-5001", "the connection broke")

    is_idle = False
    with faults.watched(fail):
        while not is_idle:
            applier = started(server, task)
            first = max(applier.mark.next_offset, 0)
            records = LocalRecords(values[first:], first=first, window_rows=window_rows)
            try:
                applier.process(records, ignore)
                is_idle = True
            except Retryable:
                assert passed[-1] == BEFORE_LANE_COMMIT
            applier.close()
    assert passed.count(BEFORE_LANE_COMMIT) > 10


def seqs_above_the_mark(server: DatabaseServer, task: str) -> Seqs:
    """The seqs in the bitmaps of a task."""
    session = connect(endpoint_of(server))
    try:
        return read_position(session, task)[1]
    finally:
        session.close()


def run_once(
    server: DatabaseServer, task: ApplyTask, stream: RecordStream, *, is_large: bool = True
) -> LocalApplier:
    """Start and apply the whole stream as one micro-batch."""
    applier = started(server, task)
    try:
        applier.process(LocalRecords(stream.values, is_large=is_large), ignore)
    finally:
        applier.close()  # its sessions would hold the tables
    return applier
