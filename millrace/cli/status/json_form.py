"""The JSON of ``millrace status``, a stable format. ``docs/status.md`` lists every key; a test compares both."""

import time

from millrace.schemas.documents import TaskKind
from millrace.schemas.plain import to_plain
from millrace.schemas.stages import Applied, Delivered, Published, SubscriberStage
from millrace.schemas.status import TaskReport, TaskState, report_to_plain
from millrace.zk.view import Cluster, TaskView

_STAGES = (
    "captured",
    "relayed",
    "published",
    "applied",
    "loaded",
    "snapshot",
    "compared",
    "delivered",
)
_LIVE = (TaskState.RUNNING, TaskState.STALLED, TaskState.DEGRADED)


def as_plain(name: str, cluster: Cluster, found: list[TaskView]) -> dict[str, object]:
    """Cluster, scheduler, workers, and all tasks with all fields."""
    workers = {worker: kind.value for worker, kind in cluster.workers.items()}
    return {
        "cluster": name,
        "scheduler": cluster.leader,
        "workers": workers,
        "tasks": [task_as_plain(view) for view in found],
    }


def task_as_plain(view: TaskView) -> dict[str, object]:
    """One task. Lag and pace of a task that does not run are null."""
    report = view.report if view.report.state in _LIVE else view.report.at_rest()
    plain = report_to_plain(report)
    for key in ("format", *_STAGES):
        plain.pop(key)
    head = {"task": view.name, "kind": view.kind, "route": view.route, "assigned": view.assigned}
    plain.pop("subscribers")
    return {**head, **plain, "age_s": round(view.age_s, 1), **_stages(view, report)}


def subscriber_as_plain(stage: SubscriberStage, now_ms: int) -> dict[str, object]:
    """How far a subscriber is in the topics of a task."""
    left_s, age_s = stage.time_to_loss_s(now_ms), stage.age_s(now_ms)
    return {
        **to_plain(stage),
        "oldest_age_s": None if age_s is None else round(age_s, 1),
        "time_to_loss_s": None if left_s is None else round(left_s, 1),
    }


def _stages(view: TaskView, report: TaskReport) -> dict[str, object]:
    kind, left_s = view.kind, view.time_to_loss_s
    position = {"seq": report.seq, "gtid_set": report.gtid_set}
    loss = {"time_to_loss_s": None if left_s is None else round(left_s, 1)}
    if kind == TaskKind.APPLY.value:
        # the mark moves when all lanes have applied their rows
        consistent = {"consistent_gtid": report.gtid_set}
        return {
            **consistent,
            "applied": {**position, **consistent, **to_plain(report.applied or Applied()), **loss},
            "loaded": report.loaded and to_plain(report.loaded),
            "compared": report.compared and to_plain(report.compared),
        }
    now_ms = time.time_ns() // 1_000_000
    subscribers = [subscriber_as_plain(one, now_ms) for one in report.subscribers]
    if kind == TaskKind.PUBLISH.value:
        delivered = to_plain(report.delivered or Delivered())
        return {"delivered": {**position, **delivered, **loss}, "subscribers": subscribers}
    captured = to_plain(report.captured) if report.captured is not None else {}
    stages: dict[str, object] = {
        "source": captured.get("source"),
        "switches": captured.get("switches", []),
        "relay": report.relayed and to_plain(report.relayed),
    }
    if kind == TaskKind.CAPTURE.value:
        stages["published"] = {**position, **to_plain(report.published or Published())}
        stages["subscribers"] = subscribers
        stages["snapshot"] = report.snapshot and to_plain(report.snapshot)
    return stages
