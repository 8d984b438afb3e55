"""The rules by which Hypothesis changes the world: on the path to the topic, on the path to the target, or both.

The machines after these three have few rules each. They repeat one kind of fault many times, to test one guard.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from millrace.schemas.gtid import Flavour
from tests.simulation import apply, capture
from tests.simulation.apply import Cut
from tests.simulation.capture import Portion
from tests.simulation.disk import Loss
from tests.simulation.gate import Fate, Plan
from tests.simulation.model_kafka import Answer, State
from tests.simulation.source import KINDS
from tests.simulation.world import APPLY_WORKERS, CAPTURE_WORKERS, EVERYTHING, Weather, World

MEMORY = Path("/dev/shm")

_RARELY = st.sampled_from([False, False, True])
_SEEDS = st.integers(0, 2**32 - 1)
_KINDS = st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4)
_CAPTURE_PLANS = st.none() | st.builds(
    Plan, st.sampled_from(Fate), st.integers(1, 24), st.booleans()
)
_APPLY_PLANS = st.none() | st.builds(Plan, st.sampled_from(Fate), st.integers(1, 48), st.booleans())
_PORTIONS = st.builds(
    Portion,
    st.sampled_from([1 << 20, 60, 200, 700, 1500]) | st.integers(1, 4000),
    st.sampled_from([1 << 20, 600, 2000]),
    st.integers(0, 8),
)
_WEATHER = st.builds(
    Weather,
    _CAPTURE_PLANS,
    st.lists(st.sampled_from(Answer), max_size=4).map(tuple),
    st.integers(0, 24),
    st.sampled_from([State.COMMITTED, State.ABORTED]),
)
_CUTS = st.builds(
    Cut,
    st.sampled_from([1 << 20, 3, 20]) | st.integers(1, 100),
    st.booleans(),
    st.sampled_from([1000, 2]),
    _SEEDS,
    st.booleans(),
    st.booleans(),
    st.sampled_from([0, 0, 1, 9, 1 << 20]),
)


class _Machine(RuleBasedStateMachine):
    """A world; at the end it comes to rest, unless an invariant was violated before."""

    flavour: ClassVar[Flavour] = Flavour.MYSQL

    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()
        folder = tempfile.mkdtemp(prefix="millrace-", dir=MEMORY if MEMORY.exists() else None)
        self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
        self._world = World(Path(folder), self.flavour)
        self._stack.callback(self._world.close)
        self._stack.enter_context(self._world.running())
        self._is_broken = False

    @contextmanager
    def world(self) -> Iterator[World]:
        """Wrap one rule; if it violates an invariant, the end is not checked."""
        self._is_broken = True
        yield self._world
        self._is_broken = False

    def owner(self, task: str, names: tuple[str, ...], *, is_other: bool) -> str:
        """The worker to which the scheduler assigned a task, or the other one."""
        wanted = self._world.assignments.get(task, names[0])
        return next(name for name in names if (name == wanted) is not is_other)

    def teardown(self) -> None:
        """End all faults."""
        with self._stack:
            if not self._is_broken:
                self._world.come_to_rest()


class _DeadRules(_Machine):
    """Sessions of dead processes end."""

    @rule()
    def notice_the_dead(self) -> None:
        with self.world() as world:
            world.notice_the_dead()


class CaptureRules(_DeadRules):
    """From the source to the topic."""

    def capturer(self, *, is_other: bool) -> str:
        """A worker's name."""
        return self.owner(capture.TASK, CAPTURE_WORKERS, is_other=is_other)

    @rule(kinds=_KINDS, seed=_SEEDS)
    def emit(self, kinds: list[str], seed: int) -> None:
        with self.world() as world:
            world.emit(kinds, seed)

    @rule()
    def rotate(self) -> None:
        with self.world() as world:
            world.source.rotate()

    @rule(is_other=_RARELY, portion=_PORTIONS, weather=_WEATHER)
    def step_capture(self, is_other: bool, portion: Portion, weather: Weather) -> None:
        with self.world() as world:
            world.step_capture(self.capturer(is_other=is_other), portion, weather)

    @rule(is_other=st.booleans())
    def resume_capture(self, is_other: bool) -> None:
        with self.world() as world:
            world.resume(self.capturer(is_other=is_other))

    @rule(is_other=_RARELY, loss=st.sampled_from(Loss), seed=_SEEDS, hangs=st.booleans())
    def crash_capture(self, is_other: bool, loss: Loss, seed: int, hangs: bool) -> None:
        with self.world() as world:
            world.crash(self.capturer(is_other=is_other), loss=loss, seed=seed, hangs=hangs)

    @rule()
    def move_capture(self) -> None:
        with self.world() as world:
            world.lose_session(self.capturer(is_other=False))

    @rule(is_other=st.booleans())
    def hear_in_capture(self, is_other: bool) -> None:
        with self.world() as world:
            world.notice_session_end(self.capturer(is_other=is_other))


