"""Operator mistakes: the task reports each with a code and a fix, and no row is lost once it is fixed.

Covers a wrong password, missing row format, missing full metadata, a replica that does not log changes, and a broken
document.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from millrace.deploy.local.services import APPLY_TASK, CAPTURE_TASK, SOURCE_SET, TARGET_SET
from millrace.deploy.servers import DatabaseServer
from millrace.schemas.gtid import Flavour
from millrace.schemas.status import TaskReport, TaskState
from millrace.zk.tree.paths import Tree
from tests.fixtures.stack import FaultStack, on
from tests.kit.waiting import eventually


@on(Flavour.MYSQL)
def test_wrong_source_password_is_reported_and_loses_nothing(fault_stack: FaultStack) -> None:
    """The set document has a wrong password: MR-1002 in the status; the right one and `task resume` fix it."""
    with fault_stack.load("password"):
        _replace_set(fault_stack, SOURCE_SET, password="wrong")
        _reported(fault_stack, CAPTURE_TASK, "MR-1002")
        _replace_set(fault_stack, SOURCE_SET)
        _runs_again(fault_stack, CAPTURE_TASK)
    fault_stack.settle()


@on(Flavour.MYSQL)
def test_wrong_target_password_is_reported_and_loses_nothing(fault_stack: FaultStack) -> None:
    """The same for the target set: MR-5002."""
    with fault_stack.load("target_password"):
        _replace_set(fault_stack, TARGET_SET, password="wrong")
        _reported(fault_stack, APPLY_TASK, "MR-5002")
        _replace_set(fault_stack, TARGET_SET)
        _runs_again(fault_stack, APPLY_TASK)
    fault_stack.settle()


@on(Flavour.MYSQL)
def test_source_without_row_format_is_refused_with_a_fix(fault_stack: FaultStack) -> None:
    """binlog_format is STATEMENT on every member: no member is read, and the status shows `SET GLOBAL`."""
    with _setting(fault_stack, "binlog_format", "STATEMENT"):
        fault_stack.restart("worker")
        report = _reported(fault_stack, CAPTURE_TASK, "MR-1012")
        assert "SET GLOBAL binlog_format = 'ROW'" in report.why + report.fix
    _runs_again(fault_stack, CAPTURE_TASK)
    fault_stack.fill("after_format", rows=10)
    fault_stack.settle()


@on(Flavour.MYSQL)
def test_source_without_full_metadata_is_refused_with_a_fix(fault_stack: FaultStack) -> None:
    """binlog_row_metadata is MINIMAL on every member: the same, before any row is read."""
    with _setting(fault_stack, "binlog_row_metadata", "MINIMAL"):
        fault_stack.restart("worker")
        report = _reported(fault_stack, CAPTURE_TASK, "MR-1014")
        assert "SET GLOBAL binlog_row_metadata = 'FULL'" in report.why + report.fix
    _runs_again(fault_stack, CAPTURE_TASK)
    fault_stack.fill("after_metadata", rows=10)
    fault_stack.settle()


@on(Flavour.MYSQL)
def test_replica_that_does_not_log_changes_is_not_read(fault_stack: FaultStack) -> None:
    """As the set's only member it blocks the task with MR-1011; with the primary in the document rows continue."""
    (replica,) = fault_stack.stack.source.replicas
    kept = replica.options
    unlogged = ("--loose-log-replica-updates=OFF", "--loose-log-slave-updates=OFF")
    replica.stop()
    replica.options = replace(kept, extra=unlogged)
    try:
        replica.start()
        with fault_stack.load("unlogged"):
            _replace_set(fault_stack, SOURCE_SET, ports=(replica.port,))
            _reported(fault_stack, CAPTURE_TASK, "MR-1011")
            _replace_set(fault_stack, SOURCE_SET)
            _runs_again(fault_stack, CAPTURE_TASK)
            fault_stack.wait_published()
        fault_stack.settle()
    finally:
        replica.stop()
        replica.options = kept
        replica.start()


