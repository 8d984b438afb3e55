"""Where every task stands, from all that the tree says: pure, and always with a reason.

What an owner reports is only part of it: a task that nobody owns has nobody to report. ``seen`` puts together what
was asked for, who is alive, who should own, who does, and what was reported last; a report of a task of this name
that was deleted, or of another topic or set than it has now, is none, and one of other brokers tells no progress.

    it is …                                             state
    unreadable                                          blocked, or degraded while the last good document runs
    paused by an operator                               paused (saying so while it is still stopping)
    blocked under this revision                         blocked, as reported
    without a living worker of its kind                 pending
    without an assignment, or assigned to a dead one    pending
    owned by another than assigned                      assigned: moving
    assigned, not owned                                 assigned, or degraded as reported between two tries
    owned as assigned                                   as its worker reported
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from millrace.errors import Fatal
from schemas.documents import CaptureTask, TaskKind, address_of, set_of
from schemas.status import TaskReport, TaskState
from zk.election import leader_of
from zk.entries import Refused, TaskEntry, task_entries
from zk.lease import holder_of
from zk.membership import kinds_of
from zk.scheduler import runnable, workers_of
from zk.session import Node, Session
from zk.status import Standing, standing_of
from zk.tree import Tree

SILENT_S = 15.0  # three times what an owner's report may be old


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Everything the tree says, read once."""

    tasks: Mapping[str, TaskEntry | Refused]
    workers: Mapping[str, TaskKind]
    assigned: Mapping[str, str]
    owners: Mapping[str, str]
    standings: Mapping[str, Standing]
    leader: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView:
    """One task for people: ``report`` holds state, why and figures; ``age_s`` is how old the figures are."""

    name: str
    kind: str
    way: str  # "set shop → topic shop"
    report: TaskReport
    assigned: str
    age_s: float


def read_cluster(session: Session, tree: Tree) -> Cluster:
    """Read all of it; not one instant of time, but each node as it stood."""
    nodes = {
        folder: _folder(session, tree.folder(folder))
        for folder in ("tasks", "workers", "assignments", "owners", "status")
    }
    standings = {name: standing_of(node, name) for name, node in nodes["status"].items()}
    return Cluster(
        tasks=task_entries(nodes["tasks"]),
        workers=kinds_of(nodes["workers"]),
        assigned=workers_of(nodes["assignments"]),
        owners=_owners(nodes["owners"]),
        standings={name: standing for name, standing in standings.items() if standing},
        leader=leader_of(session, tree),
    )


def views(cluster: Cluster, *, now_ms: int | None = None) -> list[TaskView]:
    """Every task, sorted by name. ``now_ms`` is only used to tell ages."""
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    found = []
    for name, entry in sorted(cluster.tasks.items()):
        standing = cluster.standings.get(name)
        age_s = max(0.0, (now - standing.modified_ms) / 1000) if standing else 0.0
        report = seen(name, entry, cluster)
        if report.state is TaskState.RUNNING and age_s > SILENT_S:
            report = replace(report, why=f"no report for {age_s:.0f} s; {report.why}".rstrip("; "))
        found.append(
            TaskView(
                name=name,
                kind=entry.document.kind.value if isinstance(entry, TaskEntry) else "",
                way=_way(entry),
                report=report,
                assigned=cluster.assigned.get(name, ""),
                age_s=age_s,
            )
        )
    return found


def seen(name: str, entry: TaskEntry | Refused, cluster: Cluster) -> TaskReport:
    """One task's state and why; see the module."""
    owner = cluster.owners.get(name)
    standing = cluster.standings.get(name)
    if standing and isinstance(entry, TaskEntry):
        is_known = standing.is_of(entry.document, created=entry.created)
        standing = standing if is_known else None
    last = standing.report if standing else TaskReport(TaskState.PENDING)
    if standing and isinstance(entry, TaskEntry):
        last = standing.told_of(entry.document)
    if isinstance(entry, Refused):
        return _refused(entry, last, is_owned=owner is not None)
    if entry.desired.paused_by:
        why = f"paused by {entry.desired.paused_by}"
        why += f"; {owner} is still stopping it" if owner else ""
        return _put(last, TaskState.PAUSED, why)
    if standing and last.state is TaskState.BLOCKED and standing.revision == entry.revision:
        return last
    worker = cluster.assigned.get(name)
    if worker not in cluster.workers or worker is None:
        return _unplaced(name, entry, last, cluster, worker=worker, owner=owner)
    if owner is not None and owner != worker:
        return _put(last, TaskState.ASSIGNED, f"moving from {owner} to {worker}")
    # between two tries the lease is given up, and the report says when the next one is
    if last.worker == worker and (owner is not None or last.state is TaskState.DEGRADED):
        return last
    return _put(last, TaskState.ASSIGNED, f"{worker} is starting it")


def _refused(entry: Refused, last: TaskReport, *, is_owned: bool) -> TaskReport:
    error: Fatal = entry.error
    if is_owned:
        why = f"goes on with its last good document; the new one: {error.told}"
        return replace(_put(last, TaskState.DEGRADED, why), code=error.code, fix=error.fix)
    return replace(_put(last, TaskState.BLOCKED, error.told), code=error.code, fix=error.fix)


def _unplaced(
    name: str,
    entry: TaskEntry,
    last: TaskReport,
    cluster: Cluster,
    *,
    worker: str | None,
    owner: str | None,
) -> TaskReport:
    kind = entry.document.kind
    if name not in runnable(cluster.tasks):
        topic = address_of(entry.document).topic
        why = f"an older task captures to the topic {topic} already"
        return replace(_put(last, TaskState.BLOCKED, why), code="MR-4105")
    if kind not in cluster.workers.values():
        gone = f" ({worker} is gone)" if worker else ""
        none = "" if cluster.leader else "; no scheduler is running either"
        return _put(last, TaskState.PENDING, f"no {kind.value} worker is running{gone}{none}")
    if not cluster.leader:
        return _put(last, TaskState.PENDING, "no scheduler is running: start `millrace scheduler`")
    if worker:
        return _put(last, TaskState.PENDING, f"{worker} is gone; waits to be assigned anew")
    why = "waits to be assigned" + (f"; {owner} is still stopping it" if owner else "")
    return _put(last, TaskState.PENDING, why)


def _put(last: TaskReport, state: TaskState, why: str) -> TaskReport:
    """Progress and figures stay as they were reported last."""
    return replace(last, state=state, why=why, code="", fix="", next_try_s=0.0)


def _way(entry: TaskEntry | Refused) -> str:
    if isinstance(entry, Refused):
        return ""
    task = entry.document
    topic = address_of(task).topic
    if isinstance(task, CaptureTask):
        return f"set {set_of(task)} → topic {topic}"
    return f"topic {topic} → set {set_of(task)}"


def _owners(nodes: Mapping[str, Node]) -> dict[str, str]:
    return {task: holder_of(node, f"owners/{task}") for task, node in nodes.items()}


def _folder(session: Session, path: str) -> dict[str, Node]:
    found = {name: session.get(f"{path}/{name}") for name in session.children(path)}
    return {name: node for name, node in found.items() if node is not None}
