"""A target in memory for apply: Millrace's tables by the statements of the real code, rows by the seqs of changes.

Target transactions run one after the other, each whole or not at all. A commit may lose its answer or its request, a
turn may die between two parts, and every part of an earlier turn may be executed in any later one.
"""

import pickle
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, Self, cast

import pytest

from millrace.consumer.kernel.walk import SEQ
from millrace.consumer.records import rows
from millrace.consumer.records.numbers import RecordNumbers
from millrace.consumer.records.pieces import Size, Taken
from millrace.consumer.records.row_schemas import RowSchemas
from millrace.consumer.records.rows import Rows
from millrace.consumer.tables.causality_keys import find_keys
from millrace.consumer.tables.filter import Route
from millrace.consumer.tables.table_plans import Catalogue, TablePlans, slots_of
from millrace.consumer.target.bitmap import from_bitmaps
from millrace.consumer.target.progress import Mark, MarkTopic, Owner
from millrace.consumer.target.sessions import COORDINATOR, Sessions
from millrace.consumer.turn.applier import Applier
from millrace.consumer.turn.context import Limits, Position, Tools
from millrace.consumer.turn.order import Assignment, Offsets, Outcome, Rules, TurnOrder
from millrace.consumer.write import large_transaction, target_transaction
from millrace.consumer.write.aside import NOTHING_ASIDE, AsideRule
from millrace.consumer.write.lanes import Done, Work
from millrace.consumer.write.target_transaction import Writing
from millrace.drivers.mysql.catalog import Inventory
from millrace.drivers.mysql.connection import Endpoint
from millrace.errors import Fatal, Fenced, MillraceError, Retryable
from millrace.schemas.documents import Brokers, ConflictPolicy, Consistency, TopicAddress
from millrace.schemas.gtid import Flavour
from millrace.schemas.view.view import ALL_TABLES, View
from tests.kit.apply.history import Change, History, RefusedError, Tables, inventory
from tests.kit.apply.local import ALL, InlineLanes, ListSource

ENDPOINT = Endpoint("model", 0, "", "")
START = Mark(0, -2, topic=MarkTopic("local"))
RUNS_MAX = 200


class TargetTables(Protocol):
    """The rows of a target. Implemented by ``Tables`` and for views (``tests.kit.apply.view_model``)."""

    def copy(self) -> Self:
        """An independent copy."""

    def apply(self, name: str, before: Any, after: Any) -> None:
        """Apply one change; RefusedError leaves the rows unchanged."""


@dataclass
class State:
    """The committed state."""

    tables: TargetTables = field(default_factory=Tables)
    run: int = 0
    mark: Mark = START
    applied: dict[tuple[object, ...], tuple[int, bytes]] = field(default_factory=dict)
    schemas: dict[int, str] = field(default_factory=dict)
    claims: dict[tuple[object, ...], object] = field(default_factory=dict)
    done: frozenset[int] = frozenset()  # seqs whose changes were made
    merged: dict[tuple[object, ...], tuple[object, ...]] = field(default_factory=dict)

    def copy(self) -> "State":
        """A copy for one target transaction."""
        return replace(
            self,
            tables=self.tables.copy(),
            applied=dict(self.applied),
            schemas=dict(self.schemas),
            claims=dict(self.claims),
            merged=dict(self.merged),
        )


@dataclass
class ModelTarget:
    """``chance`` decides what fails; ``faults`` is how often a commit or a batch fails."""

    history: History
    chance: random.Random
    faults: float = 0.1
    state: State = field(default_factory=State)
    calls: list[Callable[[], object]] = field(default_factory=list)
    switch: Callable[[], object] = list  # between two target transactions: others run
    observe: Callable[[State], object] = id  # after each commit
    view: View = ALL_TABLES
    aside: AsideRule = NOTHING_ASIDE
    session: "Callable[[ModelTarget], ModelSession]" = field(default_factory=lambda: ModelSession)
    inventory: Inventory = field(default_factory=partial(inventory, "bank"))

    @property
    def flavour(self) -> Flavour:
        """The flavour of the history."""
        return self.history.stream.flavour

    def happens(self) -> bool:
        """Whether a fault happens now."""
        return self.chance.random() < self.faults


