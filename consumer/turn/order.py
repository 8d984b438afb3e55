"""The driver's request to an executor, and the answer.

    Order       apply the topic from the progress on the target, as the owner of the fence
    Outcome     how far it came
    Share       one Spark task's part of a spread turn, which several apply together
    ShareEnd    how far that came
    Failure     an error of Millrace as a value; other errors end the Spark task
    Answer      an Outcome, ShareEnd or Failure, with the incidents of the executor

All are values that Spark can send.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from consumer.target.progress import Mark, Owner
from consumer.write.incidents import pending
from drivers.mysql.connection import Endpoint
from millrace.errors import Fatal, Fenced, MillraceError, Retryable
from schemas.documents import ConflictPolicy, Consistency, TableFilter, TopicAddress
from schemas.stages.incidents import Incidents


@dataclass(frozen=True, slots=True)
class Order:
    """One turn of a task. ``topic_id``: Kafka's id of the topic, for the mark ("": unknown).

    ``begin``: the first offset that the topic kept when the run began, or the mark's. ``end``: the topic has records up
    to this offset, so a turn is not idle before it has read that far. ``safe_until``: the GTID set of safe mode; "":
    none. ``turn_s``: it ends after this time. ``until``: it reads no record at or above this offset (-1: no limit).
    ``is_partial``: the task loads tables, so the executor reads what this stream applies (``target.load_range``).
    """

    owner: Owner
    endpoint: Endpoint
    policy: ConflictPolicy
    lane_count: int
    source: TopicAddress
    topic_id: str = ""
    tables: TableFilter = field(default_factory=TableFilter)
    begin: int = -1
    end: int = -1
    safe_until: str = ""
    turn_s: float = math.inf
    consistency: Consistency = Consistency.CAUSAL
    until: int = -1
    is_partial: bool = False


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


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a turn. ``owner`` holds the fence now. ``triggers``: those on tables that the topic writes.

    ``is_idle``: it ended because no more records came. ``in_order``: tables that one lane applies, and why.
    ``read_to``: the topic has no record between the mark and this offset (-1: not known).
    ``only_left_out``: see ``TablePlans``.
    ``shown``: while the task waits for its start, the GTID set of the last control record; "" if there was none.
    """

    owner: Owner
    mark: Mark
    counts: Counts = field(default_factory=Counts)
    triggers: tuple[str, ...] = ()
    is_idle: bool = False
    in_order: tuple[tuple[str, str], ...] = ()
    read_to: int = -1
    only_left_out: str = ""
    shown: str = ""


@dataclass(frozen=True, slots=True)
class Share:
    """Share ``place`` of ``count`` of a spread turn: the lanes whose number leaves ``place`` when divided by ``count``.

    The owner of ``order`` has the fence for the whole turn.
    """

    order: Order
    place: int
    count: int


@dataclass(frozen=True, slots=True)
class Step:
    """A window of a spread turn. ``plan``: a digest of the lanes of all rows up to here; ``learned``: its schemas."""

    after: Mark
    learned: Mapping[int, str]
    plan: bytes


@dataclass(frozen=True, slots=True)
class ShareEnd:
    """The end of a share. ``steps``: the windows whose rows in its lanes are applied, in order.

    ``is_agreed``: no other share had another plan key; otherwise it has applied nothing. ``is_read``: it came to the
    end of the order. ``needs_solo``: the next record is for a turn of one Spark task. ``left_to``: the last seq that
    earlier turns left in bitmaps. The rest is as in ``Outcome``.
    """

    steps: tuple[Step, ...] = ()
    is_agreed: bool = True
    is_read: bool = False
    needs_solo: bool = False
    left_to: int = -1
    counts: Counts = field(default_factory=Counts)
    triggers: tuple[str, ...] = ()
    in_order: tuple[tuple[str, str], ...] = ()
    only_left_out: str = ""


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


def guarded(task: str, work: Callable[[], T]) -> Answer[T]:
    """Run ``work`` in an executor; an error of Millrace becomes a value."""
    result: T | Failure
    try:
        result = work()
    except MillraceError as exc:
        branch = next(name for name, kind in _BRANCHES.items() if isinstance(exc, kind))
        result = Failure(branch, exc.code, exc.message, exc.fix, dict(exc.context))
    return Answer(task, result, pending.take(task))


def result_of(answer: Answer[T]) -> T:
    """The result; raises the error."""
    if isinstance(answer.result, Failure):
        raise answer.result.error()
    return answer.result
