"""The JSON of ``millrace status``, a stable format. ``docs/status.md`` lists every key; a test compares both."""

from schemas.documents import TaskKind
from schemas.stages.applied import Applied
from schemas.stages.published import Published
from schemas.status import TaskReport, TaskState, report_to_plain
from zk.view import Cluster, TaskView

_STAGES = ("captured", "relayed", "published", "applied", "loaded", "snapshot", "compared")
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
    return {**head, **plain, "age_s": round(view.age_s, 1), **_stages(view.kind, report)}


def _stages(kind: str, report: TaskReport) -> dict[str, object]:
    position = {"seq": report.seq, "gtid_set": report.gtid_set}
    if kind == TaskKind.APPLY.value:
        # the mark moves when all lanes have applied their rows
        consistent = {"consistent_gtid": report.gtid_set}
        stage = (report.applied or Applied()).to_plain()
        loaded = report.loaded.to_plain() if report.loaded is not None else None
        return {
            **consistent,
            "applied": {**position, **consistent, **stage},
            "loaded": loaded,
            "compared": report.compared.to_plain() if report.compared is not None else None,
        }
    captured = report.captured.to_plain() if report.captured is not None else {}
    found: dict[str, object] = {
        "source": captured.get("source"),
        "switches": captured.get("switches", []),
        "relay": report.relayed.to_plain() if report.relayed is not None else None,
    }
    if kind == TaskKind.CAPTURE.value:
        found["published"] = {**position, **(report.published or Published()).to_plain()}
        found["snapshot"] = report.snapshot.to_plain() if report.snapshot is not None else None
    return found