class ModelSession:
    """A connection: the part of ``MySqlSession`` that ``consumer`` calls."""

    is_open = True
    id = 1

    def __init__(self, target: ModelTarget) -> None:
        self.target = target
        self.flavour = target.flavour
        self._work: State | None = None
        self._saved = target.state

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
            case "SHOW GLOBAL STATUS WHERE":
                return []
            case "SELECT epoch, run FROM":
                return [(1, work.run)]
            case "INSERT INTO applied VALUES":
                if place in work.applied:
                    raise Fatal("MR-5010", "it is there")
                work.applied[place] = arguments[5:]  # type: ignore[assignment]
            case "DELETE FROM applied WHERE":
                work.applied = {
                    key: bits
                    for key, bits in work.applied.items()
                    if not _is_deleted(key, *map(int, map(str, arguments[1:])))
                }
            case "REPLACE INTO record_schema (task,":
                work.schemas[int(str(arguments[1]))] = str(arguments[2])
            case "SELECT plan_key FROM spread":
                return [(key,) for (_, run, _), key in work.claims.items() if run == arguments[1]]
            case "DELETE FROM spread WHERE":
                work.claims = {
                    at: key
                    for at, key in work.claims.items()
                    if int(str(at[1])) >= place[1]  # type: ignore[operator]
                }
            case "SELECT task, source_database, source_table,":
                found = work.merged.items()
                return [(*at[2:], *more) for at, more in sorted(found) if at[:2] == place]
            case "SELECT task FROM progress":
                return []  # no other task
            case "SELECT target_database, target_table, altering":
                named = [set(names) for names in arguments]  # type: ignore[call-overload]
                at_them = (at for at in work.merged if at[0] in named[0] and at[1] in named[1])
                return [(*at[:2], "") for at in at_them if at[2]]
            case "INSERT IGNORE INTO merged_table":
                work.merged.setdefault((*place, "", "", ""), ("{}", "[]", "{}", "{}"))
            case "REPLACE INTO merged_table (target_database,":
                work.merged[place] = arguments[5:]
            case "SAVEPOINT millrace_window":
                self._saved = work.copy()
            case "ROLLBACK TO SAVEPOINT millrace_window":
                self._work = self._saved.copy()
            case "UPDATE conflict c JOIN":
                return []  # no conflict keeps an earlier schema here
            case other:
                raise AssertionError(other)
        return []

    def with_arguments(self, sql: str, arguments: tuple[object, ...]) -> bytes:
        """The statement for ``run``."""
        return pickle.dumps((sql.split()[0], arguments))

    def run(self, sql: bytes) -> int:
        """Move the mark, or claim a share."""
        what, arguments = pickle.loads(sql)
        if what == "INSERT":
            place, key = arguments[:3], arguments[3]
            return int(self.work.claims.setdefault(place, key) is key)
        *values, _, seq, next_offset = arguments
        if (self.work.mark.seq, self.work.mark.next_offset) != (seq, next_offset):
            return 0
        past_start, commit_ms, *_ = values[7:]  # and the lag
        topic = MarkTopic(*values[4:7])
        self.work.mark = replace(
            Mark(*values[:4]), topic=topic, past_start=bool(past_start), commit_ms=commit_ms
        )
        return 1

    def commit(self) -> None:
        """Commit everything at once; or the connection breaks before or after the commit."""
        is_lost = self.target.happens()
        if not is_lost or self.target.chance.random() < 0.5:
            self.target.state = self.work
            self.target.observe(self.work)
        self._work = None
        if is_lost:
            raise Retryable("MR-5001", "the connection broke")
        self.target.switch()

    def rollback(self) -> None:
        """Discard the transaction."""
        self._work = None

    def close(self) -> None:
        """Close; the server rolls back."""
        self._work = None


