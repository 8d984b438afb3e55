"""The troubles of a cluster in the order in which to fix them, from its tasks and its requirements. Pure.

    rank   trouble
    0      changes may soon be lost: the source purges binlog that is not received yet, or a topic removes records that
           a task has not read
    1      nothing can work: ZooKeeper, no scheduler, no worker of a kind that a task needs
    2      a task that waits for an operator
    3      a task that does not move
    4      a requirement that fails: a task would not start again
    5      a task that retries by itself
    6      a warning of a task or of a requirement

A requirement with the code of a task's own error is left out: the task reports it better. A warning of a task is left
out if a requirement has its code: all of the cluster is checked, and the requirement has what is wanted and the fix.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from millrace.checks.requirement import Area, Level, Requirement
from millrace.cli.texts import duration
from millrace.schemas.documents import TaskKind
from millrace.schemas.status import TaskState
from millrace.zk.view import Cluster, TaskView

LOSS_S = 24 * 3600  # time for an operator to act
_CODED = re.compile(r"(?:(MR-\d{4})[: ]+)?(.*)", re.DOTALL)
_RANKS = {TaskState.BLOCKED: 2, TaskState.STALLED: 3, TaskState.DEGRADED: 5}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One thing to fix. ``code`` and ``fix`` may be empty."""

    rank: int
    subject: str
    what: str
    code: str = ""
    fix: str = ""

    @property
    def is_warning(self) -> bool:
        """Whether everything works meanwhile."""
        return self.rank == 6


def troubles_of(
    cluster: Cluster | None, views: Sequence[TaskView], found: Iterable[Requirement]
) -> list[Trouble]:
    """All troubles, the worst first. ``cluster`` None: ZooKeeper could not be read."""
    found = list(found)
    warned = {one.code for one in found if one.level is Level.WARN}
    troubles = [
        *_of_cluster(cluster, views),
        *(
            each
            for view in views
            for each in _of_task(view)
            if not (each.is_warning and each.code in warned)
        ),
    ]
    reported = {trouble.code for trouble in troubles if trouble.code}
    troubles += [
        _of_requirement(one)
        for one in found
        if one.level is not Level.OK and (one.level is Level.WARN or one.code not in reported)
    ]
    return sorted(troubles, key=lambda trouble: trouble.rank)


def open_doors(weaknesses: Iterable[str]) -> list[Trouble]:
    """Warnings about a ZooKeeper that strangers in the network can use. ``weaknesses``: of this process's access."""
    fix = (
        "Set MILLRACE_ZOOKEEPER_USER, _PASSWORD and _TLS for every process (docs/zookeeper.md), then"
        " `millrace cluster secure`."
    )
    return [Trouble(rank=6, subject="zookeeper", what=weakness, fix=fix) for weakness in weaknesses]


def _of_cluster(cluster: Cluster | None, views: Sequence[TaskView]) -> Iterator[Trouble]:
    if cluster is None or not views:
        return
    if not cluster.leader:
        yield Trouble(
            rank=1,
            subject="cluster",
            what="no scheduler runs, so no task is assigned",
            fix="Start `millrace scheduler`.",
        )
    shown = {view.kind for view in views if view.report.state is not TaskState.PAUSED}
    needed = {kind.worker for kind in TaskKind if kind.value in shown}
    live = set(cluster.workers.values())
    for kind in TaskKind:
        if kind in needed and kind not in live:
            start = "millrace worker" if kind is TaskKind.CAPTURE else "millrace apply"
            yield Trouble(
                rank=1,
                subject="cluster",
                what=f"no {kind.value} worker runs, and tasks need one",
                fix=f"Start `{start}`.",
            )


def _of_task(view: TaskView) -> Iterator[Trouble]:
    report, subject = view.report, f"task {view.name}"
    relayed = report.relayed
    if relayed is not None and relayed.time_to_loss_s is not None:
        is_near = relayed.time_to_loss_s < LOSS_S and relayed.caught_up is False
        if is_near:
            yield Trouble(
                rank=0,
                subject=subject,
                what=f"in {duration(relayed.time_to_loss_s)} is lost: {relayed.loss}",
                fix="Keep binlogs for longer on the source, and find out why the relay is late:"
                " `millrace relay status SET`.",
            )
    left_s = view.time_to_loss_s
    if left_s is not None and left_s < LOSS_S and view.is_late:
        yield Trouble(
            rank=0,
            subject=subject,
            what=f"in {duration(left_s)} the topic {report.topic} may remove what the task has not read",
            fix="Raise retention.ms (and retention.bytes) of the topic, and find out why the task is late:"
            f" `millrace status {view.name}`.",
        )
    if (rank := _RANKS.get(report.state)) is not None:
        yield Trouble(rank=rank, subject=subject, what=report.why, code=report.code, fix=report.fix)
    elif report.code:  # a warning of a running task
        yield Trouble(rank=6, subject=subject, what=report.why, code=report.code, fix=report.fix)
    for warning in report.warnings:
        match = _CODED.match(warning)
        assert match is not None
        code, what = match.groups("")
        yield Trouble(rank=6, subject=subject, what=what, code=code)


def _of_requirement(one: Requirement) -> Trouble:
    is_base = one.subject.area is Area.ZOOKEEPER and one.code == "MR-4001"
    rank = 6 if one.level is Level.WARN else 1 if is_base else 4
    wanted = f", wanted {one.wanted}" if one.wanted else ""
    return Trouble(
        rank=rank,
        subject=f"{one.subject.area} {one.subject.name}",
        what=f"{one.what}: {one.found}{wanted}",
        code=one.code,
        fix=one.fix,
    )
