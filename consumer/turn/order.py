"""The driver's request to an executor, and the answer.

    Assignment  the constants of a run: target, topic, rules, view
    TurnOrder   apply the topic from the progress on the target, as the owner of the fence
    Outcome     how far it came
    Share       one Spark task's part of a spread turn, which several apply together
    ShareEnd    how far that came
    Failure     an error of Millrace as a value; other errors end the Spark task
    Answer      an Outcome, ShareEnd or Failure, with the incidents of the executor
    Calls       gives orders of one kind to executors, as a load and a comparison do

All are values that Spark can send.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from millrace.consumer.tables.table_plans import Notes
from millrace.consumer.target.progress import Mark, Owner
from millrace.consumer.write.aside import NOTHING_ASIDE, AsideRule
from millrace.consumer.write.incidents import Tally
from millrace.drivers.mysql.connection import Endpoint
from millrace.errors import Fatal, Fenced, MillraceError, Retryable
from millrace.schemas.documents import ConflictPolicy, Consistency, TopicAddress
from millrace.schemas.stages import Incidents
from millrace.schemas.view.view import ALL_TABLES, View


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How a task's rows are applied. ``safe_until``: the GTID set of safe mode; "": none.

    ``loads_missing``: a table that the target does not have waits for a load. ``aside``: whether refused rows are kept,
    and whether the task may have kept rows.
    """

    policy: ConflictPolicy
    lane_count: int
    consistency: Consistency = Consistency.CAUSAL
    safe_until: str = ""
    loads_missing: bool = False
    aside: AsideRule = NOTHING_ASIDE


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The constants of one run of an apply task. (Not the scheduler's assignment of tasks to workers.)"""

    endpoint: Endpoint
    source: TopicAddress
    rules: Rules
    view: View = ALL_TABLES


@dataclass(frozen=True, slots=True, kw_only=True)
class Offsets:
    """Offsets of a turn; -1: none.

    ``begin``: the first that the topic kept when the run began, or the mark's. ``end``: the topic has records up to
    this offset, so a turn is not idle before it has read that far. ``until``: no record at or above it is read.
    """

    begin: int = -1
    end: int = -1
    until: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOrder:
    """One turn of a task. ``topic_id``: Kafka's id of the topic, for the mark ("": unknown).

    ``turn_s``: it ends after this time. ``is_partial``: the task loads tables, so the executor reads what this stream
    applies (``target.load_range``). ``keeps_rows``: rows were kept aside when the last turn ended.
    """

    owner: Owner
    assignment: Assignment
    topic_id: str = ""
    offsets: Offsets = field(default_factory=Offsets)
    turn_s: float = math.inf
    is_partial: bool = False
    keeps_rows: bool = False

    @property
    def why_solo(self) -> str:
        """The reason why shares of a spread turn can't execute it; "" if they can."""
        if self.assignment.rules.consistency is not Consistency.CAUSAL:
            return "a source transaction is one target transaction, in one executor"
        if self.is_partial or self.offsets.until >= 0:
            return "the range of a load is checked by one executor"
        if self.keeps_rows:
            return "the keys of kept rows are computed again by one executor"
        return "" if self.turn_s == math.inf else "it ends before its work does"


@dataclass(slots=True)
class Counts:
    """The work of one turn. ``left_out``: DDL statements in the table ``left_out``.

    ``records`` and ``record_bytes`` were read; each share of a spread turn reads them all.
    """

    rows: int = 0
    statements: int = 0
    ddl: int = 0
    left_out: int = 0
    records: int = 0
    record_bytes: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*map(sum, zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The end of a turn. ``owner`` holds the fence now. ``notes``: what the status shows.

    ``is_idle``: it ended because no more records came. ``read_to``: the topic has no record between the mark and this
    offset (-1: not known).
    """

    owner: Owner
    mark: Mark
    counts: Counts = field(default_factory=Counts)
    notes: Notes = field(default_factory=Notes)
    is_idle: bool = False
    read_to: int = -1


@dataclass(frozen=True, slots=True)
class Share:
    """Share ``place`` of ``count`` of a spread turn: the lanes whose number leaves ``place`` when divided by ``count``.

    The owner of ``order`` has the fence for the whole turn.
    """

    order: TurnOrder
    place: int
    count: int


@dataclass(frozen=True, slots=True)
class Step:
    """A window of a spread turn. ``plan``: a digest of the lanes of all rows up to here; ``learned``: its schemas."""

    after: Mark
    learned: Mapping[int, str]
    plan: bytes


class ShareStop(StrEnum):
    """Why a share ended."""

    READ = "read"  # it came to the end of the order
    SOLO = "solo"  # the next record is for a turn of one Spark task
    EARLY = "early"  # before a window: for example, a group needed two lanes
    DISAGREED = "disagreed"  # another share had another plan key; it has applied nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareEnd:
    """The end of a share. ``steps``: the windows whose rows in its lanes are applied, in order.

    ``left_to``: the last seq that earlier turns left in bitmaps. The rest is as in ``Outcome``.
    """

    steps: tuple[Step, ...] = ()
    stop: ShareStop = ShareStop.EARLY
    left_to: int = -1
    counts: Counts = field(default_factory=Counts)
    notes: Notes = field(default_factory=Notes)


@dataclass(frozen=True, slots=True)
class Failure:
    """An error of Millrace."""

    branch: str
    code: str
    message: str
    fix: str
    context: Mapping[str, object]

    def error(self) -> MillraceError:
        """The error again."""
        return _BRANCHES[self.branch](self.code, self.message, fix=self.fix, **self.context)


_BRANCHES: dict[str, type[MillraceError]] = {
    kind.__name__: kind for kind in (Retryable, Fenced, Fatal)
}


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """The answer to an order of ``task``. ``incidents``: what the executor counted since its last answer."""

    task: str
    result: T | Failure
    incidents: Incidents = field(default_factory=Incidents)


def guarded(task: str, work: Callable[[], T], incidents: Tally | None = None) -> Answer[T]:
    """Run ``work`` in an executor; an error of Millrace becomes a value. The answer takes the incidents."""
    result: T | Failure
    try:
        result = work()
    except MillraceError as exc:
        branch = next(name for name, kind in _BRANCHES.items() if isinstance(exc, kind))
        result = Failure(branch, exc.code, exc.message, exc.fix, dict(exc.context))
    return Answer(task, result, incidents.take(task) if incidents is not None else Incidents())


def result_of(answer: Answer[T]) -> T:
    """The result; raises the error."""
    if isinstance(answer.result, Failure):
        raise answer.result.error()
    return answer.result


_Order = TypeVar("_Order", contravariant=True)
_Result = TypeVar("_Result", covariant=True)


class Calls(Protocol[_Order, _Result]):
    """Executes orders somewhere, each when it is called, by any thread. Implemented with Spark."""

    def call(self, order: _Order) -> _Result:
        """The result; raises the error. Retryable MR-5050 if it was stopped, or the executor was lost."""

    def stop(self) -> None:
        """End all calls under way, which then raise."""
