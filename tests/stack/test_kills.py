"""One process of each kind killed with SIGKILL inside a commit, on a whole stack under load.

Worker, scheduler, broker, ZooKeeper, replica, registry; then Python worker, target, apply driver. At the end
`compare` finds all rows equal and `topic verify` finds the topic complete. The stack has MySQL: other tests have stacks
with MariaDB, and ``--chaos`` has these kills on it. ``tests/chaos`` has every fault point, the kill
of each server alone, pairs of processes and long outages. ``tests/fault`` has each kill on a single server.
"""

import os
import re
import signal
from contextlib import suppress

import pytest

from millrace.deploy.local.services import APPLY_TASK, CAPTURE_TASK
from millrace.schemas.gtid import Flavour
from millrace.schemas.status import TaskState
from tests.fixtures.stack import FaultStack, on
from tests.kit.faults.campaign import IN_A_LANE, kill_at, lead_to
from tests.kit.waiting import eventually

MID_COMMIT = "publisher.before_commit"
# armed since the start of the stack: another start of Spark costs as much as all kills of capture
ARMED = ",".join(f"{point}:stop@2" for point in IN_A_LANE)
LOST_WORKER = re.compile(r"task degraded .*code=MR-5050 .*fix=\S")
SERVERS = ("zookeeper", "replica 1")
PAST_ROWS = 2000  # a Python worker has committed more than twice by then

pytestmark = pytest.mark.timeout(900)


@on(Flavour.MYSQL)
@pytest.mark.guarantee("complete", "resumed", "applied", "outages")
def test_stack_loses_and_repeats_nothing_whatever_is_killed(fault_stack: FaultStack) -> None:
    """Under one load: first the way from the source to the topic, then the way to the target."""
    with fault_stack.load("kills"):
        _kill_capture(fault_stack)
        fault_stack.wait_published()
        _kill_apply(fault_stack)
        fault_stack.wait_applied()
    fault_stack.settle()


def _kill_capture(stack: FaultStack) -> None:
    """Worker and scheduler die at a fault point, servers and the registry while the worker is inside a commit."""
    kill_at(stack, MID_COMMIT)
    kill_at(stack, "zk.placement.scheduler.between_commits")
    stack.launch("scheduler")
    _stop_mid_commit(stack)
    stack.stack.kafka.kill()
    stack.services["worker"].resume()
    assert stack.wait_report(CAPTURE_TASK, TaskState.DEGRADED, "MR-3001").fix
    stack.stack.kafka.start()
    stack.wait_published()
    _stop_mid_commit(stack)
    stack.kill_together(*SERVERS, "registry")
    for name in SERVERS:
        stack.servers[name].start()
    stack.launch("registry")
    stack.services["worker"].resume()


def _kill_apply(stack: FaultStack) -> None:
    """Python worker and target die while a lane is about to commit, the driver at one of a lane's points."""
    if not stack.armed:
        stack.end("apply")
        stack.launch("apply", options=("--conf", f"spark.executorEnv.MILLRACE_FAULT={ARMED}"))
    stack.wait_stopped("apply")
    log = stack.log_from_here("apply")
    _signal_stopped(stack, signal.SIGKILL)
    # a report may be replaced before it is read
    eventually(lambda: any(LOST_WORKER.search(line) for line in log()), what="MR-5050")
    stack.wait_stopped("apply")  # another Python worker, before its second commit
    stack.stack.target.kill()
    _signal_stopped(stack, signal.SIGCONT)
    assert stack.wait_report(APPLY_TASK, TaskState.DEGRADED, "MR-5001").fix
    stack.stack.target.start()
    _wait_stopped_or_past(stack)
    stack.services["apply"].kill()
    stack.restart("apply")


def _wait_stopped_or_past(stack: FaultStack) -> None:
    """The same Python worker stops after a commit, or a third one does, unless they have passed both points before."""
    with stack.control() as session:
        seq = stack.report(session, APPLY_TASK).seq

        def is_stopped_or_past() -> bool:
            if stack.stopped("apply"):
                return True
            report = stack.report(session, APPLY_TASK)
            return report.state is TaskState.RUNNING and report.seq > seq + PAST_ROWS

        eventually(is_stopped_or_past, what="a stop, or more commits than the points count")


def _stop_mid_commit(stack: FaultStack) -> None:
    lead_to(stack, MID_COMMIT, "stop")
    stack.wait_stopped("worker")


def _signal_stopped(stack: FaultStack, number: signal.Signals) -> None:
    """Send the signal to the Python workers that have stopped themselves; again if one stops at another point."""
    stopped = set(stack.stopped("apply"))

    def are_running_or_gone() -> bool:
        again = stopped & set(stack.stopped("apply"))
        for pid in again:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return not again

    eventually(are_running_or_gone, what="they run again or are gone")