@dataclass(frozen=True)
class ModelSessions:
    """``Sessions`` on the model."""

    target: ModelTarget
    owner: Owner

    def of(self, owner: Owner, _: Endpoint | None = None) -> "ModelSessions":
        """See ``Sessions``."""
        return replace(self, owner=owner)

    def for_lane(self, _: int = COORDINATOR, *, is_checked: bool = False) -> ModelSession:
        """A new session in any case."""
        return self.target.session(self.target)


def sessions_on(target: ModelTarget, owner: Owner) -> Sessions:
    """The sessions of an owner."""
    return cast(Sessions, ModelSessions(target, owner))


def _is_deleted(place: tuple[object, ...], run: int, through: int | None = None) -> bool:
    """Whether it is a bitmap of this run up to a flight, or of any earlier run."""
    of_run, flight = int(str(place[1])), int(str(place[2]))
    return of_run < run if through is None else (of_run == run and flight <= through)


class ModelWriter:
    """``RowWriter`` on the model: level after level, any order inside."""

    def __init__(self, session: ModelSession, plans: TablePlans, _: object) -> None:
        self._session = session
        self._plans = plans
        self.statement_count = 0
        self.blocking = None  # the model stores no conflicts
        self.conflicts: list[str] = []

    def write(self, rows: Rows, numbers: RecordNumbers) -> None:
        """See ``RowWriter``."""
        programs = self._plans.key_programs(slots_of(rows.slots(numbers)))
        levels = find_keys(rows, programs, numbers).levels(len(numbers))
        order = list(range(len(numbers)))
        self._session.target.chance.shuffle(order)
        in_order = sorted(order, key=lambda place: int(levels[place]))
        self._apply(rows, RecordNumbers(numbers[in_order]))

    def write_carefully(self, rows: Rows, numbers: RecordNumbers) -> None:
        """Write row by row."""
        self._apply(rows, numbers)

    def _apply(self, rows: Rows, numbers: RecordNumbers) -> None:
        for number in map(int, numbers):
            change: Change = self._session.target.history.changes[int(rows.records[number, SEQ])]
            try:
                self._session.work.tables.apply(*change)
            except RefusedError:
                raise Fatal("MR-5010", f"{change} is refused") from None
            self._session.work.done |= {int(rows.records[number, SEQ])}

    def settle(self) -> None:
        """There is nothing to settle."""


class DriverDiedError(Exception):
    """kill -9."""


@dataclass
class ModelLanes(InlineLanes):
    """Parts in any order that the lanes allow; the process may die between two, and parts of it may run later."""

    target: ModelTarget | None = None

    def take(self, *, wait: bool) -> list[Done]:
        """Apply some parts; at least one if it waits."""
        assert self.target is not None
        chance, done = self.target.chance, list[Done]()
        while self.waiting and (chance.random() < 0.5 or (wait and not done)):
            lane = chance.choice(sorted(self.waiting))
            flight, work = self.waiting[lane].pop(0)
            if not self.waiting[lane]:
                del self.waiting[lane]
            if self.target.happens():
                self._die(work)
            execute_again(self.target)
            done.append(Done(flight, work()))
        return done

    def _die(self, work: Work) -> None:
        assert self.target is not None
        left = [work, *(work for lane in self.waiting.values() for _, work in lane)]
        self.target.calls += left
        raise DriverDiedError


@dataclass
class ModelSource(ListSource):
    """Records that come in pieces of any size; now and then none."""

    chance: random.Random = field(default_factory=random.Random)
    deaths: float = 0.0  # of this process, while it reads

    def take(self, size: Size, *, wait_s: float) -> Taken | None:
        """See ``Source``."""
        if self.chance.random() < 0.2:
            return None
        if self.chance.random() < self.deaths:
            raise DriverDiedError
        self.rows = self.chance.choice([1, 3, 20, 80])
        return super().take(size, wait_s=wait_s)


LOCAL = TopicAddress(topic="local", brokers=Brokers(""))


def execute_again(target: ModelTarget) -> None:
    """Execute a part of an earlier turn: it must write nothing."""
    if target.calls and target.happens():
        try:
            target.chance.choice(target.calls[-8:])()
        except MillraceError as exc:
            if exc.code not in ("MR-5001", "MR-5020"):
                raise


