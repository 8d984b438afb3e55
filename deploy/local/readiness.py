"""Waits until the processes of a local stack are ready: asks from outside, with deadlines."""

import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import closing

from millrace.deploy.local.services import CLUSTER, Endpoints, service_environment
from millrace.errors import Fatal
from millrace.schemas.documents import Registry
from millrace.schemas.status import TaskReport, TaskState
from millrace.zk.client.session import Session
from millrace.zk.ensemble import Ensemble
from millrace.zk.tree.paths import Tree
from millrace.zk.tree.reports import read_status

POLL_S = 0.2
REGISTRY_S = 180.0
TASKS_S = 300.0


def ensemble_of(endpoints: Endpoints) -> Ensemble:
    """The stack's ZooKeeper as its processes reach it."""
    return Ensemble.from_environment(service_environment(endpoints))


def task_report(session: Session, task: str) -> TaskReport:
    """The latest report of ``task`` in the stack's cluster; a pending one while it has not reported."""
    status = read_status(session, Tree(CLUSTER), task)
    return TaskReport(TaskState.PENDING, why="no report yet") if status is None else status.report


def wait_for_registry(registry: Registry, *, check: Callable[[], None]) -> None:
    """Wait until the registry lists its subjects. ``check`` raises when its process has ended."""
    deadline = time.monotonic() + REGISTRY_S
    while not _answers(registry):
        check()
        if time.monotonic() > deadline:
            raise Fatal(
                "MR-8004", f"the registry at {registry} did not answer within {REGISTRY_S:.0f} s"
            )
        time.sleep(POLL_S)


def wait_for_tasks(ensemble: Ensemble, tasks: Sequence[str], *, check: Callable[[], None]) -> None:
    """Wait until every task is RUNNING. Fatal MR-8004 with the task's reason if one is BLOCKED or time is up."""
    deadline = time.monotonic() + TASKS_S
    with closing(ensemble.open()) as session:
        for task in tasks:
            while not _is_running(report := task_report(session, task), task):
                check()
                if time.monotonic() > deadline:
                    raise Fatal(
                        "MR-8004",
                        f"task {task} does not run after {TASKS_S:.0f} s: {_reason(report)}",
                    )
                time.sleep(POLL_S)


def _is_running(report: TaskReport, task: str) -> bool:
    if report.state is TaskState.BLOCKED:
        raise Fatal("MR-8004", f"task {task} is blocked: {_reason(report)}", fix=report.fix)
    return report.state is TaskState.RUNNING


def _reason(report: TaskReport) -> str:
    return " ".join(part for part in (report.state.value, report.code, report.why) if part)


def _answers(registry: Registry) -> bool:
    request = urllib.request.Request(f"{registry}/subjects", headers=registry.authorization())
    trust = ssl.create_default_context(cafile=registry.ca_path) if registry.ca_path else None
    try:
        # our own registry, on loopback
        with urllib.request.urlopen(request, timeout=2, context=trust) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
