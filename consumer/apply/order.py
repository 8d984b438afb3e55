"""The driver's request to an executor, and the answer.

    Order       apply the topic from the progress on the target, as the owner of the fence
    Outcome     how far it came
    Failure     an error of Millrace as a value; other errors end the Spark task

All are values that Spark can send.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from consumer.target.connection import Endpoint
from consumer.target.progress import Mark, Owner
from millrace.errors import Fatal, Fenced, MillraceError, Retryable
from schemas.documents import ConflictPolicy, TableFilter, TopicAddress


@dataclass(frozen=True, slots=True)
class Order:
    """One turn of a task. ``topic_id``: Kafka's id of the topic, for the mark ("": unknown).

    ``begin``: the first offset that the topic kept when the run began, or the mark's. ``end``: the topic has records up
    to this offset, so a turn is not idle before it has read that far. ``safe_until``: the GTID set
    of safe mode; "": none.
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


@dataclass(slots=True)
class Counts:
    """The work of one turn. ``left_out``: DDL statements not executed. ``commit_ms``: of the last applied row."""

    rows: int = 0
    statements: int = 0
    ddl: int = 0
    left_out: int = 0
    commit_ms: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a turn. ``owner`` holds the fence now. ``triggers``: those on tables that the topic writes.

    ``is_idle``: it ended because no more records came. ``in_order``: tables that one lane applies, and why.
    """

    owner: Owner
    mark: Mark
    counts: Counts = field(default_factory=Counts)
    triggers: tuple[str, ...] = ()
    is_idle: bool = False
    in_order: tuple[tuple[str, str], ...] = ()


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


def guarded(work: Callable[[], Outcome]) -> Outcome | Failure:
    """Run ``work`` in an executor; an error of Millrace becomes a value."""
    try:
        return work()
    except MillraceError as exc:
        branch = next(name for name, kind in _BRANCHES.items() if isinstance(exc, kind))
        return Failure(branch, exc.code, exc.message, exc.fix, dict(exc.context))


def outcome_of(answer: Outcome | Failure) -> Outcome:
    """The outcome; raises the error."""
    if isinstance(answer, Failure):
        raise answer.error()
    return answer
