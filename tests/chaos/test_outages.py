"""Servers fail under load and come back: the tasks report it and resume by themselves."""

import time
from collections.abc import Callable
from functools import partial

import pytest

from millrace.deploy.local.services import APPLY_TASK, CAPTURE_TASK
from millrace.deploy.servers import DatabaseServer
from millrace.schemas.gtid import Flavour
from millrace.schemas.status import TaskState
from tests.fixtures.stack import FaultStack, on
from tests.kit.control.control import SESSION_TIMEOUT_S, end_session
from tests.kit.waiting import eventually


@on(Flavour.MYSQL)
def test_killed_broker_loses_no_record(fault_stack: FaultStack) -> None:
    """kill -9 of the only broker: capture and apply are degraded with a code and resume when it is back."""
    with fault_stack.load("broker"):
        fault_stack.wait_published()
        fault_stack.stack.kafka.kill()
        report = fault_stack.wait_report(CAPTURE_TASK, TaskState.DEGRADED, "MR-3001")
        assert report.fix
        fault_stack.stack.kafka.start()
    fault_stack.settle()


@on(Flavour.MYSQL)
def test_killed_target_loses_no_row(fault_stack: FaultStack) -> None:
    """kill -9 of the target server: apply is degraded with a code and resumes when it is back."""
    with fault_stack.load("target"):
        fault_stack.wait_published()
        fault_stack.stack.target.kill()
        report = fault_stack.wait_report(APPLY_TASK, TaskState.DEGRADED, "MR-5001")
        assert report.fix
        fault_stack.stack.target.start()
    fault_stack.settle()


@on(Flavour.MARIADB)
def test_killed_replica_is_replaced_by_another_member(fault_stack: FaultStack) -> None:
    """The member that capture reads dies: the task reports it and resumes on the remaining member; no row is lost."""
    (replica,) = fault_stack.stack.source.replicas
    with fault_stack.load("replica"):
        fault_stack.end("worker")
        fault_stack.stack.source.wait_for_replicas()  # a replica that lags far is not chosen
        fault_stack.launch("worker")
        fault_stack.wait_published()
        assert fault_stack.status(CAPTURE_TASK)["source"]["port"] == replica.port
        fault_stack.lose_member(replica, fault_stack.stack.source.primary)
        fault_stack.wait_published()
        replica.start()
    fault_stack.settle()


@on(Flavour.MARIADB)
def test_rows_flow_while_zookeeper_is_down_and_sessions_expire(fault_stack: FaultStack) -> None:
    """Paused until its sessions expire: rows keep moving, commands and logs report it, then the tasks run again."""
    zookeeper = fault_stack.stack.zookeeper
    with fault_stack.load("ensemble"):
        fault_stack.wait_published()
        _rows_flow_without(
            fault_stack,
            zookeeper.pause,
            zookeeper.resume,
            for_s=1.2 * SESSION_TIMEOUT_S,
            ends_sessions=True,
        )
    fault_stack.settle()


@pytest.mark.chaos
@on(Flavour.MYSQL)
def test_rows_flow_for_minutes_without_the_ensemble(fault_stack: FaultStack) -> None:
    """ZooKeeper is killed for three session timeouts; it restarts session timers, so the sessions survive."""
    zookeeper = fault_stack.stack.zookeeper
    with fault_stack.load("minutes"):
        fault_stack.wait_published()
        _rows_flow_without(
            fault_stack,
            zookeeper.kill,
            zookeeper.start,
            for_s=3 * SESSION_TIMEOUT_S,
            ends_sessions=False,
        )
    fault_stack.settle()


def _rows_flow_without(
    stack: FaultStack,
    leave: Callable[[], None],
    come_back: Callable[[], None],
    *,
    for_s: float,
    ends_sessions: bool,
) -> None:
    """Rows of new databases arrive this long without the ensemble; both tasks log DEGRADED, and RUNNING afterwards.

    A lease ends with its session: the epoch stays the same if the session survived the outage, otherwise it grows. The
    publisher trusts slow commits meanwhile, because replacing it would wait for the ensemble.
    """
    owners = {CAPTURE_TASK: "worker", APPLY_TASK: "apply"}
    stack.end("worker")
    stack.launch("worker", is_trusting=True)
    before = {task: stack.wait_report(task, TaskState.RUNNING).epoch for task in owners}
    with stack.control() as session:
        sessions = [stack.session_of_owner(session, task) for task in owners]
    logs = {task: stack.log_from_here(name) for task, name in owners.items()}
    leave()
    left_s = time.monotonic()
    try:
        number = 0
        while time.monotonic() - left_s < for_s:
            number += 1
            stack.fill(f"away_{number}", rows=10)
            eventually(
                partial(_has_rows, stack.stack.target, f"away_{number}"),
                every_s=0.5,
                what="rows arrive without ZooKeeper",
            )
        asked = stack.stack.try_command("status", "--json")
        assert asked.returncode == 3
        assert "MR-4001" in asked.stderr
        for task, log in logs.items():
            eventually(
                partial(_says, log, task, "task degraded", "code=MR-4001"),
                what=f"{task} says DEGRADED",
            )
    finally:
        come_back()
    if ends_sessions:  # a session that returned first would survive: timers continue from the pause
        for number in sessions:
            end_session(stack.stack.zookeeper.hosts, number)
    for task, log in logs.items():
        eventually(partial(_lines, log, task, "task running"), what=f"{task} says RUNNING")
        if ends_sessions:
            stack.wait_epoch_after(task, before[task])
        assert (stack.wait_report(task, TaskState.RUNNING).epoch > before[task]) is ends_sessions
    stack.fill("is_back", rows=10)  # written by owners that hold their leases
    stack.wait_published()
    stack.restart("worker")


def _says(log: Callable[[], list[str]], task: str, event: str, words: str) -> bool:
    """Whether a line has these words; a failed micro-batch logs the same event."""
    return any(words in line.split() for line in _lines(log, task, event))


def _lines(log: Callable[[], list[str]], task: str, event: str) -> list[str]:
    """A task's log lines with this event."""
    return [line for line in log() if event in line and f"task={task}" in line.split()]


@pytest.mark.chaos
@on(Flavour.MARIADB)
def test_killed_registry_or_primary_loses_no_row(fault_stack: FaultStack) -> None:
    """Capture of new tables waits for a registry that is down; a restarted primary writes a new binlog file."""
    fault_stack.services["registry"].kill()
    fault_stack.fill("no_registry", rows=10)
    fault_stack.launch("registry")
    fault_stack.fill("with_registry", rows=10)
    fault_stack.settle()
    fault_stack.stack.source.primary.kill()
    fault_stack.stack.source.primary.start()
    fault_stack.fill("after_the_primary", rows=10)
    fault_stack.settle()


@on(Flavour.MARIADB)
def test_forced_session_expiry_raises_epochs_and_loses_no_row(fault_stack: FaultStack) -> None:
    """ZooKeeper ends the sessions of the living worker and apply driver; they acquire their tasks again."""
    with fault_stack.load("expired"), fault_stack.control() as session:
        for task in (CAPTURE_TASK, APPLY_TASK):
            before = fault_stack.wait_report(task, TaskState.RUNNING).epoch
            fault_stack.expire_owner(session, task)
            fault_stack.wait_epoch_after(task, before)
    fault_stack.settle()


def _has_rows(target: DatabaseServer, database: str) -> bool:
    sql = "SELECT 1 FROM information_schema.tables WHERE table_schema = %s"
    return bool(target.execute(sql, (database,))) and target.execute(
        f"SELECT COUNT(*) FROM {database}.t"
    ) == [(10,)]
