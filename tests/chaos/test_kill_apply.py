"""Parts of Spark killed under load: a Python worker around a lane's commit, an executor's JVM, the driver's JVM.

A Python worker that has stopped itself before a lane's commit shows that a lane is in progress when a JVM is killed.

test_kill_campaign kills the driver and all its processes at each of apply's fault points.
"""

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pyspark
import pytest

from millrace.cli.exits import ExitCode
from millrace.deploy.local.services import APPLY_TASK
from millrace.deploy.servers.process import last_lines, session_members
from millrace.schemas.gtid import Flavour
from millrace.schemas.status import TaskState
from tests.fixtures.stack import FaultStack, on
from tests.kit.faults.campaign import IN_A_LANE
from tests.kit.waiting import eventually

EXECUTOR = "CoarseGrainedExecutorBackend"
BEFORE_LANE_COMMIT, _ = IN_A_LANE
_CLUSTER = ("--master", "local-cluster[1,2,1024]")


@pytest.mark.chaos  # test_apply_kills has one Spark query under the same kills
@on(Flavour.MYSQL)
def test_killed_python_worker_restarts_the_query_and_loses_no_row(fault_stack: FaultStack) -> None:
    """Killed before and after a lane's commit: the task reports why it restarts, and the target ends equal."""
    with fault_stack.load("python_worker"):
        for point in IN_A_LANE:
            fault_stack.end("apply")
            fault_stack.launch("apply", options=_armed(f"{point}:kill@3"))
            report = fault_stack.wait_report(APPLY_TASK, TaskState.DEGRADED, "MR-5050")
            assert report.fix
        fault_stack.restart("apply")
    fault_stack.settle()


@on(Flavour.MYSQL)
def test_killed_jvm_ends_the_driver_and_its_successor_continues(fault_stack: FaultStack) -> None:
    """A process has one JVM in its life. The driver reports this, releases its lease and exits; a restart continues.

    The orphaned lane commits or does not, but before the next run reads.
    """
    with fault_stack.load("jvm"):
        fault_stack.end("apply")
        process = fault_stack.launch("apply", options=_armed(f"{BEFORE_LANE_COMMIT}:stop@3"))
        fault_stack.wait_stopped("apply")
        frozen = fault_stack.stopped("apply")
        (jvm,) = java(fault_stack, "SparkSubmit")
        log = fault_stack.log_from_here("apply")
        os.kill(jvm, signal.SIGKILL)
        fault_stack.wait_ended("apply")
        assert process.exit_status == ExitCode.RESTART, last_lines(process.spec.log, count=200)
        assert any("MR-5053" in line for line in log())
        _wake(fault_stack, frozen)
        fault_stack.restart("apply")
    fault_stack.settle()


@pytest.mark.chaos
@on(Flavour.MYSQL)
def test_killed_executor_loses_no_row(
    fault_stack: FaultStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors in their own JVMs die one after the other, each with a Python worker about to commit a lane.

    This simulates a lost machine. Earlier lanes were committed, and another executor takes over.
    """
    monkeypatch.setenv("SPARK_HOME", str(Path(pyspark.__file__).parent))
    with fault_stack.load("executor"):
        fault_stack.end("apply")
        options = (*_CLUSTER, *_armed(f"{BEFORE_LANE_COMMIT}:stop@3"))
        fault_stack.launch("apply", options=options)
        for _ in range(3):
            fault_stack.wait_stopped("apply")
            (executor,) = java(fault_stack, EXECUTOR)
            for pid in (executor, *fault_stack.stopped("apply")):
                os.kill(pid, signal.SIGKILL)
            _wait_for_another(fault_stack, executor)
        fault_stack.restart("apply")
    fault_stack.settle()


@pytest.mark.chaos
@pytest.mark.parametrize("point", IN_A_LANE)
@on(Flavour.MYSQL)
def test_executor_killed_around_a_commit_loses_no_row(
    fault_stack: FaultStack, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """The executor's Python worker stops around the commit, wakes as an orphan and exits; another takes over."""
    monkeypatch.setenv("SPARK_HOME", str(Path(pyspark.__file__).parent))
    with fault_stack.load("frozen"):
        fault_stack.end("apply")
        fault_stack.launch("apply", options=(*_CLUSTER, *_armed(f"{point}:stop@1")))
        for _ in range(2):  # the next executor's workers stop there, too
            fault_stack.wait_stopped("apply")
            _kill_executor(fault_stack)
        report = fault_stack.wait_report(APPLY_TASK, TaskState.DEGRADED, "MR-5050")
        assert report.fix
        fault_stack.restart("apply")
    fault_stack.settle()


def _armed(fault: str) -> tuple[str, ...]:
    """Arm Python workers; all turns run in them."""
    return "--conf", f"spark.executorEnv.MILLRACE_FAULT={fault}"


def _kill_executor(stack: FaultStack) -> None:
    """Kill the executor while its Python workers are stopped; another takes over, and the workers exit once resumed."""
    (executor,) = java(stack, EXECUTOR)
    frozen = stack.stopped("apply")
    os.kill(executor, signal.SIGKILL)
    _wait_for_another(stack, executor)
    _wake(stack, frozen)


def _wait_for_another(stack: FaultStack, executor: int) -> None:
    eventually(lambda: set(java(stack, EXECUTOR)) - {executor}, what="another executor")


def _wake(stack: FaultStack, frozen: Sequence[int]) -> None:
    """Resume Python workers whose JVM is gone; they exit."""
    for pid in set(frozen) & set(stack.stopped("apply")):
        os.kill(pid, signal.SIGCONT)
    eventually(
        lambda: not set(frozen) & set(session_members(stack.services["apply"].identity)),
        what="the frozen Python workers are gone",
    )


def java(stack: FaultStack, word: str) -> list[int]:
    """The apply driver's JVMs whose command line has this word."""
    found = []
    for pid in session_members(stack.services["apply"].identity):
        try:
            cmdline = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue  # it has ended
        command = cmdline.decode(errors="replace").split("\0")
        if command[0].endswith("java") and any(word in part for part in command):
            found.append(pid)
    return found
