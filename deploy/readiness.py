"""When the service's processes of a local stack are ready: asked from outside, with deadlines."""

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from millrace.errors import Fatal
from schemas.status import TaskReport, TaskState
from zk.session import Session
from zk.status import read_status
from zk.tree import Tree

POLL_S = 0.2
REGISTRY_S = 180.0
TASKS_S = 300.0


@dataclass(frozen=True, slots=True)
class ControlAddress:
    """Where the coordination of a stack is."""

    zookeeper: str
    cluster: str


def wait_for_registry(url: str, *, check: Callable[[], None]) -> None:
    """Until it lists its subjects. ``check`` raises when its process has ended."""
    deadline = time.monotonic() + REGISTRY_S
    while not _answers(f"{url}/subjects"):
        check()
        if time.monotonic() > deadline:
            raise Fatal(
                "MR-8004", f"the registry at {url} did not answer within {REGISTRY_S:.0f} s"
            )
        time.sleep(POLL_S)


def wait_for_tasks(
    control: ControlAddress, tasks: Sequence[str], *, check: Callable[[], None]
) -> None:
    """Until every task is RUNNING; Fatal MR-8004 with its own words when one is BLOCKED or time is up."""
    deadline = time.monotonic() + TASKS_S
    session = Session.open(control.zookeeper)
    try:
        tree = Tree(control.cluster)
        for task in tasks:
            while not _is_running(report := _report(session, tree, task), task):
                check()
                if time.monotonic() > deadline:
                    raise Fatal(
                        "MR-8004",
                        f"task {task} does not run within {TASKS_S:.0f} s: {_said(report)}",
                    )
                time.sleep(POLL_S)
    finally:
        session.close()


def _is_running(report: TaskReport | None, task: str) -> bool:
    if report is not None and report.state is TaskState.BLOCKED:
        raise Fatal("MR-8004", f"task {task} is blocked: {_said(report)}", fix=report.fix)
    return report is not None and report.state is TaskState.RUNNING


def _report(session: Session, tree: Tree, task: str) -> TaskReport | None:
    standing = read_status(session, tree, task)
    return None if standing is None else standing.report


def _said(report: TaskReport | None) -> str:
    return (
        "it has not reported"
        if report is None
        else f"{report.state.value} {report.code} {report.why}"
    )


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # our own registry, on loopback
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
