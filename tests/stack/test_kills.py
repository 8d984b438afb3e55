"""One process of each kind killed with SIGKILL inside a commit, on a whole stack under load.

Worker, scheduler, broker, ZooKeeper, replica, registry; Python worker, target, apply driver. After each batch
`compare` finds all rows equal and `topic verify` finds the topic complete. Both tests share the stack with MySQL: other
tests have stacks with MariaDB, and ``--chaos`` has these kills on it. ``tests/chaos`` has every fault point, the kill
of each server alone, pairs of processes and long outages. ``tests/fault`` has each kill on a single server.
"""

import os
import re
import signal

import pytest

from deploy.local.services import APPLY_TASK, CAPTURE_TASK
from schemas.gtid import Flavour
from schemas.status import TaskState
from tests.fixtures.stack import FaultStack, on
from tests.kit.faults.campaign import IN_A_LANE, kill_at, lead_to
from tests.kit.waiting import eventually

MID_COMMIT = "publisher.before_commit"
BEFORE_LANE_COMMIT, AFTER_LANE_COMMIT = IN_A_LANE
LOST_WORKER = re.compile(r"task degraded .*code=MR-5050 .*fix=\S")
SERVERS = ("zookeeper", "replica 1")

pytestmark = pytest.mark.timeout(900)


@on(Flavour.MYSQL)
@pytest.mark.guarantee("complete", "resumed", "outages")
def test_capture_loses_and_repeats_nothing_whatever_is_killed(fault_stack: FaultStack) -> None:
    """Worker and scheduler die at a fault point, servers and the registry while the worker is inside a commit."""
    with fault_stack.load("capture"):
        kill_at(fault_stack, MID_COMMIT)
        kill_at(fault_stack, "zk.placement.scheduler.between_commits")
        fault_stack.launch("scheduler")
        _stop_mid_commit(fault_stack)
        fault_stack.stack.kafka.kill()
        fault_stack.services["worker"].resume()
        assert fault_stack.wait_report(CAPTURE_TASK, TaskState.DEGRADED, "MR-3001").fix
        fault_stack.stack.kafka.start()
        fault_stack.wait_published()
        _stop_mid_commit(fault_stack)
        fault_stack.kill_together(*SERVERS, "registry")
        for name in SERVERS:
            fault_stack.servers[name].start()
        fault_stack.launch("registry")
        fault_stack.services["worker"].resume()
        fault_stack.wait_published()
    fault_stack.settle()


@on(Flavour.MYSQL)
@pytest.mark.guarantee("applied", "outages")
def test_apply_loses_and_repeats_nothing_whatever_is_killed(fault_stack: FaultStack) -> None:
    """Python worker and target die while a lane is about to commit, the driver at one of a lane's points."""
    armed = f"{BEFORE_LANE_COMMIT}:stop@2,{AFTER_LANE_COMMIT}:stop@2"
    with fault_stack.load("apply"):
        fault_stack.end("apply")
        fault_stack.launch("apply", options=("--conf", f"spark.executorEnv.MILLRACE_FAULT={armed}"))
        fault_stack.wait_stopped("apply")
        log = fault_stack.log_from_here("apply")
        _signal_stopped(fault_stack, signal.SIGKILL)
        # a report may be replaced before it is read
        eventually(lambda: any(LOST_WORKER.search(line) for line in log()), what="MR-5050")
        fault_stack.wait_stopped("apply")  # another Python worker, before its second commit
        fault_stack.stack.target.kill()
        _signal_stopped(fault_stack, signal.SIGCONT)
        assert fault_stack.wait_report(APPLY_TASK, TaskState.DEGRADED, "MR-5001").fix
        fault_stack.stack.target.start()
        fault_stack.wait_stopped("apply")  # the same one after a commit, or a third
        fault_stack.services["apply"].kill()
        fault_stack.restart("apply")
        fault_stack.wait_applied()
    fault_stack.settle()


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
