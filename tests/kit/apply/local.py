"""Apply without Spark and Kafka: executor functions in this process, on a list of records, against a real target.

``LocalRecords`` are the records of a micro-batch. Lanes run one after the other in an order that the test chooses, so
a dependency that planning missed always shows as a wrong row.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

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
from consumer.registry import look_up_at
from consumer.row_schemas import Ints
from consumer.runner import take_over
from consumer.sql.table_plans import Catalogue
from consumer.target.connection import Endpoint, TlsChoice, connect
from consumer.target.progress import Mark
from deploy.servers import DatabaseServer
from schemas.documents import (
    ApplyRules,
    ApplyTask,
    ConflictPolicy,
    Start,
    TableFilter,
    TopicAddress,
)
from tests.kit.apply.topic import RecordStream

LaneOrder = Callable[[int], Sequence[int]]


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
    """A topic that reports these ids in turn, then none."""

    ids: list[str] = field(default_factory=list)

    def ask(self) -> str:
        """See ``consumer.topic.kafka.TopicIdentity``."""
        return self.ids.pop(0) if self.ids else ""


@dataclass
class LocalRecords:
    """Values whose offsets count from ``first``."""

    values: Sequence[bytes]
    first: int = 0
    is_large: bool = True
    arrow_rows: int = 1000
    lane_order: LaneOrder = in_turn
    _serial: SerialLane | None = None

    @property
    def span(self) -> int:
        """The number of records as the applier sees it; it plans lanes when this is large."""
        return 1 << 20 if self.is_large else 1

    def serial(self, order: Order, catalogue: Catalogue, applied: Ints) -> Outcome:
        """Apply in one lane."""
        if self._serial is None:
            self._serial = SerialLane(self._spark_task, look_up_at)
        return self._serial(order, catalogue, applied)

    def _spark_task(self, order: Order, catalogue: Catalogue, applied: Ints) -> Outcome:
        found = unpack(
            guarded(
                lambda: apply_serial(
                    self.batches(None),
                    order=order,
                    catalogue=catalogue,
                    applied=applied,
                    look_up=look_up_at(order.registry),
                )
            )
        )
        assert isinstance(found, Outcome)
        return found

    def plan(self, order: Order, catalogue: Catalogue, applied: Ints) -> Plan:
        """Find the keys."""
        found = unpack(
            guarded(
                lambda: plan(
                    self.batches(None),
                    order=order,
                    catalogue=catalogue,
                    applied=applied,
                    look_up=look_up_at(order.registry),
                )
            )
        )
        assert isinstance(found, Plan)
        return found

    def lanes(
        self, order: Order, catalogue: Catalogue, applied: Ints, *, offsets: Ints, lanes: Ints
    ) -> list[Outcome]:
        """Apply the lanes one after the other."""
        call = LaneCall.of(self, order, catalogue, applied, offsets=offsets, lanes=lanes)
        return [call.apply(lane) for lane in self.lane_order(len(call.offsets))]

    def release(self) -> None:
        """Nothing is kept."""

    def batches(self, wanted: Ints | None) -> Iterator[pa.RecordBatch]:
        """Arrow batches of the wanted offsets, or of all records, including those before the mark."""
        offsets = np.arange(self.first, self.first + len(self.values))
        if wanted is not None:
            offsets = offsets[np.isin(offsets, wanted)]
        for start in range(0, len(offsets), self.arrow_rows):
            part = offsets[start : start + self.arrow_rows]
            values = [self.values[offset - self.first] for offset in part]
            yield pa.RecordBatch.from_arrays(
                [pa.array(part, pa.int64()), pa.array(values, pa.binary())],
                names=["offset", "value"],
            )


@dataclass(frozen=True)
class LaneCall:
    """The lanes of one plan; each can be applied again at any time, like an abandoned Spark task that still runs."""

    records: LocalRecords
    order: Order
    catalogue: Catalogue
    applied: Ints
    offsets: tuple[Ints, ...]

    @classmethod
    def of(
        cls,
        records: "LocalRecords",
        order: Order,
        catalogue: Catalogue,
        applied: Ints,
        *,
        offsets: Ints,
        lanes: Ints,
    ) -> "LaneCall":
        """The arguments of ``RecordsLike.lanes``."""
        parts = tuple(offsets[lanes == lane] for lane in range(int(lanes.max()) + 1))
        return cls(records, order, catalogue, applied, parts)

    def apply(self, lane: int) -> Outcome:
        """``executor.apply_lane``; raises its errors as the driver does."""
        found = unpack(
            guarded(
                lambda: apply_lane(
                    self.records.batches(self.offsets[lane]),
                    lane=lane,
                    order=self.order,
                    catalogue=self.catalogue,
                    applied=self.applied,
                )
            )
        )
        assert isinstance(found, Outcome)
        return found


@dataclass
class WatchedRecords(LocalRecords):
    """Keeps the calls of ``lanes``."""

    calls: list[LaneCall] = field(default_factory=list)

    def lanes(
        self, order: Order, catalogue: Catalogue, applied: Ints, *, offsets: Ints, lanes: Ints
    ) -> list[Outcome]:
        """Apply the lanes one after the other."""
        call = LaneCall.of(self, order, catalogue, applied, offsets=offsets, lanes=lanes)
        self.calls.append(call)
        return super().lanes(order, catalogue, applied, offsets=offsets, lanes=lanes)


def endpoint_of(server: DatabaseServer) -> Endpoint:
    """The service's account over TLS; MySQL accepts its password only encrypted."""
    tls = TlsChoice("require-unverified")
    return Endpoint(server.host, server.port, server.user, server.password, tls)


def apply_task(
    name: str,
    *,
    lanes: int = 4,
    conflict: ConflictPolicy = ConflictPolicy.STOP,
    start: str = "",
    exclude: tuple[str, ...] = (),
) -> ApplyTask:
    """A task of this name."""
    return ApplyTask(
        name=name,
        source=TopicAddress(topic="local", bootstrap=""),
        target="target",
        start=Start(start),
        tables=TableFilter(exclude=exclude),
        rules=ApplyRules(lanes=lanes, conflict=conflict),
    )


def started(server: DatabaseServer, task: ApplyTask, *, epoch: int = 1) -> BatchApplier:
    """A new run of a task."""
    endpoint = endpoint_of(server)
    session = connect(endpoint)
    try:
        return take_over(session, endpoint, task, epoch=epoch)
    finally:
        session.close()


def run_once(
    server: DatabaseServer, task: ApplyTask, stream: RecordStream, *, is_large: bool = True
) -> BatchApplier:
    """Start and apply the whole stream as one micro-batch."""
    applier = started(server, task)
    applier.process(LocalRecords(stream.values, is_large=is_large), ignore)
    applier.close()
    return applier