@on(Flavour.MYSQL)
def test_broken_task_document_is_refused_and_stops_nothing(fault_stack: FaultStack) -> None:
    """The command names every wrong field; a node damaged in ZooKeeper leaves the last good document in use."""
    broken = fault_stack.stack.folder / "broken.yaml"
    good = fault_stack.stack.folder / f"{CAPTURE_TASK}.yaml"
    broken.write_text(good.read_text().replace("topic:", "topics:") + "lanes: many\n")
    refused = fault_stack.stack.try_command("task", "create", "-f", str(broken), "--replace")
    assert refused.returncode == 4
    for words in ("MR-4101", "topics", "lanes"):
        assert words in refused.stderr
    with fault_stack.load("document"):
        with fault_stack.control() as session:
            path = Tree("default").task(CAPTURE_TASK)
            node = session.get(path)
            assert node is not None
            session.put(path, b'{"format":1}', version=node.version)
        report = fault_stack.wait_report(CAPTURE_TASK, TaskState.DEGRADED, "MR-4101", "MR-4011")
        assert report.fix
        fault_stack.fill("while_broken", rows=10)
        fault_stack.stack.run_command("task", "create", "-f", str(good), "--replace")
        fault_stack.wait_report(CAPTURE_TASK, TaskState.RUNNING)
    fault_stack.settle()


def _reported(fault_stack: FaultStack, task: str, code: str) -> TaskReport:
    """Wait until the task is blocked or degraded with this code and a fix."""
    report = fault_stack.wait_unhealthy(task, code)
    seen: list[dict[str, Any]] = []

    def is_shown() -> bool:
        """It may be in a retry at the moment of the check."""
        seen[:] = [fault_stack.status(task)]
        return seen[0]["code"] == code and seen[0]["state"] in ("blocked", "degraded")

    eventually(is_shown, what=f"the status shows {code}")
    assert seen[0]["fix"]
    return report


def _runs_again(fault_stack: FaultStack, task: str) -> None:
    fault_stack.stack.run_command("task", "resume", task)
    fault_stack.wait_report(task, TaskState.RUNNING)


def _replace_set(
    fault_stack: FaultStack, name: str, *, password: str = "", ports: tuple[int, ...] = ()
) -> None:
    """Change the set's password or members; without arguments, restore the document."""
    folder = fault_stack.stack.folder
    text = (folder / f"{name}.yaml").read_text()
    lines = text.splitlines()
    if password:
        secret = folder / "secrets" / "other"
        secret.write_text(password)
        lines = [f"password: file:{secret}" if "password:" in line else line for line in lines]
    if ports:
        members = ", ".join(f"{{host: 127.0.0.1, port: {port}}}" for port in ports)
        lines = [f"members: [{members}]" if "members:" in line else line for line in lines]
    path = folder / "other-set.yaml"
    path.write_text("\n".join([*lines, ""]))
    fault_stack.stack.run_command("set", "create", "-f", str(path), "--replace")


@contextmanager
def _setting(fault_stack: FaultStack, variable: str, value: str) -> Iterator[None]:
    """Set a global variable on every member of the source set."""
    members = fault_stack.stack.source.members
    kept = str(members[0].execute(f"SELECT @@GLOBAL.{variable}")[0][0])
    fault_stack.settle()
    try:
        for member in members:
            _set_global(member, variable, value)
        yield
    finally:
        for member in members:
            _set_global(member, variable, kept)


def _set_global(member: DatabaseServer, variable: str, value: str) -> None:
    """MySQL changes binlog_format only while no replication thread runs."""
    word = "SLAVE" if member.flavour is Flavour.MARIADB else "REPLICA"
    if member.is_replica:
        member.execute(f"STOP {word}")
    member.execute(f"SET GLOBAL {variable} = '{value}'")
    if member.is_replica:
        member.execute(f"START {word}")
