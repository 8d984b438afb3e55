"""A target in memory for apply: Millrace's tables by the statements of the real code, rows by the seqs of changes.

Target transactions run one after the other, each whole or not at all. A commit may lose its answer or its request, a
driver may die between two lanes, and every lane may be executed again in any later run.
"""

import pickle
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import pytest

from consumer.apply import batch, executor
from consumer.apply.batch import Assignment, BatchApplier
from consumer.apply.executor import Order, Outcome
from consumer.kernel.walk import SEQ, SLOT
from consumer.plan.applied import from_bitmaps
from consumer.row_schemas import Ints, RowSchemas
from consumer.rows import Rows, find_keys
from consumer.sql.table_plans import Catalogue, TablePlans, slots_of
from consumer.target.connection import Endpoint
from consumer.target.progress import Mark, MarkTopic, Owner, SavedProgress
from millrace.errors import Fatal, MillraceError, Retryable
from schemas.documents import ConflictPolicy
from schemas.gtid import Flavour
from tests.kit.apply.history import Change, History, RefusedError, Tables, inventory
from tests.kit.apply.local import LaneCall, LocalRecords, ignore

ENDPOINT = Endpoint("model", 0, "", "")
START = Mark(0, -2, topic=MarkTopic("local"))
RUNS_MAX = 200


@dataclass
class State:
    """The committed state."""

    tables: Tables = field(default_factory=Tables)
    run: int = 0
    mark: Mark = START
    applied: dict[tuple[object, ...], tuple[int, bytes]] = field(default_factory=dict)
    schemas: dict[int, str] = field(default_factory=dict)

    def copy(self) -> "State":
        """A copy for one target transaction."""
        return State(
            self.tables.copy(), self.run, self.mark, dict(self.applied), dict(self.schemas)
        )


@dataclass
class ModelTarget:
    """``chance`` decides what fails; ``faults`` is how often a commit or a batch fails."""

    history: History
    chance: random.Random
    faults: float = 0.1
    state: State = field(default_factory=State)
    calls: list[Callable[[], object]] = field(default_factory=list)

    @property
    def flavour(self) -> Flavour:
        """The flavour of the history."""
        return self.history.stream.flavour

    def happens(self) -> bool:
        """Whether a fault happens now."""
        return self.chance.random() < self.faults


