"""An owner freezes, is replaced, and wakes up: it writes nothing and does not fence its successor permanently."""

import pytest

from millrace.deploy.local.services import APPLY_TASK, CAPTURE_TASK
from millrace.schemas.gtid import Flavour
from millrace.schemas.status import TaskReport, TaskState
from millrace.zk.client.session import Session
from millrace.zk.tree.paths import Tree
from millrace.zk.view import read_cluster
from tests.fixtures.stack import FaultStack, on
from tests.kit.waiting import eventually


@on(Flavour.MARIADB)
@pytest.mark.guarantee("fenced")
def test_stale_capture_worker_writes_nothing_to_kafka(fault_stack: FaultStack) -> None:
    """It freezes inside a Kafka transaction before its commit; its successor takes over, and the commit is refused."""
    fault = "publisher.before_commit:stop@9"
    _freeze_and_replace(fault_stack, "worker", task=CAPTURE_TASK, fault=fault)


@on(Flavour.MYSQL)
@pytest.mark.guarantee("fenced")
def test_stale_apply_driver_writes_nothing_to_the_target(fault_stack: FaultStack) -> None:
    """It freezes inside a target transaction that locks the fence; its successor kills that one and continues."""
    fault = "apply.before_lane_commit:stop@3"
    _freeze_and_replace(fault_stack, "apply", task=APPLY_TASK, fault=fault)


def _freeze_and_replace(fault_stack: FaultStack, name: str, *, task: str, fault: str) -> None:
    """The frozen owner is replaced, thaws and becomes a worker again; the successor still runs in its epoch."""
    second = f"{name}-second"
    before = fault_stack.epoch(task)
    fault_stack.restart(name, fault=fault)
    # frozen earlier, it might not have reported that it runs
    fault_stack.wait_epoch_after(task, before)
    with fault_stack.load(f"stale_{name}"), fault_stack.control() as session:
        fault_stack.wait_stopped(name)
        fault_stack.services[name].pause()
        stale = fault_stack.report(session, task)
        fault_stack.expire(fault_stack.services[name])
        fault_stack.launch(name, called=second)
        eventually(
            lambda: _runs_in_a_later_epoch(fault_stack.report(session, task), stale),
            every_s=0.1,
            what=f"{second} takes {task} over",
        )
        successor = fault_stack.report(session, task)
        fault_stack.services[name].resume()
        eventually(
            lambda: {stale.worker, successor.worker} <= _workers(session),
            every_s=0.1,
            what="the stale owner is a worker again",
        )
        fault_stack.fill(f"after_{name}", rows=10)
    fault_stack.settle()
    now = fault_stack.wait_report(task, TaskState.RUNNING)
    assert (now.worker, now.epoch) == (successor.worker, successor.epoch)
    # new processes of the thawed owner would stop at the fault point again
    fault_stack.restart(name)
    fault_stack.services.pop(second).stop()
    fault_stack.settle()


def _runs_in_a_later_epoch(report: TaskReport, stale: TaskReport) -> bool:
    return report.state is TaskState.RUNNING and report.epoch > stale.epoch


def _workers(session: Session) -> set[str]:
    return set(read_cluster(session, Tree("default")).workers)
