"""An apply driver's process and its executors: ``consumer.task.runner`` without Spark and its query.

Real: lease, take-over, fence, inventory, windows, causality keys, lanes, SQL, progress. Models: ZooKeeper, the
topic, the target server. A part of a turn may run later: a Spark task that survives its driver.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

from millrace.consumer.records.pieces import Size, Taken
from millrace.consumer.task.start import take_over
from millrace.consumer.turn.context import Limits, Tools
from millrace.consumer.turn.driver import BatchApplier
from millrace.consumer.turn.order import Outcome, TurnOrder, guarded, result_of
from millrace.consumer.turn.resident import forget, resident_of, residents
from millrace.consumer.turn.turn import run_turn
from millrace.consumer.write.lanes import Done, Work
from millrace.drivers.kafka.reader import TopicRecord
from millrace.drivers.mysql.connection import Endpoint, connect
from millrace.errors import Fenced, Retryable
from millrace.schemas.documents import ApplyRules, ApplyTask, Brokers, Start, TopicAddress
from millrace.zk.lease.lease import Lease, acquire
from tests.kit.apply.local import ALL, InlineLanes, OneExecutor
from tests.kit.apply.values import values_of
from tests.simulation.gate import Process, current
from tests.simulation.model_zookeeper import TREE, ModelEnsemble, ModelSession

TASK = "shop-to-target"
LANES = 3


class DriverGoneError(BaseException):
    """The driver died while its lanes ran."""


@dataclass(frozen=True, slots=True)
class Cut:
    """One micro-batch: its offsets, lanes or one target transaction after the other, and the records per window."""

    offsets: int
    is_large: bool
    window_rows: int
    seed: int
    lanes_left: bool = False  # the driver dies between parts; parts not yet started survive it
    is_doubled: bool = (
        False  # the order is executed twice, as by speculation: immediately, or later
    )
    again: int = 0  # number of offsets before the mark that are passed in again


@dataclass
class RecordSource:
    """Committed records, a window at a time."""

    records: Sequence[TopicRecord]
    rows: int
    at: int = 0

    def seek(self, offset: int) -> None:
        """Nothing: the applier must skip the records before its mark."""

    def take(self, size: Size, *, wait_s: float) -> Taken | None:
        part = self.records[self.at : self.at + self.rows]
        self.at += len(part)
        if not part:
            return None
        offsets = np.array([record.offset for record in part], np.int64)
        values = values_of([record.value for record in part])
        return Taken(offsets, values, self.at == len(self.records))


@dataclass
class MixedLanes(InlineLanes):
    """Lanes that run in any order; the driver may die between two parts."""

    cut: Cut = field(default_factory=lambda: Cut(0, True, 1, 0))
    left: list[Callable[[], object]] = field(default_factory=list)
    chance: Random = field(default_factory=Random)

    def take(self, *, wait: bool) -> list[Done]:
        done: list[Done] = []
        while self.waiting and wait:
            lane = self.chance.choice(sorted(self.waiting))
            if self.cut.lanes_left and self.chance.random() < 0.4:
                self.left += [
                    self._late(work) for lane in self.waiting.values() for _, work in lane
                ]
                raise DriverGoneError
            flight, work = self.waiting[lane].pop(0)
            if not self.waiting[lane]:
                del self.waiting[lane]
            done.append(Done(flight, work()))
        return done

    def _late(self, work: Work) -> Callable[[], object]:
        return work


@dataclass
class TopicRecords(OneExecutor):
    """Committed records of some offsets; see ``consumer.turn.driver.RecordsLike``."""

    records: Sequence[TopicRecord]
    cut: Cut
    look_up: Callable[[int], str]
    left: list[Callable[[], object]] = field(default_factory=list)

    @property
    def end(self) -> int:
        """The end of the records, or of a topic that continues, so that a turn reads records before the mark."""
        return self.records[-1].offset + 1 if not self.cut.again else 1 << 60

    def apply(self, order: TurnOrder) -> Outcome:
        """One turn, perhaps executed twice."""

        def execute() -> Outcome:
            resident = resident_of(order)
            return result_of(guarded(TASK, lambda: run_turn(order, self._tools(), resident)))

        found = execute()
        if self.cut.is_doubled and self.cut.seed % 2:
            self.left.append(execute)
        elif self.cut.is_doubled:
            self._refused(execute)
        return found

    def _refused(self, execute: Callable[[], object]) -> None:
        """A second execution must write nothing and block nothing."""
        try:
            execute()
        except (Retryable, Fenced):
            return

    def _tools(self) -> Tools:
        serial_rows = 0 if self.cut.is_large else ALL
        limits = Limits(serial_rows=serial_rows, linger_s=0.0, turn_s=float(ALL))
        lanes = MixedLanes(cut=self.cut, left=self.left, chance=Random(self.cut.seed))
        source = RecordSource(self.records, self.cut.window_rows)
        return Tools(source, lanes, self.look_up, limits)


class ApplyProcess:
    """One apply driver."""

    def __init__(self, name: str, ensemble: ModelEnsemble, look_up: Callable[[int], str]) -> None:
        self.process = Process(name)
        self.session = ModelSession(ensemble, self.process)
        self.lease: Lease | None = None
        self.left: list[Callable[[], object]] = []
        self.applier: BatchApplier | None = None
        self._look_up = look_up

    def step(self, cut: Cut, read: Callable[[int, int], Sequence[TopicRecord]]) -> None:
        """Start if necessary, then run one micro-batch; ``read(start, stop)`` gives committed records."""
        if self.applier is None:
            self._start()
        assert self.applier is not None
        first = max(self.applier.mark.next_offset, 0)
        found = read(max(first - cut.again, 0), first + cut.offsets)
        records = TopicRecords(found, cut, self._look_up, self.left)
        if records.records:
            self.applier.process(records, lambda _: None)

    def shut_down(self) -> None:
        """End the driver."""
        if self.applier is not None:
            forget(TASK)
        self.applier = None

    def release(self) -> None:
        """Release the lease, if possible."""
        lease, self.lease = self.lease, None
        if lease is not None:
            lease.release()

    def _start(self) -> None:
        self.lease = acquire(self.session, TREE, task=TASK, worker=self.process.name)
        self.lease.verify()
        endpoint = Endpoint("model", 3306, self.process.name, "")
        task = ApplyTask(
            name=TASK,
            source=TopicAddress(topic="shop", brokers=Brokers("")),
            target="target",
            start=Start(""),
            rules=ApplyRules(lanes=LANES),
        )
        session = connect(endpoint)
        try:
            self.applier = take_over(session, endpoint, task, epoch=self.lease.epoch)
        finally:
            session.close()


class Residents(dict[str, Any]):
    """``consumer.turn.resident`` keeps state in the module; here each process has its own."""

    def get(self, key: str, default: object = None) -> Any:
        return current().residents.get(key, default)

    def __setitem__(self, key: str, value: object) -> None:
        current().residents[key] = value

    def __iter__(self) -> Iterator[str]:
        return iter(list(current().residents))

    def pop(self, key: str, default: object = None) -> Any:
        return current().residents.pop(key, default)


assert isinstance(residents, dict)  # ``Residents`` replaces it
