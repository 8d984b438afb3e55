"""Parts of Spark killed under load: a Python worker around a lane's commit, an executor's JVM, the driver's JVM.

The driver and everything that belongs to it is killed at each of apply's points in test_kill_campaign.
"""

import os
import signal
from pathlib import Path

import pyspark
import pytest

from deploy.servers.process import session_members
from deploy.services import APPLY_TASK
from millrace.cli.apply import EXIT_NO_JVM
from schemas.gtid import Flavour
from schemas.status import TaskState
from tests.campaign import IN_A_LANE
from tests.fix_stack import FaultStack, on
from tests.waiting import eventually

EXECUTOR = "CoarseGrainedExecutorBackend"


@pytest.mark.chaos  # one Spark query under the same kills is in test_apply_kills
@on(Flavour.MYSQL)
def test_a_killed_python_worker_costs_a_restart_of_the_query_and_no_row(
    fault_stack: FaultStack,
) -> None:
    """Before and after the commit of a lane: the task says why it starts again, and the target ends equal."""
    with fault_stack.load("python_worker"):
        for point in IN_A_LANE:
            fault_stack.end("apply")
            armed = f"spark.executorEnv.MILLRACE_FAULT={point}:kill@3"  # the driver passes it, too
            fault_stack.launch("apply", options=("--conf", armed))
            told = fault_stack.wait_report(APPLY_TASK, TaskState.DEGRADED, "MR-5050")
            assert told.fix
        fault_stack.restart("apply")
    fault_stack.settle()


@on(Flavour.MYSQL)
def test_a_killed_jvm_ends_the_driver_whose_successor_goes_on(fault_stack: FaultStack) -> None:
    """A process has one JVM in its life: the driver says so, gives its lease up and ends, to be started again."""
    with fault_stack.load("jvm"):
        before = fault_stack.epoch(APPLY_TASK)
        process = fault_stack.restart("apply")
        fault_stack.wait_epoch_after(APPLY_TASK, before)
        (jvm,) = java(fault_stack, "SparkSubmit")
        log = fault_stack.log_from_here("apply")
        os.kill(jvm, signal.SIGKILL)
        eventually(lambda: not process.is_alive(), timeout_s=240, what="the driver ends")
        assert process.exit_status == EXIT_NO_JVM
        assert any("MR-5053" in line for line in log())
        fault_stack.restart("apply")
    fault_stack.settle()


@pytest.mark.chaos
@on(Flavour.MYSQL)
def test_a_killed_executor_costs_time_and_no_row(
    fault_stack: FaultStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors in JVMs of their own, as a cluster has them: killed one after the other, another takes over."""
    monkeypatch.setenv("SPARK_HOME", str(Path(pyspark.__file__).parent))
    with fault_stack.load("executor"):
        fault_stack.end("apply")
        fault_stack.launch("apply", options=("--master", "local-cluster[1,2,1024]"))
        killed: list[int] = []
        for _ in range(3):
            fault_stack.wait_applied()  # of a load that goes on: there is always work under way
            (executor,) = java(fault_stack, EXECUTOR)
            os.kill(executor, signal.SIGKILL)
            killed.append(executor)
            eventually(
                lambda: set(java(fault_stack, EXECUTOR)) - set(killed),
                timeout_s=240,
                what="another executor",
            )
        fault_stack.wait_applied()
        fault_stack.restart("apply")
    fault_stack.settle()


@pytest.mark.chaos
@pytest.mark.parametrize("point", IN_A_LANE)
@on(Flavour.MYSQL)
def test_an_executor_killed_around_a_lanes_commit_costs_time_and_no_row(
    fault_stack: FaultStack, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """Its Python worker stands before or behind the commit and wakes up orphaned: it ends, another does the rest."""
    monkeypatch.setenv("SPARK_HOME", str(Path(pyspark.__file__).parent))
    armed = f"spark.executorEnv.MILLRACE_FAULT={point}:stop@1"  # the driver passes it, too
    with fault_stack.load("frozen"):
        fault_stack.end("apply")
        options = ("--master", "local-cluster[1,2,1024]", "--conf", armed)
        fault_stack.launch("apply", options=options)
        for _ in range(2):  # the next executor's workers stop there, too
            fault_stack.wait_stopped("apply")
            _kill_executor(fault_stack)
        told = fault_stack.wait_report(APPLY_TASK, TaskState.DEGRADED, "MR-5050")
        assert told.fix
        fault_stack.restart("apply")
    fault_stack.settle()


def _kill_executor(stack: FaultStack) -> None:
    """While its Python workers are stopped: another takes over, and when they go on they end."""
    (executor,) = java(stack, EXECUTOR)
    frozen = stack.stopped("apply")
    os.kill(executor, signal.SIGKILL)
    eventually(
        lambda: set(java(stack, EXECUTOR)) - {executor}, timeout_s=240, what="another executor"
    )
    for pid in set(frozen) & set(stack.stopped("apply")):
        os.kill(pid, signal.SIGCONT)
    eventually(
        lambda: not set(frozen) & set(session_members(stack.services["apply"].identity)),
        timeout_s=240,
        what="the frozen Python workers are gone",
    )


def java(stack: FaultStack, word: str) -> list[int]:
    """The JVMs of the apply driver whose command line has this word."""
    found = []
    for pid in session_members(stack.services["apply"].identity):
        try:
            said = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue  # it has ended
        command = said.decode(errors="replace").split("\0")
        if command[0].endswith("java") and any(word in part for part in command):
            found.append(pid)
    return found
