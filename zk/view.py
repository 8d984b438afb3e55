"""The state of every task, and the reason for it, computed from the nodes in ZooKeeper. Pure.

The owner's report alone is not enough: a task without an owner has no process that reports it. ``status_of`` combines
the task's document, the live workers, the assignment, the owner and the last report. It ignores a report of a deleted
task of the same name, or of another topic or set. From a report made at other brokers it drops the progress.

    the task …                                          state
    can't be read                                       blocked, or degraded while the last good document runs
    was paused by an operator                           paused; the reason says if it is still stopping
    is blocked under this revision                      blocked, as reported
    has no live worker of its kind                      pending
    is not assigned, or assigned to a dead worker       pending; the reason names a missing label or full workers
    is owned by another worker than the assigned one    assigned: moving
    is assigned and has no owner                        assigned, or degraded as reported between two attempts
    was resumed, and its owner has not reported since   assigned: its worker is starting it
    is owned by the assigned worker                     as its worker reported; stalled by ``schemas.stall``
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from millrace.errors import Fatal
from millrace.schemas.documents import (
    CaptureTask,
    PublishTask,
    Reader,
    RelayTask,
    TaskKind,
    address_of,
    names_of,
    set_of,
)
from millrace.schemas.stages import Backlog, Delivered
from millrace.schemas.stall import REPORT_AGE_S_MAX, with_stall
from millrace.schemas.status import TaskReport, TaskState
from millrace.wording import with_names
from millrace.zk.client.session import Node, Session, Watch
from millrace.zk.lease.election import leader_of
from millrace.zk.lease.lease import holder_of
from millrace.zk.lease.membership import kinds_of
from millrace.zk.placement.nodes import assignments_of, workers_of
from millrace.zk.placement.scheduler import runnable
from millrace.zk.tree.entries import (
    WORK_FOLDERS,
    TaskEntry,
    UnreadableEntry,
    WorkEntry,
    work_entries,
)
from millrace.zk.tree.paths import Tree
from millrace.zk.tree.reports import SavedReport, saved_report_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The state of the cluster in ZooKeeper, read once."""

    tasks: Mapping[str, WorkEntry | UnreadableEntry]
    workers: Mapping[str, TaskKind]
    assigned: Mapping[str, str]
    owners: Mapping[str, str]
    saved_reports: Mapping[str, SavedReport]
    leader: str
    unplaced: Mapping[str, str] = field(default_factory=dict)  # task → why no worker may take it


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView:
    """One task for an operator to read. ``age_s`` is the age of the last report.

    ``time_to_loss_s``: until the topic may remove what a reader of it has not read; None: unknown, or never.
    """

    name: str
    kind: str  # "capture", "apply", "publish", "relay"; "" of a task that can't be read
    route: str  # "set shop → topic shop"
    report: TaskReport
    assigned: str
    age_s: float
    time_to_loss_s: float | None = None

    @property
    def is_late(self) -> bool:
        """Whether a reader of a topic has not read all, or does not run."""
        stage = self.report.applied or self.report.delivered
        if stage is None:
            return False
        return self.report.state is not TaskState.RUNNING or bool(stage.backlog.rows)

    @property
    def is_fresh(self) -> bool:
        """Whether the owner runs the task, and has reported lately."""
        is_run = self.report.state in (TaskState.RUNNING, TaskState.STALLED)
        return is_run and self.age_s <= REPORT_AGE_S_MAX


_STARTING = "; an apply driver that starts appears here once Spark is ready, after about a minute"
_FOLDERS = (*WORK_FOLDERS, "workers", "assignments", "owners", "status")
_OF_A_TASK = ("tasks", "assignments", "owners", "status")


def read_cluster(session: Session, tree: Tree) -> Cluster:
    """Reads each node once. The nodes may be from slightly different moments."""
    nodes = {folder: session.folder(tree.folder(folder)) for folder in _FOLDERS}
    return _cluster_of(nodes, leader_of(session, tree))


def read_tasks(
    session: Session, tree: Tree, names: Sequence[str], *, watch: Watch | None = None
) -> Cluster:
    """The cluster with only these tasks and their workers: four nodes of each task, and its worker's.

    ``watch`` is called when one of a task's nodes has changed. If a task has no live worker, the reason depends on the
    others, so the whole cluster is read.
    """
    paths = [f"{tree.folder(folder)}/{name}" for folder in _OF_A_TASK for name in names]
    found = iter(session.get_each(paths, watches=[watch] * len(paths) if watch else None))
    nodes: dict[str, dict[str, Node]] = {folder: {} for folder in _FOLDERS}
    for folder in _OF_A_TASK:
        read = {name: next(found) for name in names}
        nodes[folder] = {name: node for name, node in read.items() if node is not None}
    placed = workers_of(nodes["assignments"])
    workers = sorted(set(placed.values()) - {""})
    live = zip(workers, session.get_each([tree.worker(name) for name in workers]), strict=True)
    nodes["workers"] = {name: node for name, node in live if node is not None}
    if all(placed.get(name) in nodes["workers"] for name in nodes["tasks"]):
        return _cluster_of(nodes, leader_of(session, tree))
    return read_cluster(session, tree)


