"""The snapshots of one run of a capture task: its parts, put together.

converter's thread      SnapshotInserts → Course      decides and inserts
snapshot's thread       ChunkReader                   reads, only while a snapshot runs
snapshot-wishes' thread TaskWishes                    asks ZooKeeper
publisher's thread      stage, warnings               reports
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from millrace.background import chore
from millrace.drivers.mysql.connection import MySqlSession
from millrace.metrics.rates import LONG_S, SHORT_S, Meter
from millrace.producer.convert.converter import ConverterSource
from millrace.producer.convert.table_filter import FoldedFilter
from millrace.producer.publish.publisher import Publisher
from millrace.producer.snapshot.ended_snapshots import History
from millrace.producer.snapshot.insertion_plan import Course
from millrace.producer.snapshot.inserts import SnapshotInserts
from millrace.producer.snapshot.reader import ChunkReader, SnapshotSource
from millrace.producer.snapshot.requests import LOOK_S, TaskWishes
from millrace.producer.source.set_stream import Upstream, resolve_login
from millrace.schemas.documents import SetDocument, SnapshotLimits
from millrace.schemas.progress import Progress
from millrace.schemas.record.control import Origin
from millrace.schemas.stages import Rates, SnapshotStage
from millrace.schemas.throttle import Measured, why_paused
from millrace.zk.run.runner import SetSource


@dataclass(frozen=True, slots=True)
class TaskSnapshots:
    """``inserts`` is for the converter; the rest for the report."""

    inserts: SnapshotInserts
    reader: ChunkReader
    wishes: TaskWishes
    _meter: Meter = field(default_factory=Meter, init=False)
    _measuring: threading.Lock = field(default_factory=threading.Lock, init=False)

    def stage(self, *, at_s: float) -> SnapshotStage | None:
        """The stage for the status at a time; None while no snapshot runs. From any thread."""
        with self._measuring:
            if self.inserts.course.view.state is None:
                self._meter.clear()
            self._meter.note(self.inserts.history.rows, at_s=at_s)
            rates = Rates(self._meter.over(SHORT_S), self._meter.over(LONG_S))
        view = self.inserts.course.view
        if view.state is None:
            return None
        at, tables = view.state.at, view.tables
        rate = rates.over_10_s or rates.over_60_s
        return SnapshotStage(
            id=view.state.id,
            asked=view.state.tables,
            table=".".join(at.name) if at is not None else "",
            tables=tables[0] if tables is not None else None,
            done=tables[1] if tables is not None else None,
            chunks=at.chunks if at is not None else 0,
            rows=at.rows if at is not None else 0,
            where=view.state.where,
            why=self._why,
            left_out=view.left_out,
            rates=rates,
            eta_s=view.left / rate if rate and view.left is not None else None,
        )

    @property
    def pause(self) -> str:
        """Why the snapshot that runs pauses; "" if it does not, or none runs."""
        return self.reader.paused if self.inserts.course.view.state is not None else ""

    @property
    def _why(self) -> str:
        if self.reader.problem is not None:
            return str(self.reader.problem)
        paused = self.reader.paused
        return f"pauses: {paused}" if paused else self.inserts.course.view.why

    @property
    def warnings(self) -> tuple[str, ...]:
        """The reasons why a snapshot does not continue, and the tables that it leaves out."""
        problem, left_out = self.reader.problem, self.inserts.course.view.left_out
        found = []
        if problem is not None:
            found.append(f"the snapshot can't read: {problem}. {problem.fix}")
        if left_out:
            more = f", and {len(left_out) - 1} more" if len(left_out) > 1 else ""
            found.append(f"the snapshot leaves out {left_out[0]}{more}")
        if self.wishes.problem:
            found.append(self.wishes.problem)
        return tuple(found)


@contextmanager
def snapshots_of(
    source: ConverterSource,
    document: SetDocument,
    *,
    limits: SnapshotLimits,
    stream: Upstream,
    publisher: Publisher,
    sets: SetSource,
    progress: Progress,
) -> Iterator[TaskSnapshots]:
    """The snapshots of a run that begins with ``progress``. Its threads are joined at the end of the block."""
    origin = Origin(source.flavour, source.task_name, source.set_name)
    filter_ = FoldedFilter.of(source.filter) if source.folds_names else source.filter
    login = resolve_login(document)
    throttle = Throttle(limits, lambda: stream.captured().source.lag_s)
    reading = SnapshotSource(
        origin, login, lambda: stream.choice.member, filter_, throttle.why_paused
    )
    history = History.since(progress.snapshot)
    wishes = TaskWishes(sets, source.task_name, lambda: publisher.progress.snapshot, history.ended)
    with (
        ChunkReader(reading) as reader,
        chore("snapshot-wishes", wishes.look, every_s=LOOK_S),
    ):
        course = Course(progress.snapshot, reader, wishes)
        inserts = SnapshotInserts(course, history, set_name=source.set_name)
        yield TaskSnapshots(inserts, reader, wishes)


@dataclass(frozen=True, slots=True)
class Throttle:
    """``lag_s``: of the member that is captured, as the set's watch knows it; None while it is unknown."""

    limits: SnapshotLimits
    lag_s: Callable[[], float | None]

    def why_paused(self, connection: MySqlSession) -> str:
        """The reason to pause now; "" if there is none. An unknown lag is none: the watch leaves a silent member."""
        (row,) = connection.named("SHOW GLOBAL STATUS LIKE 'Threads_running'")
        measured = Measured(self.lag_s() or 0.0, int(row["Value"] or 0))
        return why_paused(measured, self.limits, busy="member")