class ApplyRules(_DeadRules):
    """From the topic to the target."""

    def applier(self, *, is_other: bool) -> str:
        """A driver's name."""
        return self.owner(apply.TASK, APPLY_WORKERS, is_other=is_other)

    @rule(is_other=_RARELY, cut=_CUTS, plan=_APPLY_PLANS, error=st.sampled_from([0, 0, 1205, 1213]))
    def step_apply(self, is_other: bool, cut: Cut, plan: Plan | None, error: int) -> None:
        with self.world() as world:
            world.step_apply(self.applier(is_other=is_other), cut, plan, error)

    @rule(plan=_APPLY_PLANS.filter(lambda plan: plan is None or plan.fate is not Fate.STOP))
    def run_left_lane(self, plan: Plan | None) -> None:
        with self.world() as world:
            world.run_left_lane(plan)

    @rule(is_other=st.booleans())
    def resume_apply(self, is_other: bool) -> None:
        with self.world() as world:
            world.resume(self.applier(is_other=is_other))

    @rule(is_other=_RARELY, hangs=st.booleans())
    def crash_apply(self, is_other: bool, hangs: bool) -> None:
        with self.world() as world:
            world.crash(self.applier(is_other=is_other), hangs=hangs)

    @rule()
    def move_apply(self) -> None:
        with self.world() as world:
            world.lose_session(self.applier(is_other=False))

    @rule(is_other=st.booleans())
    def hear_in_apply(self, is_other: bool) -> None:
        with self.world() as world:
            world.notice_session_end(self.applier(is_other=is_other))


class CaptureMachine(CaptureRules):
    """Faults occur only in capture; at the end everything is applied."""


class ApplyMachine(ApplyRules):
    """All changes arrive in the topic; faults occur only in apply."""

    @rule(kinds=_KINDS, seed=_SEEDS)
    def publish(self, kinds: list[str], seed: int) -> None:
        with self.world() as world:
            world.emit(kinds, seed)
            world.step_capture(CAPTURE_WORKERS[0], EVERYTHING)


class WholeMachine(CaptureRules, ApplyRules):
    """All faults together, and retention."""

    @rule(share=st.sampled_from([0.0, 0.3, 0.9, 1.0]))
    def retain(self, share: float) -> None:
        with self.world() as world:
            world.retain(share)

    @rule(rebalance=st.booleans())
    def schedule(self, rebalance: bool) -> None:
        with self.world() as world:
            world.schedule(rebalance=rebalance)


# ---- few rules each --------------------------------------------------------------------------------

_SURE = [Answer.OK, Answer.SLOW, Answer.LOST_BEFORE, Answer.LOST_AFTER]


class _EmitRules(_Machine):
    """A source at work."""

    @rule(kinds=_KINDS, seed=_SEEDS)
    def emit(self, kinds: list[str], seed: int) -> None:
        with self.world() as world:
            world.emit(kinds, seed)


