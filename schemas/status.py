"""The report of a task, and the allowed changes of its state.

Layout in ZooKeeper (``status/<task>``, canonical JSON; the owner writes states at once, progress every 5 s):
``format, state, why, code, fix, next_try_s, gtid_set, seq, topic, topic_end, epoch, worker, warnings, silent_s,
captured, relayed, published, applied, loaded, snapshot, compared, delivered, subscribers``, and what
``zk.tree.reports`` adds. The stages are those of ``schemas.stages``; null if the task has no such stage.

The stages are for people and dashboards. No decision of a task depends on them.
``gtid_set`` is what has been published (capture) or applied (apply). The authoritative progress is in the topic and on
the target. A start uses ``gtid_set`` and ``seq`` only if retention has removed every record of a topic, and only while
the topic still ends at the offset ``topic_end`` (0: unknown, as inside a source transaction).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import Annotated, Any

from millrace.errors import Fatal
from millrace.schemas.json_input import load_json
from millrace.schemas.plain import Wire, from_plain, to_plain
from millrace.schemas.stages import (
    Applied,
    Captured,
    Compared,
    Delivered,
    Loaded,
    Published,
    Relayed,
    SnapshotStage,
    SubscriberStage,
)

STATUS_FORMAT = 2  # 1 had free-form figures instead of ``published`` and ``warnings``
WHY_CHARACTERS_MAX = 4000  # keeps a node far below ZooKeeper's 1 MiB
STAGES = (
    "captured",
    "relayed",
    "published",
    "applied",
    "loaded",
    "snapshot",
    "compared",
    "delivered",
)


class TaskState(Enum):
    """The state of a task."""

    PENDING = "pending"  # created, no worker owns it
    ASSIGNED = "assigned"  # the scheduler chose a worker; it is starting or waits for the lease
    RUNNING = "running"  # the owner processes rows
    # it should process rows and does not (``schemas.stall``); no runner reports it
    STALLED = "stalled"
    DEGRADED = "degraded"  # retrying automatically; the report says why and when
    PAUSED = "paused"  # an operator paused it
    BLOCKED = "blocked"  # a Fatal error; only an operator can end this state

    def to(self, target: "TaskState") -> "TaskState":
        """Returns ``target``; ValueError if the change is not allowed. Staying in a state always is."""
        if target is not self and target not in ALLOWED[self]:
            raise ValueError(f"a task cannot go from {self.value} to {target.value}")
        return target


_S = TaskState
ALLOWED: Mapping[TaskState, frozenset[TaskState]] = MappingProxyType(
    {
        _S.PENDING: frozenset({_S.ASSIGNED, _S.PAUSED}),
        # a start can fail before the first row: the source is unavailable (DEGRADED) or unusable (BLOCKED)
        _S.ASSIGNED: frozenset({_S.RUNNING, _S.DEGRADED, _S.BLOCKED, _S.PENDING, _S.PAUSED}),
        _S.STALLED: frozenset(),  # derived from a RUNNING report by its readers, so no task is in it
        _S.RUNNING: frozenset({_S.DEGRADED, _S.ASSIGNED, _S.PENDING, _S.PAUSED, _S.BLOCKED}),
        _S.DEGRADED: frozenset({_S.RUNNING, _S.ASSIGNED, _S.PENDING, _S.PAUSED, _S.BLOCKED}),
        _S.PAUSED: frozenset({_S.PENDING}),
        _S.BLOCKED: frozenset({_S.PENDING, _S.PAUSED}),
    }
)
assert set(ALLOWED) == set(TaskState)


@dataclass(frozen=True, slots=True)
class TaskReport:
    """One report. A runner fills ``state`` (RUNNING or DEGRADED), ``why``, its progress, warnings and stages.

    The supervisor adds ``epoch``, ``worker``, ``subscribers`` and ``silent_s``: how long the runner had not
    reported when this was written. ``next_try_s`` counts from the time of the report; it is 0 if the task does not wait
    for a retry. ``code`` and ``fix`` are empty while there is no error; a RUNNING task can carry a warning with a code,
    and ``warnings`` without one.
    """

    state: TaskState
    why: Annotated[str, Wire(length_max=WHY_CHARACTERS_MAX)] = ""
    code: str = ""
    fix: Annotated[str, Wire(length_max=WHY_CHARACTERS_MAX)] = ""
    next_try_s: Annotated[float, Wire(digits=3)] = 0.0
    gtid_set: str = ""
    seq: int = 0
    topic: Annotated[str, Wire(is_added_later=True)] = ""
    topic_end: Annotated[int, Wire(is_added_later=True)] = 0
    epoch: int = 0
    worker: str = ""
    warnings: Annotated[tuple[str, ...], Wire(is_added_later=True)] = ()
    silent_s: Annotated[float, Wire(digits=1, is_added_later=True)] = 0.0
    captured: Captured | None = None
    relayed: Relayed | None = None
    published: Published | None = None
    applied: Applied | None = None
    loaded: Annotated[Loaded | None, Wire(is_added_later=True)] = None
    snapshot: Annotated[SnapshotStage | None, Wire(is_added_later=True)] = None
    compared: Annotated[Compared | None, Wire(is_added_later=True)] = None
    delivered: Annotated[Delivered | None, Wire(is_added_later=True)] = None
    subscribers: Annotated[tuple[SubscriberStage, ...], Wire(is_added_later=True)] = ()

    def at_rest(self) -> "TaskReport":
        """The report without what is true only while the task runs."""
        return replace(
            self,
            silent_s=0.0,
            published=self.published and self.published.at_rest(),
            applied=self.applied and self.applied.at_rest(),
            loaded=self.loaded and self.loaded.at_rest(),
            compared=self.compared and self.compared.at_rest(),
            delivered=self.delivered and self.delivered.at_rest(),
        )


def report_to_plain(report: TaskReport) -> dict[str, object]:
    """Plain values, in the order in which people read them."""
    warnings = tuple(warning[:WHY_CHARACTERS_MAX] for warning in report.warnings)
    return {"format": STATUS_FORMAT, **to_plain(replace(report, warnings=warnings))}


def report_from_json(content: bytes, *, origin: str) -> TaskReport:
    """The report from the content of a status node; Fatal MR-4011."""
    try:
        plain: Any = load_json(content)
        if plain["format"] > STATUS_FORMAT:
            raise ValueError(f"format {plain['format']} is newer than {STATUS_FORMAT}")
        if plain["format"] < STATUS_FORMAT:  # only the progress counts
            plain |= dict.fromkeys(STAGES)
        return from_plain(TaskReport, plain)
    except (ValueError, KeyError, TypeError, OverflowError) as exc:
        raise Fatal("MR-4011", f"{origin} can't be read: {type(exc).__name__}") from exc
