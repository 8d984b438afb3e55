"""The world: a source, its capture workers, the topic, apply drivers, a target; and its invariants.

    after every step     the topic and the worker's relay log (``judges``)
    at every commit of   the target (``judges``), also while records before the mark are passed in
    at the end           I7 source = target   I9 applying the whole topic again changes nothing; from an older backup
                         of the target it leads to the same rows   I10 no task is blocked

A step is the next action of a worker. Its errors are handled as in ``zk.run.slot``: Retryable and Fenced end the run,
the lease is released, the next step starts again. Fatal blocks the task; no fault here may cause that.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from unittest import mock

from millrace.consumer.target import fence
from millrace.consumer.turn import resident
from millrace.errors import Fatal, Fenced, Retryable
from millrace.producer.convert import converter, output
from millrace.producer.source.receive import receiver
from millrace.schemas.documents import TaskKind
from millrace.schemas.gtid import Flavour, parse_gtid_set
from millrace.schemas.record.control import FenceRecord, ResolvedRecord
from millrace.zk.placement.assignment import Assignment, Candidate, Placeable, assign
from tests.kit.capture.converter import MemoryRegistry
from tests.simulation import apply, capture, disk
from tests.simulation.apply import ApplyProcess, Cut, DriverGoneError, Residents
from tests.simulation.capture import CaptureProcess, Portion, Surroundings
from tests.simulation.disk import Loss
from tests.simulation.gate import KilledError, Plan, Process
from tests.simulation.judges import (
    TargetJudge,
    TopicJudge,
    ViolationError,
    check_relay,
    check_rows,
    hold,
)
from tests.simulation.model_kafka import Answer, ModelTopic, State
from tests.simulation.model_target import ModelServer
from tests.simulation.model_zookeeper import ModelEnsemble
from tests.simulation.source import Change, ModelSource
from tests.simulation.target_statements import STATEMENTS

CAPTURE_WORKERS = ("w1", "w2")
APPLY_WORKERS = ("a1", "a2")
LAST_STEPS_MAX = 60
EVERYTHING = Portion(1 << 30, 1 << 20, 100)
LAST_CUT = Cut(1 << 30, True, 1000, 0)
EVERYTHING_AGAIN = replace(LAST_CUT, again=1 << 30)
LEFT_LANES_MAX = 8
SCHEMA_REPEAT_BYTES = 1500  # some ten rows
HUNG_S = 0.02  # a lock is free at once here, or its holder is stopped


@dataclass(frozen=True, slots=True)
class Weather:
    """The faults of the network and the broker in one step of capture."""

    plan: Plan | None = None
    answers: tuple[Answer, ...] = ()
    late_at: int = 0  # delayed requests arrive at this request
    late_state: State = State.COMMITTED


FAIR = Weather()
Anyone = CaptureProcess | ApplyProcess


class World:
    """All processes and servers; ``root`` contains the relay directories. Source and target have one flavour."""

    def __init__(self, root: Path, flavour: Flavour) -> None:
        self.source = ModelSource(flavour)
        self.topic = ModelTopic()
        self.ensemble = ModelEnsemble()
        self.target = ModelServer(STATEMENTS, version=self.source.binlog.version)
        self.surroundings = Surroundings(
            self.source, self.topic, self.ensemble, MemoryRegistry(), root
        )
        self.captures = {name: self._capture_process(name) for name in CAPTURE_WORKERS}
        self.applies = {name: self._apply_process(name) for name in APPLY_WORKERS}
        self.assignments: dict[str, str] = {}
        self._placed: dict[str, Assignment] = {}
        self.left_lanes: list[Callable[[], object]] = []
        self.is_blocked = False  # an operator must decide, as intended
        self._dead_sessions: list[int] = []
        self._published: list[Change] = []
        self._seen_changes = 0
        self._topic_judge = TopicJudge(self.topic, self._published, self.source.binlog)
        self._target_judge = TargetJudge(self.target, self._published)
        self.emit([], 0)
        self.schedule()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Connect the real code to this world while the block runs."""
        with (
            self.target.dialled(),
            mock.patch.object(resident, "residents", Residents()),
            mock.patch.object(fence, "HUNG_S", HUNG_S),
            mock.patch.object(receiver, "RECONNECT_DELAYS_S", (0.0,)),
            mock.patch.object(converter, "SCHEMA_REPEAT_BYTES", SCHEMA_REPEAT_BYTES),
            mock.patch.object(output, "ROOM_BYTES", 0),  # large source transactions are cut inside
        ):
            yield

    # ---- what happens ------------------------------------------------------------------------------

    def emit(self, kinds: Iterable[str], seed: int) -> None:
        """Commit source transactions of these kinds."""
        chance = Random(seed)
        for kind in kinds:
            self.source.emit(kind, chance)
        fresh = self.source.changes[self._seen_changes :]
        self._seen_changes = len(self.source.changes)
        self._published += [change for change in fresh if change.table != "hidden"]

    def schedule(self, *, rebalance: bool = False) -> None:
        """Assign tasks as the elected scheduler does."""
        alive = {
            name: Candidate(kind=kind, is_settled=rebalance)
            for kind, workers in (
                (TaskKind.CAPTURE, self.captures),
                (TaskKind.APPLY, self.applies),
            )
            for name, worker in workers.items()
            if worker.session.id in self.ensemble.living and not worker.process.is_dead
        }
        tasks = [
            Placeable(capture.TASK, TaskKind.CAPTURE, "set:shop"),
            Placeable(apply.TASK, TaskKind.APPLY, f"task:{apply.TASK}"),
        ]
        placed = assign(tasks, alive, self._placed, moves_max=len(tasks))
        self._placed |= placed.assigned
        self.assignments = {task: found.worker for task, found in self._placed.items()}

    def lose_session(self, name: str) -> None:
        """The ensemble ends a worker's session, and its task moves; the worker does not know."""
        self._worker(name).session.expire()
        self.schedule()

    def notice_session_end(self, name: str) -> None:
        """The worker checks whether its session is over; then ``zk.run.slot`` interrupts the run."""
        worker = self._worker(name)
        if worker.process.is_stopped:
            return
        worker.session.notice_end()
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
        """The next micro-batch of an apply driver; ``error``: the target's answer to a row statement."""
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
        """Replace the process by a new one. ``hangs``: servers and the ensemble have not noticed yet."""
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
        """A Spark task whose driver is gone does its work now, in its own executor."""
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
        """Retention removes part of the applied records, but leaves a mark while a worker writes; 1.0: all of them."""
        topic = self.topic
        applied_to = max(self._target_judge.progress[1], 0)
        committed = topic.committed(applied_to, topic.stable)
        is_idle = all(worker.lease is None for worker in self.captures.values())
        if share >= 1 and not committed and is_idle and topic.stable == topic.high:
            topic.low = topic.high
            return
        marks = [
            record.offset
            for record in topic.committed(0, applied_to)
            if isinstance(self._topic_judge.read(record), ResolvedRecord | FenceRecord)
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
        """As ``zk.run.supervisor`` decides: it runs what is assigned to it, as long as it believes in its lease."""
        if worker.process.is_stopped:
            return False
        if worker.lease is not None and not worker.lease.is_held():
            self._end(worker)
        if self.assignments.get(task) != worker.process.name:
            if worker.lease is not None and worker.session.id in self.ensemble.living:
                self._end(worker)
            return worker.lease is not None  # disconnected from ZooKeeper, it does not notice
        return True

    def _supervise(self, worker: Anyone, work: Callable[[], None]) -> None:
        """Handle the end of a run as ``zk.run.slot`` does."""
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
                    True  # rule 6: the tail is gone, and the progress in the status is older
                )
                self._end(worker)
                return
            self.check(worker.process.name)  # its own writes may be the cause
            raise ViolationError(f"I10: {worker.process.name} is blocked: {fatal}") from fatal

    def _keep_left(self, worker: Anyone) -> None:
        if isinstance(worker, ApplyProcess):
            self.left_lanes = [*self.left_lanes, *worker.left][-LEFT_LANES_MAX:]
            worker.left.clear()

    def _end(self, worker: Anyone, *, is_killed: bool = False, hangs: bool = False) -> None:
        worker.process.forget_plan()
        if is_killed:
            worker.process.kill()
        worker.shut_down()
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
            worker.shut_down()

    # ---- the invariants ----------------------------------------------------------------------------

    def check(self, name: str) -> None:
        """Check the invariants after a step of this worker."""
        self._topic_judge.check()
        if name in self.captures and (end := self.captures[name].relay_end) is not None:
            check_relay(self.source, disk.all_files(self.captures[name].directory), end)

    # ---- the end -----------------------------------------------------------------------------------

    def come_to_rest(self) -> None:
        """End all faults. Then everything arrives, and applying it again changes nothing."""
        for name in (*self.captures, *self.applies):
            self.resume(name)
        while self.left_lanes:
            self.run_left_lane()
        self.topic.deliver_late()
        self.notice_the_dead()
        for name in (*self.captures, *self.applies):
            self.notice_session_end(name)
        self.schedule()
        self._arrive()
        self._topic_judge.finish()
        if not self.is_blocked:
            check_rows(self.source, self.target)
        before = self.target.plain()
        self.read_again(EVERYTHING_AGAIN)
        hold(self.target.plain() == before, "I9: a run that reads again changes rows")
        self._target_judge.restore()
        if max(self._target_judge.progress[1], 0) < self.topic.low:
            return  # retention removed records that this backup needs
        self.read_again(LAST_CUT)
        hold(self._has_arrived(), f"I9: {self._target_judge.progress} after a backup")
        hold(self.target.plain() == before, "I9: from a backup on other rows come out")

    def _arrive(self) -> None:
        for _ in range(LAST_STEPS_MAX):
            for name in self.captures:
                self.step_capture(name, EVERYTHING)
            for name in self.applies:
                self.step_apply(name, LAST_CUT)
            if self._has_arrived():
                return
        raise ViolationError(
            f"I10: {self._target_judge.progress} of {len(self._published)} arrived"
        )

    def read_again(self, cut: Cut) -> None:
        """Start new drivers from the target's progress."""
        for name in self.applies:
            self.crash(name, hangs=False)
        for _ in range(LAST_STEPS_MAX):
            for name in self.applies:
                self.step_apply(name, cut)
            if self._has_arrived():
                return

    def _has_arrived(self) -> bool:
        if self.is_blocked:
            return self._target_judge.progress[0] == self._topic_judge.delivered
        hint = self.surroundings.hint
        binlog = self.source.binlog
        everything = parse_gtid_set(binlog.flavour, binlog.executed(self.source.number))
        return (
            hint is not None
            and hint.progress.gtid_set.includes(everything)
            and self._topic_judge.delivered == len(self._published)
            and self._target_judge.progress[0] == self._topic_judge.delivered
        )