class AnswersMachine(_EmitRules):
    """One owner of the topic, and all outcomes of its commits."""

    @rule(answer=st.sampled_from(_SURE), place=st.integers(0, 2), late_at=st.integers(1, 10))
    def step(self, answer: Answer, place: int, late_at: int) -> None:
        with self.world() as world:
            answers = (*[Answer.OK] * place, answer)
            weather = Weather(None, answers, late_at, State.COMMITTED)
            world.step_capture(CAPTURE_WORKERS[0], Portion(1 << 20, 600, 4), weather)


class OwnersMachine(_EmitRules):
    """Two owners of the topic: one stops, the other takes over, the first wakes up."""

    @rule(name=st.sampled_from(CAPTURE_WORKERS))
    def step(self, name: str) -> None:
        with self.world() as world:
            world.step_capture(name, EVERYTHING)

    @rule(at=st.integers(1, 16), after=st.booleans())
    def overtake(self, at: int, after: bool) -> None:
        with self.world() as world:
            name = self.owner(capture.TASK, CAPTURE_WORKERS, is_other=False)
            world.step_capture(name, EVERYTHING, Weather(Plan(Fate.STOP, at, after)))
            world.lose_session(name)
            name = self.owner(capture.TASK, CAPTURE_WORKERS, is_other=False)
            world.step_capture(name, EVERYTHING)

    @rule(name=st.sampled_from(CAPTURE_WORKERS))
    def wake(self, name: str) -> None:
        with self.world() as world:
            world.resume(name)
            world.notice_session_end(name)


class RelayMachine(_EmitRules):
    """Connections cut anywhere, and crashes."""

    @rule(wire_bytes=st.integers(1, 3000))
    def step(self, wire_bytes: int) -> None:
        with self.world() as world:
            world.step_capture(CAPTURE_WORKERS[0], Portion(wire_bytes, 1 << 20, 8))

    @rule(loss=st.sampled_from([Loss.CUT, Loss.ZEROS, Loss.GARBAGE]), seed=_SEEDS)
    def crash(self, loss: Loss, seed: int) -> None:
        with self.world() as world:
            world.crash(CAPTURE_WORKERS[0], loss=loss, seed=seed, hangs=False)


class FilesMachine(_Machine):
    """A process that dies while it publishes from the previous file."""

    @rule(kinds=_KINDS, more=_KINDS, seed=_SEEDS, batches=st.integers(1, 4))
    def fall_behind(self, kinds: list[str], more: list[str], seed: int, batches: int) -> None:
        with self.world() as world:
            world.emit(kinds, seed)
            world.source.rotate()
            world.emit(more, seed)
            world.step_capture(CAPTURE_WORKERS[0], Portion(1 << 20, 100, batches))
            world.crash(CAPTURE_WORKERS[0], hangs=False)

    @rule()
    def catch_up(self) -> None:
        with self.world() as world:
            world.step_capture(CAPTURE_WORKERS[0], EVERYTHING)


class PartsMachine(_Machine):
    """Source transactions larger than a batch, and owners that die between their parts; retention."""

    @rule(
        kinds=st.lists(st.sampled_from(["grow", "note", "hide"]), min_size=1, max_size=3),
        seed=_SEEDS,
    )
    def emit(self, kinds: list[str], seed: int) -> None:
        with self.world() as world:
            world.emit(kinds, seed)

    @rule(batches=st.integers(1, 3), plan=_CAPTURE_PLANS, loss=st.sampled_from([None, *Loss]))
    def step(self, batches: int, plan: Plan | None, loss: Loss | None) -> None:
        with self.world() as world:
            name = self.owner(capture.TASK, CAPTURE_WORKERS, is_other=False)
            world.step_capture(name, Portion(1 << 20, 600, batches), Weather(plan))
            if loss is not None:
                world.crash(name, loss=loss, seed=batches, hangs=False)

    @rule(share=st.sampled_from([0.0, 0.5]))
    def apply_and_retain(self, share: float) -> None:
        with self.world() as world:
            name = self.owner(apply.TASK, APPLY_WORKERS, is_other=False)
            world.step_apply(name, Cut(1 << 20, True, 1000, 0))
            world.retain(share)


