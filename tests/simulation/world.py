"""The world: a source, its capture workers, the topic, apply drivers, a target; and what must hold in it.

    after every step     I1 topic = binlog   I2 dense seq   I3 source transactions whole   I4 one writer
                         I5 relay = prefix of the source's files, ending with a whole source transaction
    at every commit of   I6 the mark never goes back, and is honest   I8 the rows are those of a causal prefix:
    the target           exactly the changes at or below the mark and in the bitmaps, and the sum of all money holds
    at the end           I7 source = target   I9 what is read again changes nothing   I10 nobody is blocked

A step is what a worker would do next. What it raises is answered as ``zk.slot`` does: Retryable and Fenced end the
run, the lease is given up, the next step begins anew; Fatal blocks the task, and nothing that happens here may.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from unittest import mock

from consumer import executor, sessions
from consumer.applied import from_bitmaps
from consumer.target import fence
from consumer.topic.verify import TopicVerifier
from millrace.errors import Fatal, Fenced, Retryable
from producer import receiver
from producer.converter import converter, output
from producer.publisher.driver import TopicRecord
from schemas.control import DdlRecord, FenceRecord, ResolvedRecord
from schemas.documents import TaskKind
from schemas.gtid import Flavour, parse_gtid_set
from schemas.record import RowRecord, SchemaBook, decode_record
from tests.converter_rig import MemoryRegistry
from tests.simulation import apply, capture, disk
from tests.simulation.apply import ApplyProcess, Cut, DriverGoneError, KeptSessions
from tests.simulation.capture import CaptureProcess, Portion, Surroundings
from tests.simulation.disk import Loss
from tests.simulation.gate import KilledError, Plan, Process
from tests.simulation.model_kafka import Answer, ModelTopic, State
from tests.simulation.model_target import ModelServer
from tests.simulation.model_zookeeper import ModelEnsemble
from tests.simulation.source import SERVER, TOTAL, Change, ModelSource, Rows
from tests.simulation.target_statements import STATEMENTS
from zk.assignment import Placeable, assign

CAPTURE_WORKERS = ("w1", "w2")
APPLY_WORKERS = ("a1", "a2")
LAST_STEPS_MAX = 60
EVERYTHING = Portion(1 << 30, 1 << 20, 100)
LEFT_LANES_MAX = 8
EXPLAIN_EVERY_BYTES = 1500  # some ten rows
HUNG_S = 0.02  # a lock is free at once here, or its holder is stopped
UUID_PREFIX = f"{SERVER}:1-"


class ViolationError(AssertionError):
    """Something that must hold does not."""


def hold(claim: object, what: str) -> None:
    """Raise unless ``claim``."""
    if not claim:
        raise ViolationError(what)


@dataclass(frozen=True, slots=True)
class Weather:
    """What the network and the broker do to one step of capture."""

    plan: Plan | None = None
    answers: tuple[Answer, ...] = ()
    late_at: int = 0  # what is late arrives at this request
    late_state: State = State.COMMITTED


FAIR = Weather()
Anyone = CaptureProcess | ApplyProcess


class World:
    """Everything; ``root`` holds the relay directories."""

    def __init__(self, root: Path) -> None:
        self.source = ModelSource()
        self.topic = ModelTopic()
        self.ensemble = ModelEnsemble()
        self.target = ModelServer(STATEMENTS)
        self.target.on_commit = self._check_target
        self.surroundings = Surroundings(
            self.source, self.topic, self.ensemble, MemoryRegistry(), root
        )
        self.captures = {name: self._capture_process(name) for name in CAPTURE_WORKERS}
        self.applies = {name: self._apply_process(name) for name in APPLY_WORKERS}
        self.assignments: dict[str, str] = {}
        self.left_lanes: list[Callable[[], object]] = []
        self.is_blocked = False  # an operator has to decide, rightly
        self._dead_sessions: list[int] = []
        self._published: list[Change] = []
        self._seen_changes = 0
        self._seen = 0  # offsets of the topic that were checked
        self._delivered = 0  # records among them that are changes
        self._row_of_open = 0
        self._epoch = 0
        self._book = SchemaBook()
        self._verifier = TopicVerifier(from_beginning=True)
        self._mark = (0, -3)
        self._rows_at_mark = Rows()
        self.emit([], 0)
        self.schedule()

    @contextmanager
    def running(self) -> Iterator[None]:
        """The real code talks to this world while the block runs."""
        with (
            self.target.dialled(),
            mock.patch.object(sessions, "_sessions", KeptSessions()),
            mock.patch.object(executor, "_workshops", {}),
            mock.patch.object(fence, "HUNG_S", HUNG_S),
            mock.patch.object(receiver, "RECONNECT_DELAYS_S", (0.0,)),
            mock.patch.object(converter, "EXPLAIN_EVERY_BYTES", EXPLAIN_EVERY_BYTES),
            mock.patch.object(output, "ROOM_BYTES", 0),  # large source transactions are cut inside
        ):
            yield

    # ---- what happens ------------------------------------------------------------------------------

    def emit(self, kinds: Iterable[str], seed: int) -> None:
        """Source transactions of these kinds."""
        chance = Random(seed)
        for kind in kinds:
            self.source.emit(kind, chance)
        fresh = self.source.changes[self._seen_changes :]
        self._seen_changes = len(self.source.changes)
        self._published += [change for change in fresh if change.table != "hidden"]

    def schedule(self, *, rebalance: bool = False) -> None:
        """What the elected scheduler does when it looks."""
        alive = {
            name: kind
            for kind, workers in (
                (TaskKind.CAPTURE, self.captures),
                (TaskKind.APPLY, self.applies),
            )
            for name, worker in workers.items()
            if worker.session.id in self.ensemble.living and not worker.process.is_dead
        }
        tasks = [
            Placeable(capture.TASK, TaskKind.CAPTURE, "set shop"),
            Placeable(apply.TASK, TaskKind.APPLY, f"task {apply.TASK}"),
        ]
        self.assignments |= assign(tasks, alive, self.assignments, rebalance=rebalance)

    def lose_session(self, name: str) -> None:
        """The ensemble ends a worker's session, and its task moves; the worker does not know."""
        self._worker(name).session.expire()
        self.schedule()

    def hear(self, name: str) -> None:
        """The worker finds out whether its session is over; ``zk.slot`` interrupts the run then."""
        worker = self._worker(name)
        if worker.process.is_stopped:
            return
        worker.session.hear()
        self.schedule()
        if worker.lease is not None and not worker.lease.is_held():
            self._end(worker)

    def step_capture(self, name: str, portion: Portion, weather: Weather = FAIR) -> None:
        """The next step of a capture worker."""
        worker = self.captures[name]
        if self.is_blocked or not self._may_step(worker, capture.TASK):
            return
        topic = self.topic
        topic.answers, topic.late_state = list(weather.answers), weather.late_state

        def on_request(count: int) -> None:
            if count == weather.late_at and topic.late:
                topic.deliver_late()

        worker.process.on_request = on_request
        self._supervise(
            worker, lambda: worker.process.run(lambda: worker.step(portion), weather.plan)
        )
        topic.answers = []
        self.check(name)

    def step_apply(self, name: str, cut: Cut, plan: Plan | None = None, error: int = 0) -> None:
        """The next micro-batch of an apply driver; ``error``: what the target says to a statement of rows."""
        worker = self.applies[name]
        if not self._may_step(worker, apply.TASK):
            return
        self.target.statement_errors = [error] if error else []
        self._supervise(
            worker,
            lambda: worker.process.run(lambda: worker.step(cut, self.topic.committed), plan),
        )
        self.target.statement_errors = []
        self._keep_left(worker)

    def resume(self, name: str) -> None:
        """SIGCONT."""
        worker = self._worker(name)
        if worker.process.is_stopped:
            self._supervise(worker, worker.process.resume)
            self.check(name)

    def crash(self, name: str, *, loss: Loss = Loss.NOTHING, seed: int = 0, hangs: bool) -> None:
        """The process ends; a new one comes. ``hangs``: servers and the ensemble have not noticed yet."""
        self._end(self._worker(name), is_killed=True, hangs=hangs)
        if name in self.captures:
            disk.crash(self.surroundings.root / name, loss, Random(seed))
            self.captures[name] = self._capture_process(name)
        else:
            self.applies[name] = self._apply_process(name)
        self.schedule()

    def notice_the_dead(self) -> None:
        """Sessions of dead processes end."""
        for session in self._dead_sessions:
            self.ensemble.end_session(session)
        self._dead_sessions.clear()
        self.schedule()

    def run_left_lane(self, plan: Plan | None = None) -> None:
        """A Spark task whose driver is gone does its work now, in an executor of its own."""
        if not self.left_lanes:
            return
        lane = self.left_lanes.pop(0)
        process = Process("executor")
        try:
            process.run(lane, plan)
        except (KilledError, Retryable, Fenced):
            pass
        except Fatal as fatal:
            raise ViolationError(f"I10: a lane left over is blocked: {fatal}") from fatal
        self._end_connections(process)

    def retain(self, share: float) -> None:
        """Retention removes a part of what is applied, but leaves a mark while somebody writes; 1.0: all of it."""
        topic = self.topic
        applied_to = max(self._progress()[1], 0)
        committed = topic.committed(applied_to, topic.stable)
        is_idle = all(worker.lease is None for worker in self.captures.values())
        if share >= 1 and not committed and is_idle and topic.stable == topic.high:
            topic.low = topic.high
            return
        marks = [
            record.offset
            for record in topic.committed(0, applied_to)
            if isinstance(self._read(record), ResolvedRecord | FenceRecord)
        ]
        if marks:
            topic.low = max(topic.low, marks[int(share * (len(marks) - 1))])

    # ---- processes ---------------------------------------------------------------------------------

    def _worker(self, name: str) -> Anyone:
        return self.captures[name] if name in self.captures else self.applies[name]

    def _capture_process(self, name: str) -> CaptureProcess:
        return CaptureProcess(name, self.surroundings)

    def _apply_process(self, name: str) -> ApplyProcess:
        return ApplyProcess(name, self.ensemble, self._look_up)

    def _look_up(self, schema_id: int) -> str:
        return next(
            text for (_, text), i in self.surroundings.registry.ids.items() if i == schema_id
        )

    def _may_step(self, worker: Anyone, task: str) -> bool:
        """As ``zk.supervisor`` decides: it runs what is assigned to it, as long as it believes in its lease."""
        if worker.process.is_stopped:
            return False
        if worker.lease is not None and not worker.lease.is_held():
            self._end(worker)
        if self.assignments.get(task) != worker.process.name:
            if worker.lease is not None and worker.session.id in self.ensemble.living:
                self._end(worker)
            return worker.lease is not None  # cut off from ZooKeeper it does not hear of it
        return True

    def _supervise(self, worker: Anyone, work: Callable[[], None]) -> None:
        """Whatever comes out of a run becomes what ``zk.slot`` makes of it."""
        try:
            work()
        except KilledError:
            self.crash(worker.process.name, hangs=False)
        except DriverGoneError:
            self._keep_left(worker)
            self.crash(worker.process.name, hangs=True)
        except (Retryable, Fenced):
            self._end(worker)
        except Fatal as fatal:
            is_gone = fatal.code == "MR-3017" and self.topic.low == self.topic.high
            if is_gone or (fatal.code == "MR-3019" and self.topic.low > 0):
                self.is_blocked = (
                    True  # rule 6: the tail is gone, and what the status remembers is older
                )
                self._end(worker)
                return
            raise ViolationError(f"I10: {worker.process.name} is blocked: {fatal}") from fatal

    def _keep_left(self, worker: Anyone) -> None:
        if isinstance(worker, ApplyProcess):
            self.left_lanes = [*self.left_lanes, *worker.left][-LEFT_LANES_MAX:]
            worker.left.clear()

    def _end(self, worker: Anyone, *, is_killed: bool = False, hangs: bool = False) -> None:
        worker.process.forget_plan()
        if is_killed:
            worker.process.kill()
        worker.let_go()
        if not is_killed:
            worker.release()
            self._end_connections(worker.process)
            return
        if hangs:
            self._dead_sessions.append(worker.session.id)
        else:
            worker.session.expire()
            self._end_connections(worker.process)

    def _end_connections(self, process: Process) -> None:
        for session in list(self.target.sessions.values()):
            if session.is_of(process):
                session.end()

    def close(self) -> None:
        """End every thread."""
        everybody: list[Anyone] = [*self.captures.values(), *self.applies.values()]
        for worker in everybody:
            worker.process.kill()
            worker.let_go()

    # ---- what must hold ----------------------------------------------------------------------------

    def check(self, name: str) -> None:
        """After a step of this worker."""
        self._check_topic()
        if name in self.captures:
            self._check_relay(self.captures[name])

    def _check_topic(self) -> None:
        stable = self.topic.stable
        for record in self.topic.committed(self._seen, stable):
            self._verifier.feed(record.offset, record.key, record.value)
            self._check_record(record)
        self._seen = max(self._seen, stable)

    def _read(self, record: TopicRecord) -> object:
        return decode_record(record.key, record.value, self._book)

    def _check_record(self, record: TopicRecord) -> None:
        found = self._read(record)
        match found:
            case RowRecord(source=source, change=change, transaction=at):
                wanted = self._next_change(record.offset)
                images = (_plain(change.before), _plain(change.after))
                hold(
                    (source.table, images) == (wanted.table, (wanted.before, wanted.after)),
                    f"I1: offset {record.offset} holds {source.table} {images}, the binlog {wanted}",
                )
                hold(
                    source.seq == self._delivered, f"I2: seq {source.seq} is no. {self._delivered}"
                )
                hold(
                    (at.gtid, at.total_order) == (f"{SERVER}:{wanted.number}", wanted.row),
                    f"I3: offset {record.offset} is row {at.total_order} of {at.gtid}, not {wanted}",
                )
                hold(at.is_last == self._is_last(), f"I3: the last row of {at.gtid} is not told")
            case DdlRecord(source=source, statement=statement):
                wanted = self._next_change(record.offset)
                hold(statement.sql == wanted.sql, f"I1: {statement.sql} stands for {wanted}")
                hold(
                    source.seq == self._delivered, f"I2: seq {source.seq} is no. {self._delivered}"
                )
            case (
                ResolvedRecord(progress=progress, epoch=epoch)
                | FenceRecord(progress=progress, epoch=epoch)
            ):
                hold(epoch >= self._epoch, f"I4: epoch {epoch} behind {self._epoch}")
                self._epoch = epoch
                hold(progress.seq == self._delivered, f"I6: seq {progress.seq} is resolved")
                self._check_resolved(str(progress.gtid_set), progress.open is not None)

    def _next_change(self, offset: int) -> Change:
        hold(self._delivered < len(self._published), f"I1: offset {offset} is not in the binlog")
        self._delivered += 1
        return self._published[self._delivered - 1]

    def _is_last(self) -> bool:
        """Whether the record delivered last ends its source transaction."""
        done = self._published[self._delivered - 1]
        behind = self._published[self._delivered : self._delivered + 1]
        return not behind or behind[0].number != done.number

    def _check_resolved(self, gtid_set: str, is_open: bool) -> None:
        """Everything in the GTID set is delivered; what is delivered is in it, but for the open one."""
        number = int(gtid_set.rpartition(":")[2].rpartition("-")[2]) if gtid_set else 0
        last = self._published[self._delivered - 1].number if self._delivered else 0
        behind = self._published[self._delivered : self._delivered + 1]
        hold(not behind or behind[0].number > number, f"I6: {gtid_set} is resolved too early")
        hold(last <= number + is_open, f"I3: {last} is delivered, {gtid_set} resolved")

    def _check_relay(self, worker: CaptureProcess) -> None:
        if worker.relay_end is None:
            return
        for path in disk.all_files(worker.directory):
            theirs = bytes(self.source.files[path.name].content)
            hold(theirs.startswith(path.read_bytes()), f"I5: {path.name} of {worker.process.name}")
        end = worker.relay_end
        hold((end.file, end.pos) in self.source.ends, f"I5: {end} is inside a source transaction")

    def _progress(self) -> tuple[int, int]:
        """(seq, next offset) of the mark."""
        rows = self.target.of("millrace.progress")
        return (rows[0][1], rows[0][2]) if rows else (0, -2)

    def _check_target(self) -> None:
        """At a commit."""
        mark = self._progress()
        hold(mark >= self._mark and mark[1] >= self._mark[1], f"I6: {mark} behind {self._mark}")
        while self._mark[0] < mark[0]:
            self._rows_at_mark.apply(self._published[self._mark[0]])
            self._mark = (self._mark[0] + 1, mark[1])
        self._mark = mark
        bitmaps = [(row[5], row[6]) for row in self.target.of("millrace.applied")]
        above = [seq for seq in from_bitmaps(bitmaps).tolist() if seq > mark[0]]
        intended = [row[1] for row in self.target.of("millrace.ddl_intent")]
        found = self.target.plain()
        states = [above, *([*above, seq] for seq in intended if seq > mark[0])]
        wanted = [self._rows_with(seqs) for seqs in states]
        hold(
            found in wanted,
            f"I8: seqs to {mark[0]} and {above} are told applied; the target holds\n{found}\nnot\n{wanted[0]}",
        )
        whole = mark[0] == len(self._published) or (
            mark[0] and self._published[mark[0]].number != self._published[mark[0] - 1].number
        )
        if whole and not above:
            money = sum(row[2] for row in found["accounts"])
            hold(money == TOTAL, f"I8: {money} at seq {mark[0]}")

    def _rows_with(self, above: list[int]) -> Mapping[str, Sequence[object]]:
        rows = self._rows_at_mark
        if above:
            rows = copy.deepcopy(rows)
            for seq in above:
                rows.apply(self._published[seq - 1])
        return rows.plain(hidden=False)

    # ---- the end -----------------------------------------------------------------------------------

    def come_to_rest(self) -> None:
        """All faults heal; then everything arrives, and once more changes nothing."""
        for name in (*self.captures, *self.applies):
            self.resume(name)
        while self.left_lanes:
            self.run_left_lane()
        self.topic.deliver_late()
        self.notice_the_dead()
        for name in (*self.captures, *self.applies):
            self.hear(name)
        self.schedule()
        cut = Cut(1 << 30, True, 1000, 0)
        for _ in range(LAST_STEPS_MAX):
            for name in self.captures:
                self.step_capture(name, EVERYTHING)
            for name in self.applies:
                self.step_apply(name, cut)
            if self._has_arrived():
                break
        hold(self._has_arrived(), f"I10: {self._progress()} of {len(self._published)} arrived")
        self._check_end()
        before = self.target.plain()
        for name in self.applies:
            self.crash(name, hangs=False)
        for name in self.applies:
            self.step_apply(name, cut)
        hold(self.target.plain() == before, "I9: a run that reads again changes rows")

    def _has_arrived(self) -> bool:
        if self.is_blocked:
            return self._progress()[0] == self._delivered
        hint = self.surroundings.hint
        everything = parse_gtid_set(Flavour.MYSQL, f"{UUID_PREFIX}{self.source.number}")
        return (
            hint is not None
            and hint.progress.gtid_set.includes(everything)
            and self._delivered == len(self._published)
            and self._progress()[0] == self._delivered
        )

    def _check_end(self) -> None:
        found = self._verifier.finish()
        hold(not found.violations, f"topic verify: {found.violations}")
        if not self.is_blocked:
            wanted = self.source.rows.plain(hidden=False)
            hold(self.target.plain() == wanted, f"I7: {self.target.plain()}\nnot\n{wanted}")


def _plain(image: Mapping[str, object] | None) -> dict[str, object] | None:
    return None if image is None else dict(image)
