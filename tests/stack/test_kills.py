"""One process of each kind killed with SIGKILL inside a commit, on a whole stack of each flavor under load.

Worker, scheduler, broker, ZooKeeper, replica, registry; Python worker, target, apply driver. After each batch
`compare` finds all rows equal and `topic verify` finds the topic complete. Capture's processes are killed on MariaDB
and apply's on MySQL; ``--chaos`` kills all on both. ``tests/chaos`` has every fault point, pairs of processes and long
outages. ``tests/fault`` has each kill on a single server.
"""

import os
import signal

import pytest

from deploy.local.services import APPLY_TASK, CAPTURE_TASK
from schemas.gtid import Flavour
from schemas.status import TaskState
from tests.fixtures.stack import FaultStack, on
from tests.kit.faults.campaign import IN_A_LANE, kill_at, lead_to
from tests.kit.waiting import eventually

MID_COMMIT = "publisher.before_commit"
BEFORE_LANE_COMMIT, _ = IN_A_LANE
# with the code that the task reports
SERVERS = {"kafka": "MR-3001", "zookeeper": "", "replica 1": ""}

pytestmark = pytest.mark.timeout(900)


@on(Flavour.MARIADB)
@pytest.mark.guarantee("complete", "resumed", "outages")
def test_capture_loses_and_repeats_nothing_whatever_is_killed(fault_stack: FaultStack) -> None:
    """Worker and scheduler die at a fault point, servers and the registry while the worker is inside a commit."""
    with fault_stack.load("capture"):
        kill_at(fault_stack, MID_COMMIT)
        fault_stack.launch("worker")
        kill_at(fault_stack, "zk.placement.scheduler.between_commits")
        fault_stack.launch("scheduler")
        for name, code in SERVERS.items():
            _stop_mid_commit(fault_stack)
            server = fault_stack.servers[name]
            server.kill()
            if code:
                fault_stack.services["worker"].resume()
                assert fault_stack.wait_report(CAPTURE_TASK, TaskState.DEGRADED, code).fix
            server.start()
            fault_stack.services["worker"].resume()
            fault_stack.wait_published()
        _stop_mid_commit(fault_stack)
        fault_stack.services["registry"].kill()
        fault_stack.services["worker"].resume()
        fault_stack.launch("registry")
        fault_stack.wait_published()
    fault_stack.settle()


@on(Flavour.MYSQL)
@pytest.mark.guarantee("applied", "outages")
def test_apply_loses_and_repeats_nothing_whatever_is_killed(fault_stack: FaultStack) -> None:
    """Target, Python worker and driver die while a lane is about to commit."""
    with fault_stack.load("apply"):
        _stop_in_turn(fault_stack)
        fault_stack.stack.target.kill()
        _signal_stopped(fault_stack, signal.SIGCONT)
        assert fault_stack.wait_report(APPLY_TASK, TaskState.DEGRADED, "MR-5001").fix
        fault_stack.stack.target.start()
        _stop_in_turn(fault_stack)
        _signal_stopped(fault_stack, signal.SIGKILL)
        assert fault_stack.wait_report(APPLY_TASK, TaskState.DEGRADED, "MR-5050").fix
        fault_stack.wait_stopped("apply")  # another Python worker
        fault_stack.services["apply"].kill()
        fault_stack.restart("apply")
        fault_stack.wait_applied()
    fault_stack.settle()


def _stop_in_turn(stack: FaultStack) -> None:
    """Restart the driver; its Python worker stops with a part about to commit."""
    armed = ("--conf", f"spark.executorEnv.MILLRACE_FAULT={BEFORE_LANE_COMMIT}:stop@2")
    stack.end("apply")
    stack.launch("apply", options=armed)
    stack.wait_stopped("apply")


def _stop_mid_commit(stack: FaultStack) -> None:
    lead_to(stack, MID_COMMIT, "stop")
    stack.wait_stopped("worker")


def _signal_stopped(stack: FaultStack, number: signal.Signals) -> None:
    """Send the signal to the Python workers that have stopped themselves."""
    stopped = stack.stopped("apply")
    for pid in stopped:
        os.kill(pid, number)
    eventually(
        lambda: not set(stopped) & set(stack.stopped("apply")), what="they run again or are gone"
    )
