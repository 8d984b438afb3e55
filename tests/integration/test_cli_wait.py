"""`millrace task wait` on real servers and a real ZooKeeper."""

import json
import re
import threading
from dataclasses import dataclass

import pytest
import yaml

from millrace.cli.task.primary import primary_history
from millrace.deploy.servers import DatabaseSet
from millrace.errors import Fatal
from millrace.schemas.documents import TaskKind, Work, parse_set
from millrace.schemas.gtid import Flavour, missing
from millrace.schemas.status import TaskReport, TaskState
from millrace.zk.run.runner import HeldLease, Report
from tests.fixtures.shell import APPLY, CAPTURE, SHOP, Shell
from tests.kit.apply.topic import UUID
from tests.kit.control.control import ScriptedRunner


def test_waiting_for_a_blocked_task_fails_at_once(
    shell: Shell, source_set: DatabaseSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command does not wait for a position that cannot be reached."""

    def script(_task: Work, _lease: HeldLease, _stop: threading.Event) -> None:
        raise Fatal("MR-1031", "it was purged", fix="Put it there.")

    monkeypatch.setenv("MILLRACE_TEST_PASSWORD", source_set.password)
    shell("set", "create", "-f", shell.file(_document_of(source_set)))
    shell("task", "create", "-f", shell.file(CAPTURE))
    _commit(source_set)
    with shell.running(ScriptedRunner(script, gtid_set="")):
        output = shell("task", "wait", "shop-capture", "--timeout", "60", exit_code=4)
    assert output.startswith("MR-4202 ")
    assert "MR-1031 it was purged" in output
    assert "Put it there." in output


def test_wait_returns_once_the_primarys_position_is_reached(
    shell: Shell, source_set: DatabaseSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wait until the reported set contains the primary's position at the time of the command, for capture and apply."""
    monkeypatch.setenv("MILLRACE_TEST_PASSWORD", source_set.password)
    shell("set", "create", "-f", shell.file(_document_of(source_set)))
    warehouse = _document_of(source_set).replace("set: shop", "set: warehouse")
    shell("set", "create", "-f", shell.file(warehouse))
    shell("task", "create", "-f", shell.file(CAPTURE))
    shell("task", "create", "-f", shell.file(APPLY.replace("target: shop", "target: warehouse")))
    _commit(source_set)
    captures, applies = ReportingRunner(gtid_set=""), ReportingRunner(gtid_set="")
    captures.gtid_set = source_set.primary.gtid_position()
    with shell.running(captures), shell.running(applies, kind=TaskKind.APPLY):
        assert "has reached" in shell("task", "wait", "shop-capture", "--timeout", "60")
        _commit(source_set)
        behind = shell("task", "wait", "shop-capture", "--timeout", "1", exit_code=3)
        assert behind.startswith("MR-4201 ")
        assert "shop-capture is running" in behind
        assert shell("task", "wait", "shop-apply", "--timeout", "1", exit_code=3).startswith(
            "MR-4201"
        )
        applies.gtid_set = source_set.primary.gtid_position()
        done = json.loads(shell("task", "wait", "shop-apply", "--timeout", "60", "--json"))
        assert done["task"] == "shop-apply"
        assert done["gtid_set"]


def test_wait_timeout_names_the_stopped_replica_and_missing_gtids(
    shell: Shell, source_set: DatabaseSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tasks wait for changes; the timeout error names the member, the thread and the statement that starts it."""
    monkeypatch.setenv("MILLRACE_TEST_PASSWORD", source_set.password)
    shell("set", "create", "-f", shell.file(_document_of(source_set)))
    shell("task", "create", "-f", shell.file(CAPTURE))
    _commit(source_set)
    source_set.wait_for_replicas()
    captures, replica = ReportingRunner(), source_set.replicas[0]
    captures.gtid_set = source_set.primary.gtid_position()
    is_mariadb = source_set.flavour is Flavour.MARIADB
    word, start = ("SLAVE", "ALL SLAVES") if is_mariadb else ("REPLICA", "REPLICA")
    replica.execute(f"STOP {word} SQL_THREAD")
    try:
        _commit(source_set)
        with shell.running(captures):
            output = shell("task", "wait", "shop-capture", "--timeout", "1", exit_code=3)
    finally:
        replica.execute(f"START {word} SQL_THREAD")
    assert output.startswith("MR-4201 ")
    assert f"127.0.0.1:{replica.port} does not have " in output
    assert output.count("its SQL thread is stopped") == 1
    assert (
        f"`START {start}` on 127.0.0.1:{replica.port}; or `millrace task pause shop-capture`"
        in output
    )


def test_wait_needs_a_reachable_primary(
    shell: Shell, source_set: DatabaseSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dead members do not matter while the primary answers; otherwise the command fails with its code."""
    monkeypatch.setenv("MILLRACE_TEST_PASSWORD", source_set.password)
    shell("set", "create", "-f", shell.file(_document_of(source_set)))
    shell("task", "create", "-f", shell.file(CAPTURE))
    for unset in ("", " ", ","):  # a shell variable
        output = shell("task", "wait", "shop-capture", "--gtid", unset, exit_code=4)
        assert output.startswith("MR-6001 ")
    shell("task", "delete", "shop-capture")
    document = parse_set(yaml.safe_load(_document_of(source_set, dead_port=1)))
    history = primary_history(document)
    assert not missing(primary_history(document).position, history.position, history)
    replicas = shell.file(_document_of(source_set, only_replicas=True))
    shell("set", "create", "-f", replicas, "--replace")
    shell("task", "create", "-f", shell.file(CAPTURE))
    output = shell("task", "wait", "shop-capture", "--timeout", "1", exit_code=3)
    assert output.startswith("MR-4204 ")
    assert "no member is a primary" in output
    monkeypatch.setenv("MILLRACE_TEST_PASSWORD", "wrong")
    refused = shell("task", "wait", "shop-capture", "--timeout", "5", exit_code=4)
    assert refused.startswith("MR-1002 ")
    shell("task", "delete", "shop-capture")
    shell("task", "create", "-f", shell.file(APPLY))
    assert shell("task", "wait", "shop-apply", exit_code=4).startswith("MR-4203 ")


def test_start_that_the_source_does_not_have_is_refused(
    shell: Shell, source_set: DatabaseSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task would skip the rows that the source commits under these GTIDs later. What it has, is a start."""
    monkeypatch.setenv("MILLRACE_TEST_PASSWORD", source_set.password)
    shell("set", "create", "-f", shell.file(_document_of(source_set)))
    warehouse = _document_of(source_set).replace("set: shop", "set: warehouse")
    shell("set", "create", "-f", shell.file(warehouse))
    _commit(source_set)
    position = source_set.primary.gtid_position()
    last = re.findall(r"\d+", position)[-1]
    ahead = position.removesuffix(last) + str(int(last) + 5)
    task = APPLY.replace("target: shop", "target: warehouse")
    words = ("task", "create", "--replace", "-f")
    unknown = shell(*words, shell.file(task + f"start: '{position}'"), stream="err")
    assert "not compared with the source: MR-4203 " in unknown
    shell("task", "create", "-f", shell.file(CAPTURE))
    refused = shell(*words, shell.file(task + f"start: '{ahead}'"), exit_code=4)
    assert refused.startswith("MR-5037 the primary of shop does not have ")
    assert str(int(last) + 5) in refused
    other = "0-1-5" if source_set.flavour is Flavour.MYSQL else f"{UUID}:1-5"
    refused = shell(*words, shell.file(task + f"start: '{other}'"), exit_code=4)
    assert refused.startswith("MR-5008 ")
    shell("task", "delete", "shop-apply")
    assert not shell(*words, shell.file(task + f"start: '{position}'"), stream="err")
    assert "created" not in shell(*words, shell.file(task + f"start: '{position}'"))


@dataclass
class ReportingRunner(ScriptedRunner):
    """Reports the position that the test sets, again and again."""

    def run(self, task: Work, *, lease: HeldLease, stop: threading.Event, report: Report) -> None:
        while not stop.wait(0.02):
            report(TaskReport(TaskState.RUNNING, gtid_set=self.gtid_set))


def _document_of(
    source_set: DatabaseSet, *, dead_port: int = 0, only_replicas: bool = False
) -> str:
    servers = source_set.replicas if only_replicas else source_set.members
    ports = [server.port for server in servers] + ([dead_port] if dead_port else [])
    members = [{"host": "127.0.0.1", "port": port} for port in ports]
    tls = source_set.primary.tls
    verified = {"tls": "verify-identity", "tls_ca": str(tls.authority)} if tls else {}
    how = verified or {"tls": "require-unverified"}
    plain = {**yaml.safe_load(SHOP), "members": members, "user": source_set.user, **how}
    return yaml.safe_dump(plain)


def _commit(source_set: DatabaseSet) -> None:
    source_set.execute("CREATE DATABASE IF NOT EXISTS waited")
    source_set.execute("DROP DATABASE waited")