def _cluster_of(nodes: Mapping[str, Mapping[str, Node]], leader: str) -> Cluster:
    assignments = assignments_of(nodes["assignments"])
    saved_reports = {name: saved_report_of(node, name) for name, node in nodes["status"].items()}
    return Cluster(
        tasks=work_entries(nodes),
        workers=kinds_of(nodes["workers"]),
        assigned={task: found.worker for task, found in assignments.items()},
        owners=_owners(nodes["owners"]),
        saved_reports={name: saved for name, saved in saved_reports.items() if saved},
        leader=leader,
        unplaced={task: found.why for task, found in assignments.items() if found.why},
    )


def views(cluster: Cluster, *, now_ms: int | None = None) -> list[TaskView]:
    """Every task, sorted by name. ``now_ms`` (default: now) serves to compute ages."""
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    found = []
    for name, entry in sorted(cluster.tasks.items()):
        saved = cluster.saved_reports.get(name)
        age_s = max(0.0, (now - saved.modified_ms) / 1000) if saved else 0.0
        report = with_stall(status_of(name, entry, cluster), age_s=age_s)
        if not isinstance(entry, UnreadableEntry):
            report = _with_document(report, entry)
            if isinstance(entry.document, Reader):
                report = _with_backlog(report, entry.document, cluster, now_ms=now, age_s=age_s)
        names = {"task": name} if isinstance(entry, UnreadableEntry) else names_of(entry.document)
        report = replace(report, fix=with_names(report.fix, names))
        found.append(
            TaskView(
                name=name,
                kind=_kind(entry),
                route=_route(entry),
                report=report,
                assigned=cluster.assigned.get(name, ""),
                age_s=age_s,
                time_to_loss_s=_time_to_loss_s(report, now_ms=now),
            )
        )
    return found


def _time_to_loss_s(report: TaskReport, *, now_ms: int) -> float | None:
    stage = report.applied or report.delivered
    if stage is None or not stage.loss_at_ms:
        return None
    return max(stage.loss_at_ms - now_ms, 0) / 1000


def views_of_set(cluster: Cluster, set_name: str) -> list[TaskView]:
    """The set's capture tasks and its relay, sorted by name."""

    def is_of_set(entry: WorkEntry | UnreadableEntry) -> bool:
        if isinstance(entry, UnreadableEntry) or isinstance(entry.document, Reader):
            return False
        return entry.document.set_name == set_name

    return [view for view in views(cluster) if is_of_set(cluster.tasks[view.name])]


def status_of(name: str, entry: WorkEntry | UnreadableEntry, cluster: Cluster) -> TaskReport:
    """One task's state and the reason for it, by the table in the module's docstring."""
    owner = cluster.owners.get(name)
    saved = cluster.saved_reports.get(name)
    if saved and not isinstance(entry, UnreadableEntry):
        is_same_work = saved.is_of(entry.document, created=entry.created)
        saved = saved if is_same_work else None
    last = saved.report if saved else TaskReport(TaskState.PENDING)
    if saved and not isinstance(entry, UnreadableEntry):
        last = saved.report_for(entry.document)
    if isinstance(entry, UnreadableEntry):
        return _unreadable(entry, last, is_owned=owner is not None)
    if entry.paused_by:
        why = f"paused by {entry.paused_by}"
        why += f"; {owner} is still stopping it" if owner else ""
        return _with_state(last, TaskState.PAUSED, why)
    if saved and last.state is TaskState.BLOCKED and saved.revision == entry.revision:
        return last
    worker = cluster.assigned.get(name)
    if worker not in cluster.workers or worker is None:
        return _unplaced(name, entry, last, cluster, worker=worker, owner=owner)
    if owner is not None and owner != worker:
        return _with_state(last, TaskState.ASSIGNED, f"moving from {owner} to {worker}")
    if last.state in (TaskState.PAUSED, TaskState.BLOCKED):  # an operator has resumed it since
        return _with_state(last, TaskState.ASSIGNED, f"{worker} is starting it")
    # between two attempts the worker holds no lease, and its report names the time of the next
    if last.worker == worker and (owner is not None or last.state is TaskState.DEGRADED):
        return last
    return _with_state(last, TaskState.ASSIGNED, f"{worker} is starting it")