class ModelSession:
    """A connection: the part of ``TargetConnection`` that ``consumer`` calls."""

    is_open = True
    id = 1

    def __init__(self, target: ModelTarget) -> None:
        self.target = target
        self.flavour = target.flavour
        self._work: State | None = None

    @property
    def work(self) -> State:
        """The state of the current transaction."""
        if self._work is None:
            self._work = self.target.state.copy()
        return self._work

    def query(self, sql: str, arguments: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
        """Millrace's own statements; any other fails the test."""
        work, place = self.work, tuple(arguments[:5])
        match " ".join(sql.split()[:4]).replace("millrace.", ""):
            case "SELECT 1":
                return [(1,)]
            case "SHOW GLOBAL STATUS WHERE":
                return []
            case "SELECT epoch, run FROM":
                return [(1, work.run)]
            case "SELECT seq, next_offset FROM":
                return [(work.mark.seq, work.mark.next_offset)]
            case "INSERT INTO applied VALUES":
                if place in work.applied:
                    raise Fatal("MR-5010", "it is there")
                work.applied[place] = arguments[5:]  # type: ignore[assignment]
            case "SELECT 1 FROM applied":
                return [(1,)] if work.applied[place] == tuple(arguments[5:]) else []
            case "DELETE FROM applied WHERE":
                run = arguments[1] if len(arguments) > 1 else None
                kept = work.applied.items()
                work.applied = {key: bits for key, bits in kept if run not in (None, key[1])}
            case "REPLACE INTO record_schema (task,":
                work.schemas[int(str(arguments[1]))] = str(arguments[2])
            case "UPDATE conflict c JOIN":
                return []  # no conflict keeps an earlier schema here
            case other:
                raise AssertionError(other)
        return []

    def with_arguments(self, sql: str, arguments: tuple[object, ...]) -> bytes:
        """The statement for ``run``."""
        assert sql.startswith("UPDATE millrace.progress")
        return pickle.dumps(arguments)

    def run(self, sql: bytes) -> int:
        """Move the mark."""
        *values, past_start, _, seq, next_offset = pickle.loads(sql)
        if (self.work.mark.seq, self.work.mark.next_offset) != (seq, next_offset):
            return 0
        topic = MarkTopic(*values[4:])
        self.work.mark = replace(Mark(*values[:4]), topic=topic, past_start=bool(past_start))
        return 1

    def commit(self) -> None:
        """Commit everything at once; or the connection breaks before or after the commit."""
        is_lost = self.target.happens()
        if not is_lost or self.target.chance.random() < 0.5:
            self.target.state = self.work
        self._work = None
        if is_lost:
            raise Retryable("MR-5001", "the connection broke")

    def rollback(self) -> None:
        """Discard the transaction."""
        self._work = None

    def close(self) -> None:
        """Close; the server rolls back."""
        self._work = None


class ModelWriter:
    """``RowWriter`` on the model: level after level, any order inside."""

    def __init__(self, session: ModelSession, plans: TablePlans, _: object) -> None:
        self._session = session
        self._plans = plans
        self.statement_count = 0
        self.blocking = None  # the model stores no conflicts

    def write(self, rows: Rows, numbers: Ints) -> None:
        """See ``RowWriter``."""
        programs = self._plans.key_programs(slots_of(rows.records[numbers, SLOT]))
        levels = find_keys(rows, programs, numbers).levels(len(numbers))
        order = list(range(len(numbers)))
        self._session.target.chance.shuffle(order)
        self._apply(rows, numbers[sorted(order, key=lambda place: int(levels[place]))])

    def write_carefully(self, rows: Rows, numbers: Ints) -> None:
        """Write row by row."""
        self._apply(rows, numbers)

    def _apply(self, rows: Rows, numbers: Ints) -> None:
        for number in map(int, numbers):
            change: Change = self._session.target.history.changes[int(rows.records[number, SEQ])]
            try:
                self._session.work.tables.apply(*change)
            except RefusedError:
                raise Fatal("MR-5010", f"{change} is refused") from None

    def settle(self) -> None:
        """There is nothing to settle."""


class DriverDiedError(Exception):
    """kill -9."""


@dataclass
class ModelRecords(LocalRecords):
    """Lanes in any order, some twice, some of earlier plans; the driver may die between two."""

    target: ModelTarget | None = None

    def lanes(
        self, order: Order, catalogue: Catalogue, applied: Ints, *, offsets: Ints, lanes: Ints
    ) -> list[Outcome]:
        """The lanes of the plan, and some of earlier plans."""
        assert self.target is not None
        call = LaneCall.of(self, order, catalogue, applied, offsets=offsets, lanes=lanes)
        done = []
        for lane in self.lane_order(len(call.offsets)):
            self.target.calls.append(partial(call.apply, lane))
            done.append(call.apply(lane))
            if self.target.happens():
                raise DriverDiedError
            execute_again(self.target)
        return done

    def serial(self, order: Order, catalogue: Catalogue, applied: Ints) -> Outcome:
        """One Spark task for all rows; it may be executed again too."""
        assert self.target is not None
        self.target.calls.append(partial(super().serial, order, catalogue, applied))
        return super().serial(order, catalogue, applied)


def execute_again(target: ModelTarget) -> None:
    """Execute an abandoned or finished Spark task of any run again."""
    if target.calls and target.happens():
        try:
            target.chance.choice(target.calls[-8:])()
        except MillraceError as exc:
            if exc.code not in ("MR-5001", "MR-5020", "MR-5021"):
                raise


def model_patched(patch: pytest.MonkeyPatch, target: ModelTarget) -> None:
    """Connect ``consumer`` to the model."""

    def session_for(*_: object) -> ModelSession:
        return ModelSession(target)

    patch.setattr(executor, "session_for", session_for)
    patch.setattr(batch, "session_for", session_for)
    patch.setattr(executor, "RowWriter", ModelWriter)


def start(target: ModelTarget, *, task: str, lanes: int) -> BatchApplier:
    """A new run: raise the fence, then read the progress."""
    target.state.run += 1
    state = target.state
    owner = Owner(task, 1, state.run)
    saved = SavedProgress(
        state.mark, from_bitmaps(state.applied.values()), RowSchemas(dict(state.schemas))
    )
    given = Assignment(owner, ENDPOINT, ConflictPolicy.STOP, lanes)
    return BatchApplier.at(
        given, saved, replace(inventory("bank"), flavour=target.flavour), state.mark
    )


def run_randomly(target: ModelTarget, *, task: str) -> None:
    """Apply the whole history with random cuts, lanes, orders, replays, crashes and late lanes."""
    values, chance = target.history.stream.values, target.chance
    for _ in range(RUNS_MAX):
        applier = start(target, task=task, lanes=chance.randint(1, 5))
        try:
            while (at := max(applier.mark.next_offset, 0)) < len(values):
                records = ModelRecords(
                    values[at : at + chance.choice([1, 5, 20, 80])],
                    at,
                    is_large=chance.random() < 0.7,
                    arrow_rows=chance.choice([3, 1000]),
                    lane_order=lambda count: chance.sample(range(count), count),
                    target=target,
                )
                applier.process(records, ignore)
                execute_again(target)
            return
        except DriverDiedError:
            continue
        except Retryable as exc:
            if exc.code not in ("MR-5001", "MR-5021"):
                raise
    raise AssertionError("no run came through")
