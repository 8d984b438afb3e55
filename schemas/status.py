"""The report of a task, and the allowed changes of its state.

Layout in ZooKeeper (``status/<task>``, canonical JSON; the owner writes states at once, progress every 5 s):
``format, state, why, code, fix, next_try_s, gtid_set, seq, topic, topic_end, epoch, worker, warnings, silent_s,
captured, relayed, published, applied, loaded, snapshot, compared, revision, work, brokers``. The stages are those of
``schemas.stages``; null if the task has no such stage.

The stages are for people and dashboards. No decision of a task depends on them.
``gtid_set`` is what has been published (capture) or applied (apply). The authoritative progress is in the topic and on
the target. ``gtid_set`` and ``seq`` are used only if retention has removed every record of a topic, and only while the
partition ``topic`` still ends at ``topic_end`` (0: unknown, as inside a source transaction).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import Any

from millrace.errors import Fatal
from schemas.json_input import load_json
from schemas.stages.applied import Applied, applied_of
from schemas.stages.captured import Captured, captured_of
from schemas.stages.compared import Compared, compared_of
from schemas.stages.loaded import Loaded, loaded_of
from schemas.stages.published import Published, published_of
from schemas.stages.relayed import Relayed, relayed_of
from schemas.stages.snapshot import SnapshotStage, snapshot_of

STATUS_FORMAT = 2  # 1 had free-form figures instead of ``published`` and ``warnings``
WHY_CHARACTERS_MAX = 4000  # keeps a node far below ZooKeeper's 1 MiB
STAGES = ("captured", "relayed", "published", "applied", "loaded", "snapshot", "compared")


class TaskState(Enum):
    """The state of a task."""

    PENDING = "pending"  # created, no worker owns it
    ASSIGNED = "assigned"  # the scheduler chose a worker; it is starting or waits for the lease
    RUNNING = "running"  # the owner processes rows
    STALLED = (
        "stalled"  # it should process rows and does not (``schemas.stall``); no runner reports it
    )
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

    The supervisor adds ``epoch``, ``worker`` and ``silent_s``: how long the runner had not reported when this was
    written. ``next_try_s`` counts from the time of the report; it is 0 if the task does not wait for a retry. ``code``
    and ``fix`` are empty while there is no error; a RUNNING task can carry a warning with a code, and ``warnings``
    without one.
    """

    state: TaskState
    why: str = ""
    code: str = ""
    fix: str = ""
    next_try_s: float = 0.0
    gtid_set: str = ""
    seq: int = 0
    topic: str = ""
    topic_end: int = 0
    epoch: int = 0
    worker: str = ""
    warnings: tuple[str, ...] = ()
    silent_s: float = 0.0
    captured: Captured | None = None
    relayed: Relayed | None = None
    published: Published | None = None
    applied: Applied | None = None
    loaded: Loaded | None = None
    snapshot: SnapshotStage | None = None
    compared: Compared | None = None

    def at_rest(self) -> "TaskReport":
        """The report without what is true only while the task runs."""
        return replace(
            self,
            silent_s=0.0,
            published=self.published and self.published.at_rest(),
            applied=self.applied and self.applied.at_rest(),
            loaded=self.loaded and self.loaded.at_rest(),
            compared=self.compared and self.compared.at_rest(),
        )


def report_to_plain(report: TaskReport) -> dict[str, object]:
    """Plain values, in the order in which people read them."""
    return {
        "format": STATUS_FORMAT,
        "state": report.state.value,
        "why": report.why[:WHY_CHARACTERS_MAX],
        "code": report.code,
        "fix": report.fix[:WHY_CHARACTERS_MAX],
        "next_try_s": round(report.next_try_s, 3),
        "gtid_set": report.gtid_set,
        "seq": report.seq,
        "topic": report.topic,
        "topic_end": report.topic_end,
        "epoch": report.epoch,
        "worker": report.worker,
        "warnings": [warning[:WHY_CHARACTERS_MAX] for warning in report.warnings],
        "silent_s": round(report.silent_s, 1),
        "captured": report.captured.to_plain() if report.captured else None,
        "relayed": report.relayed.to_plain() if report.relayed else None,
        "published": report.published.to_plain() if report.published else None,
        "applied": report.applied.to_plain() if report.applied else None,
        "loaded": report.loaded.to_plain() if report.loaded else None,
        "snapshot": report.snapshot.to_plain() if report.snapshot else None,
        "compared": report.compared.to_plain() if report.compared else None,
    }


def report_from_json(content: bytes, *, origin: str) -> TaskReport:
    """The report from the content of a status node; Fatal MR-4011."""
    try:
        plain: Any = load_json(content)
        if plain["format"] > STATUS_FORMAT:
            raise ValueError(f"format {plain['format']} is newer than {STATUS_FORMAT}")
        has_stages = plain["format"] == STATUS_FORMAT  # of an older one the progress counts
        return TaskReport(
            state=TaskState(plain["state"]),
            why=str(plain["why"]),
            code=str(plain["code"]),
            fix=str(plain["fix"]),
            next_try_s=float(plain["next_try_s"]),
            gtid_set=str(plain["gtid_set"]),
            seq=int(plain["seq"]),
            topic=str(plain.get("topic", "")),
            topic_end=int(plain.get("topic_end", 0)),
            epoch=int(plain["epoch"]),
            worker=str(plain["worker"]),
            warnings=tuple(map(str, plain.get("warnings", ()))),
            silent_s=float(plain.get("silent_s", 0.0)),
            captured=captured_of(plain["captured"]) if has_stages else None,
            relayed=relayed_of(plain["relayed"]) if has_stages else None,
            published=published_of(plain["published"]) if has_stages else None,
            applied=applied_of(plain["applied"]) if has_stages else None,
            loaded=loaded_of(plain.get("loaded")) if has_stages else None,
            snapshot=snapshot_of(plain.get("snapshot")) if has_stages else None,
            compared=compared_of(plain.get("compared")) if has_stages else None,
        )
    except (ValueError, KeyError, TypeError, OverflowError) as exc:
        raise Fatal("MR-4011", f"{origin} can't be read: {type(exc).__name__}") from exc