class _PublishRules(_DeadRules):
    """All changes arrive in the topic; only changes of related rows occur."""

    kinds: ClassVar[list[str]] = sorted(KINDS.keys() - {"roll back", "hide", "grow"})

    @rule(data=st.data(), seed=_SEEDS)
    def publish(self, data: st.DataObject, seed: int) -> None:
        with self.world() as world:
            kinds = data.draw(st.lists(st.sampled_from(self.kinds), min_size=4, max_size=12))
            self._write(world, kinds, seed)

    def _write(self, world: World, kinds: list[str], seed: int) -> None:
        world.emit(kinds, seed)
        world.step_capture(CAPTURE_WORKERS[0], EVERYTHING)


class LanesMachine(_PublishRules):
    """Lanes in any order, twice, too late; drivers that die between them."""

    kinds: ClassVar[list[str]] = [
        "transfer",
        "open account",
        "close account",
        "swap codes",
        "give code",
        "note",
    ]

    @rule(
        seed=_SEEDS,
        rows=st.sampled_from([1000, 6]),
        is_serial=_RARELY,
        lanes_left=st.booleans(),
        is_doubled=st.booleans(),
    )
    def step(
        self, seed: int, rows: int, is_serial: bool, lanes_left: bool, is_doubled: bool
    ) -> None:
        """``rows``: of a window; with few there are several flights."""
        with self.world() as world:
            self._write(world, Random(seed).choices(self.kinds, k=6), seed)
            cut = Cut(1 << 20, not is_serial, rows, seed, lanes_left, is_doubled)
            world.step_apply(self.owner(apply.TASK, APPLY_WORKERS, is_other=False), cut)
            world.notice_the_dead()

    @rule()
    def run_left_lane(self) -> None:
        with self.world() as world:
            world.run_left_lane()


class DriversMachine(_PublishRules):
    """Two drivers: one stops, the other takes over, the first wakes up."""

    @rule(name=st.sampled_from(APPLY_WORKERS), seed=_SEEDS, is_large=st.booleans())
    def step(self, name: str, seed: int, is_large: bool) -> None:
        with self.world() as world:
            world.step_apply(name, Cut(1 << 20, is_large, 1000, seed))

    @rule(at=st.integers(1, 50), after=st.booleans(), seed=_SEEDS, is_serial=_RARELY)
    def overtake(self, at: int, after: bool, seed: int, is_serial: bool) -> None:
        """The successor applies the pending work of the stopped driver, and later changes of the same rows."""
        with self.world() as world:
            cut = Cut(1 << 20, not is_serial, 1000, seed)
            name = self.owner(apply.TASK, APPLY_WORKERS, is_other=False)
            world.step_apply(name, cut)
            self._write(world, ["transfer"] * 3, seed)
            world.step_apply(name, cut, Plan(Fate.STOP, at, after))
            world.lose_session(name)
            for _ in range(2):
                world.step_apply(self.owner(apply.TASK, APPLY_WORKERS, is_other=False), cut)
                self._write(world, ["transfer"] * 3, seed)

    @rule(name=st.sampled_from(APPLY_WORKERS))
    def wake(self, name: str) -> None:
        with self.world() as world:
            world.resume(name)
            world.notice_session_end(name)


class StatementsMachine(_PublishRules):
    """DDL, and a driver that dies at any of its requests."""

    kinds: ClassVar[list[str]] = ["alter", "truncate", "note"]

    @rule(at=st.integers(1, 90), after=st.booleans())
    def step(self, at: int, after: bool) -> None:
        with self.world() as world:
            name = self.owner(apply.TASK, APPLY_WORKERS, is_other=False)
            world.step_apply(name, Cut(1 << 20, False, 1000, 0), Plan(Fate.KILL, at, after))