def _with_document(report: TaskReport, entry: WorkEntry) -> TaskReport:
    """The report with what only the task's document knows: its topic, and a decision that no worker has taken yet."""
    if not isinstance(entry.document, RelayTask):
        report = replace(report, topic=report.topic or address_of(entry.document).topic)
    decision = entry.desired.decision if isinstance(entry, TaskEntry) else None
    if decision is None:
        return report
    return replace(report, warnings=(decision.waits, *report.warnings))


def _with_backlog(
    report: TaskReport, task: Reader, cluster: Cluster, *, now_ms: int, age_s: float
) -> TaskReport:
    """The report with the rows that wait, and since when, if no run has reported them lately.

    A task that does not run falls behind. Its capture task reports how far the topic is. The lag is at most that of the
    first row that waits: it counts from the last one that was applied or delivered.
    """
    stage = report.applied or report.delivered
    if stage is None or (stage.lag_s is not None and age_s <= REPORT_AGE_S_MAX):
        return report
    captured = _captured_seq(task, cluster)
    if captured is None:
        return report
    rows = max(captured - report.seq, 0)
    lag_s = max(now_ms - stage.commit_ms, 0) / 1000 if rows and stage.commit_ms else None
    stage = replace(stage, lag_s=lag_s if rows else 0.0, backlog=Backlog(rows=rows), eta_s=None)
    if isinstance(stage, Delivered):
        return replace(report, delivered=stage)
    return replace(report, applied=stage)


def _captured_seq(task: Reader, cluster: Cluster) -> int | None:
    """The ``seq`` that the topic's only capture task has reported last; None if there is none."""
    seqs = [
        saved.report_for(entry.document).seq
        for name, entry in cluster.tasks.items()
        if not isinstance(entry, UnreadableEntry)
        and isinstance(entry.document, CaptureTask)
        and entry.document.output.is_same_topic(task.source)
        and (saved := cluster.saved_reports.get(name)) is not None
        and saved.is_of(entry.document, created=entry.created)
    ]
    return seqs[0] if len(seqs) == 1 and seqs[0] else None


def _unreadable(entry: UnreadableEntry, last: TaskReport, *, is_owned: bool) -> TaskReport:
    error: Fatal = entry.error
    if is_owned:
        why = f"still runs its last good document; the new one: {error.full_message}"
        return replace(_with_state(last, TaskState.DEGRADED, why), code=error.code, fix=error.fix)
    return replace(
        _with_state(last, TaskState.BLOCKED, error.full_message), code=error.code, fix=error.fix
    )


def _unplaced(
    name: str,
    entry: WorkEntry,
    last: TaskReport,
    cluster: Cluster,
    *,
    worker: str | None,
    owner: str | None,
) -> TaskReport:
    document = entry.document
    kind = document.kind.worker
    if name not in runnable(cluster.tasks) and not isinstance(document, RelayTask):
        topic = address_of(document).topic
        why = f"an older task captures to the topic {topic} already"
        return replace(_with_state(last, TaskState.BLOCKED, why), code="MR-4105")
    if kind not in cluster.workers.values():
        gone = f" ({worker} is gone)" if worker else ""
        none = "" if cluster.leader else "; no scheduler is running either"
        starts = _STARTING if kind is TaskKind.APPLY else ""
        why = f"no {kind.value} worker is running{gone}{none}{starts}"
        return _with_state(last, TaskState.PENDING, why)
    if not cluster.leader:
        return _with_state(
            last, TaskState.PENDING, "no scheduler is running: start `millrace scheduler`"
        )
    if worker:
        return _with_state(last, TaskState.PENDING, f"{worker} is gone; waits to be assigned again")
    why = cluster.unplaced.get(name, "waits to be assigned")
    why += f"; {owner} is still stopping it" if owner else ""
    return _with_state(last, TaskState.PENDING, why)


def _with_state(last: TaskReport, state: TaskState, why: str) -> TaskReport:
    """The last report with another state and reason: the progress stays."""
    return replace(last.at_rest(), state=state, why=why, code="", fix="", next_try_s=0.0)


def _kind(entry: WorkEntry | UnreadableEntry) -> str:
    if isinstance(entry, UnreadableEntry):
        return ""
    return "relay" if isinstance(entry.document, RelayTask) else entry.document.kind.value


def _route(entry: WorkEntry | UnreadableEntry) -> str:
    if isinstance(entry, UnreadableEntry):
        return ""
    task = entry.document
    if isinstance(task, RelayTask):
        return f"set {task.set_name} → relay log"
    topic = address_of(task).topic
    if isinstance(task, CaptureTask):
        return f"set {set_of(task)} → topic {topic}"
    if isinstance(task, PublishTask):
        return f"topic {topic} → topics {task.topics.pattern_of(task.name)}"
    return f"topic {topic} → set {set_of(task)}"


def _owners(nodes: Mapping[str, Node]) -> dict[str, str]:
    return {task: holder_of(node, f"owners/{task}") for task, node in nodes.items()}