def model_patched(patch: pytest.MonkeyPatch, target: ModelTarget) -> None:
    """Write rows to the model. Windows also end after a random number of cells."""
    patch.setattr(rows, "CELLS_MAX", target.chance.choice([1, 30, 100, 1 << 20]))
    patch.setattr(target_transaction, "RowWriter", ModelWriter)
    patch.setattr(large_transaction, "RowWriter", ModelWriter)


def order_for(
    target: ModelTarget,
    *,
    task: str,
    lane_count: int,
    consistency: Consistency = Consistency.CAUSAL,
) -> TurnOrder:
    """An order after the current owner, up to the end of the history."""
    rules = Rules(
        policy=ConflictPolicy.STOP,
        lane_count=lane_count,
        consistency=consistency,
        aside=target.aside,
    )
    return TurnOrder(
        owner=Owner(task, 1, target.state.run),
        assignment=Assignment(endpoint=ENDPOINT, source=LOCAL, rules=rules, view=target.view),
        offsets=Offsets(end=len(target.history.stream.values)),
    )


def plans_of(target: ModelTarget) -> TablePlans:
    """The plans of the target's tables and the schemas up to the mark."""
    known = replace(target.inventory, flavour=target.flavour)
    schemas = RowSchemas(dict(target.state.schemas))
    return TablePlans(Catalogue("", schemas, known, Route(target.view)))


def source_at_mark(target: ModelTarget) -> ModelSource:
    """The records from the mark on, or a little before it."""
    first = max(target.state.mark.next_offset, 0)
    back = min(first, target.chance.choice([0, 0, 3]))
    values = target.history.stream.values[first - back :]
    return ModelSource(values, first - back, 1, chance=target.chance)


def one_turn(
    target: ModelTarget,
    *,
    task: str,
    lane_count: int,
    consistency: Consistency = Consistency.CAUSAL,
) -> Outcome:
    """A new turn: take the fence, then read the progress and apply."""
    target.state.run += 1
    state, chance = target.state, target.chance
    order = order_for(target, task=task, lane_count=lane_count, consistency=consistency)
    source = source_at_mark(target)
    source.deaths = target.faults / 5
    tools = Tools(
        source,
        ModelLanes(target=target),
        no_schema,
        limits=Limits(
            window=Size(chance.choice([1, 4, 15, 1000]), 8 << 20),
            serial_rows=chance.choice([0, 0, 2, 100]),
            part_rows=chance.choice([1, 7, 1000]),
            linger_s=0.0,
            turn_s=float(ALL),
        ),
    )
    begin = Position(state.mark, from_bitmaps(state.applied.values()))
    sessions = sessions_on(target, order.owner)
    writing = Writing(sessions, ConflictPolicy.STOP, aside=target.aside)
    turn = Applier(order, tools, writing=writing, begin=begin, plans=plans_of(target))
    return turn.run()


def whole_turn(target: ModelTarget, *, task: str, lane_count: int) -> Outcome:
    """A turn under ``consistency: transactional``."""
    rule = Consistency.TRANSACTIONAL
    return one_turn(target, task=task, lane_count=lane_count, consistency=rule)


def no_schema(number: int) -> str:
    """A look-up that must not happen."""
    raise AssertionError(number)


Turn = Callable[..., Outcome]


def run_randomly(target: ModelTarget, *, task: str, turns: Sequence[Turn] = (one_turn,)) -> None:
    """Apply the whole history with random windows, lanes, orders, replays, deaths and late parts."""
    values, chance = target.history.stream.values, target.chance
    for _ in range(RUNS_MAX):
        try:
            turn = chance.choice(turns) if len(turns) > 1 else turns[0]
            outcome = turn(target, task=task, lane_count=chance.randint(1, 5))
            if outcome.mark.next_offset >= len(values):
                return
            execute_again(target)
        except DriverDiedError:
            continue
        except Retryable as exc:
            if exc.code not in ("MR-5001", "MR-5021"):
                raise
        except Fenced:
            continue  # the second execution of a share answered first
    raise AssertionError("no run came through")
