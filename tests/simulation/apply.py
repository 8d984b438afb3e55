"""An apply driver's process and its executors: ``consumer.runner`` without Spark and its query.

Real: lease, take-over, fence, inventory, windows, causality keys, lanes, SQL, progress. Models: ZooKeeper, the
topic, the target server. A lane may run later: a Spark task that survives its driver.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from consumer.apply.batch import BatchApplier
from consumer.apply.executor import (
    Order,
    Outcome,
    Plan,
    apply_lane,
    apply_serial,
    guarded,
    plan,
    unpack,
)
from consumer.apply.serial import SerialLane
from consumer.row_schemas import Ints
from consumer.runner import take_over
from consumer.sql.table_plans import Catalogue
from consumer.target import sessions
from consumer.target.connection import Endpoint, connect
from millrace.errors import Fenced, Retryable
from producer.publish.driver import TopicRecord
from schemas.documents import ApplyRules, ApplyTask, Start, TopicAddress
from tests.simulation.gate import Process, current
from tests.simulation.model_zookeeper import TREE, ModelEnsemble, ModelSession
from zk.lease.lease import Lease, acquire

TASK = "shop-to-target"
LANES = 3


class DriverGoneError(BaseException):
    """The driver died while its lanes ran."""


@dataclass(frozen=True, slots=True)
class Cut:
    """One micro-batch: its offsets, its lanes or a serial lane, and the records per Arrow batch."""

    offsets: int
    is_large: bool
    arrow_rows: int
    seed: int
    lanes_left: bool = False  # the driver dies between lanes; lanes not yet started survive it
    is_doubled: bool = (
        False  # work is executed twice, as by speculation: immediately, or by a surviving lane
    )
    again: int = 0  # number of offsets before the mark that are passed in again


@dataclass
class TopicRecords:
    """Committed records of some offsets; see ``consumer.apply.batch.RecordsLike``."""

    records: Sequence[TopicRecord]
    cut: Cut
    look_up: Callable[[int], str]
    left: list[Callable[[], object]] = field(default_factory=list)
    _serial: SerialLane | None = None

    @property
    def span(self) -> int:
        return 1 << 20 if self.cut.is_large else 1

    def serial(self, order: Order, catalogue: Catalogue, applied: Ints) -> Outcome:
        if self._serial is None:
            self._serial = SerialLane(self._spark_task, lambda _: self.look_up)
        return self._serial(order, catalogue, applied)

    def _spark_task(self, order: Order, catalogue: Catalogue, applied: Ints) -> Outcome:
        def execute() -> Outcome:
            found = unpack(
                guarded(
                    lambda: apply_serial(
                        self._batches(None),
                        order=order,
                        catalogue=catalogue,
                        applied=applied,
                        look_up=self.look_up,
                    )
                )
            )
            assert isinstance(found, Outcome)
            return found

        found = execute()
        self._once_more(execute)
        return found

    def plan(self, order: Order, catalogue: Catalogue, applied: Ints) -> Plan:
        found = unpack(
            guarded(
                lambda: plan(
                    self._batches(None),
                    order=order,
                    catalogue=catalogue,
                    applied=applied,
                    look_up=self.look_up,
                )
            )
        )
        assert isinstance(found, Plan)
        return found

    def lanes(
        self, order: Order, catalogue: Catalogue, applied: Ints, *, offsets: Ints, lanes: Ints
    ) -> list[Outcome]:
        """Run the lanes in any order; some of them perhaps later."""
        chance = Random(self.cut.seed)
        numbers = sorted({int(lane) for lane in lanes})
        chance.shuffle(numbers)

        def execute(lane: int) -> Outcome:
            mine = offsets[lanes == lane]
            found = unpack(
                guarded(
                    lambda: apply_lane(
                        self._batches(mine),
                        lane=lane,
                        order=order,
                        catalogue=catalogue,
                        applied=applied,
                    )
                )
            )
            assert isinstance(found, Outcome)
            return found

        done = []
        begun = chance.randint(0, len(numbers)) if self.cut.lanes_left else len(numbers)
        for lane in numbers[:begun]:
            done.append(execute(lane))
            self._once_more(lambda lane=lane: execute(lane))  # type: ignore[misc]
        self.left += [lambda lane=lane: execute(lane) for lane in numbers[begun:]]  # type: ignore[misc]
        if self.cut.lanes_left:
            raise DriverGoneError
        return done

    def release(self) -> None:
        pass

    def _once_more(self, execute: Callable[[], object]) -> None:
        """Execute finished work again, as by speculation. The result is ignored, but it must not block."""
        if not self.cut.is_doubled:
            return
        if self.cut.seed % 2:
            self.left.append(execute)
            return
        try:
            execute()
        except (Retryable, Fenced):
            return

    def _batches(self, wanted: Ints | None) -> Iterator[pa.RecordBatch]:
        """All records, also those before the mark: apply must skip them without Spark's filter."""
        records = self.records
        if wanted is not None:
            chosen = set(wanted.tolist())
            records = [record for record in records if record.offset in chosen]
        for start in range(0, len(records), self.cut.arrow_rows):
            part = records[start : start + self.cut.arrow_rows]
            offsets = np.array([record.offset for record in part], np.int64)
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(offsets, pa.int64()),
                    pa.array([record.value for record in part], pa.binary()),
                ],
                names=["offset", "value"],
            )


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
            self.applier.close()
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
            source=TopicAddress(topic="shop", bootstrap=""),
            target="target",
            start=Start(""),
            rules=ApplyRules(lanes=LANES),
        )
        session = connect(endpoint)
        try:
            self.applier = take_over(session, endpoint, task, epoch=self.lease.epoch)
        finally:
            session.close()


class KeptSessions(dict[str, Any]):
    """``consumer.target.sessions`` keeps sessions in a module; here each process has its own."""

    def get(self, key: str, default: object = None) -> Any:
        return current().sessions.get(key, default)

    def __setitem__(self, key: str, value: object) -> None:
        current().sessions[key] = value

    def pop(self, key: str, default: object = None) -> Any:
        return current().sessions.pop(key, default)


assert isinstance(sessions.kept_sessions, dict)  # KeptSessions replaces it
