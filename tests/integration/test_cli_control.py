"""Commands about sets, tasks and status on a real ZooKeeper, and on servers for `wait`."""

import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pytest
import yaml

from deploy.servers import DatabaseServer, DatabaseSet
from millrace.cli import run
from millrace.cli.primary import primary_history
from millrace.errors import Fatal
from schemas.documents import TaskDocument, TaskKind, parse_set
from schemas.gtid import Flavour, missing
from schemas.status import TaskReport, TaskState
from tests.fixtures.shell import APPLY, CAPTURE, SHOP, Shell
from tests.kit.control.control import ScriptedRunner, scheduled, supervised
from tests.kit.faults.proxy import Proxy
from tests.kit.waiting import eventually
from zk.client.session import Session
from zk.ensemble import Ensemble
from zk.run.runner import HeldLease, Report

ALTERNATE_SCREEN, NORMAL_SCREEN, SHOWN_CURSOR = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25h"


def test_set_is_created_listed_and_shown(shell: Shell) -> None:
    """The output of `show` can be created again; it holds the secret only as a reference."""
    assert shell("set", "create", "-f", shell.file(SHOP)) == "set shop created\n"
    assert shell("set", "create", "-f", shell.file(SHOP)) == "set shop unchanged\n"
    assert "127.0.0.1:1" in shell("set", "list")
    shown = shell("set", "show", "shop")
    assert "canary" not in shown
    assert shell("set", "create", "-f", shell.file(shown)) == "set shop unchanged\n"
    assert json.loads(shell("set", "show", "shop", "--json")) == yaml.safe_load(shown)
    assert [s["set"] for s in json.loads(shell("set", "list", "--json"))] == ["shop"]
    other = shell.file(SHOP.replace("port: 1", "port: 2"))
    assert shell("set", "create", "-f", other, exit_code=1).startswith("MR-4103 ")
    assert shell("set", "create", "-f", other, "--replace") == "set shop replaced\n"


@pytest.mark.guarantee("secret")
def test_no_secret_reaches_zookeeper_or_the_output(shell: Shell) -> None:
    """A planted password is resolved only where it is used; no node and no output line contains it."""
    printed = [
        shell("set", "create", "-f", shell.file(SHOP)),
        shell("task", "create", "-f", shell.file(CAPTURE)),
        shell("task", "wait", "shop-capture", "--timeout", "0", exit_code=1),
        shell("set", "create", "-f", shell.file(SHOP.replace("env:", "canary")), exit_code=1),
        shell("status", "--json"),
        shell("set", "list", "--json"),
    ]
    with shell.ensemble.session() as session:
        contents = list(_all_contents(session, shell.ensemble.tree.root))
    assert any(b"env:MILLRACE_TEST_PASSWORD" in content for content in contents)
    assert not any(b"canary" in content for content in contents)
    assert not any("canary" in text for text in printed)


def _all_contents(session: Session, path: str) -> Iterator[bytes]:
    node = session.get(path)
    assert node is not None
    yield node.content
    for name in session.children(path):
        yield from _all_contents(session, f"{path}/{name}")


def test_invalid_document_is_refused_with_every_problem_and_fix(shell: Shell) -> None:
    """Each problem has its path, the value and what is expected; the file is named and nothing is created."""
    output = shell(
        "set", "create", "-f", shell.file("set: shop\nmembers: []\npasswort: x"), exit_code=1
    )
    assert output.startswith("MR-4101 ")
    assert "document.yaml" in output
    assert "members: found 0 entries, wanted a list of 1 to 64" in output
    assert "passwort: found an unknown field, wanted 'password' (nearest)" in output
    assert "user: found nothing" in output
    assert "Correct the fields that the message names" in output
    assert shell("set", "list").startswith("no sets")
    assert shell("set", "create", "-f", "/nope", exit_code=1).startswith("MR-4206 ")
    assert shell("set", "create", "-f", shell.file("a: ["), exit_code=1).startswith("MR-4102 ")
    assert shell("set", "show", "nope", exit_code=1).startswith("MR-4104 ")
    assert shell("task", "create", "-f", shell.file(CAPTURE), exit_code=1).startswith("MR-4104 ")


def test_task_commands_work_from_create_to_delete(shell: Shell) -> None:
    """Every command, with a worker that runs the task; status gives the reason at each step."""
    shell("set", "create", "-f", shell.file(SHOP))
    assert shell("task", "create", "-f", shell.file(CAPTURE)) == "task shop-capture created\n"
    assert "no capture worker is running" in shell("status")
    assert "pending" in shell("task", "list")
    with _running(shell, ScriptedRunner()):
        eventually(lambda: _state(shell) == "running")
        assert shell("task", "pause", "shop-capture") == "task shop-capture paused\n"
        assert _state(shell) == "paused"
        output = shell("task", "show", "shop-captur", exit_code=1)
        assert output.startswith("MR-4104 there is no task 'shop-captur' in cluster ")
        assert "; did you mean 'shop-capture'?\n" in output
        assert "paused by " in shell("status")
        assert shell("task", "resume", "shop-capture") == "task shop-capture resumed\n"
        eventually(lambda: _state(shell) == "running")
        shown = json.loads(shell("task", "show", "shop-capture", "--json"))
        assert shown["document"]["topic"] == "shop"
        assert shown["status"]["seq"] == 7
        assert "gtid_set: 0-1-7" in shell("task", "show", "shop-capture")
        assert shell("task", "delete", "shop-capture") == "task shop-capture deleted\n"
    assert shell("task", "list").startswith("no tasks")
    assert shell("task", "delete", "shop-capture", exit_code=1).startswith("MR-4104 ")


def test_changed_start_without_effect_is_reported(shell: Shell) -> None:
    """Millrace reads `start` only for a topic without records, and this task has already published."""
    shell("set", "create", "-f", shell.file(SHOP))
    shell("task", "create", "-f", shell.file(CAPTURE))
    later = CAPTURE + "start: '0-1-3'\n"

    def replaced(text: str) -> str:
        return shell("task", "create", "-f", shell.file(text), "--replace", stream="err")

    assert replaced(later) == ""  # nothing is published yet
    with _running(shell, ScriptedRunner()):
        eventually(lambda: _state(shell) == "running")
        output = replaced(CAPTURE)
        assert "`start` changed from 0-1-3 to first and has no effect" in output
        assert "The task resumes after 0-1-7, seq 7" in output
        assert replaced(CAPTURE + "exclude: [shop.t]\n") == ""
        assert replaced(later + "topic: another\n") == ""  # a new topic, where `start` is read


def test_status_json_is_one_complete_object(shell: Shell) -> None:
    """The fields that scripts rely on."""
    shell("set", "create", "-f", shell.file(SHOP))
    shell("task", "create", "-f", shell.file(CAPTURE))
    with _running(shell, ScriptedRunner()):
        eventually(lambda: _state(shell) == "running")
        plain = json.loads(shell("status", "--json"))
    assert plain["cluster"] == shell.ensemble.tree.cluster
    assert plain["scheduler"] == "s1"
    assert plain["workers"] == {"w1": "capture"}
    (task,) = plain["tasks"]
    assert task.pop("epoch") > 2**52
    assert task.pop("age_s") >= 0
    assert task == {
        "task": "shop-capture",
        "kind": "capture",
        "way": "set shop → topic shop",
        "assigned": "w1",
        "state": "running",
        "why": "",
        "code": "",
        "fix": "",
        "next_try_s": 0.0,
        "gtid_set": "0-1-7",
        "seq": 7,
        "topic": "",
        "topic_end": 0,
        "worker": "w1",
        "figures": {"rows": 1},
    }


@pytest.mark.parametrize("way", ["terminal", "pipe", "json"])
def test_watch_prints_changed_status_until_ctrl_c(shell: Shell, way: str) -> None:
    """Changes appear without a new command; Ctrl-C ends it with 130 and restores the terminal."""
    shell("set", "create", "-f", shell.file(SHOP))
    shell("task", "create", "-f", shell.file(CAPTURE))
    options = ["--json"] if way == "json" else []
    with _watched([*options, "-w"], on_terminal=way == "terminal") as (process, seen):
        eventually(lambda: b"no capture worker is running" in seen)
        assert b"running: " not in seen
        with _running(shell, ScriptedRunner()):
            eventually(lambda: b"rows=1" in seen or b'"figures": {"rows": 1}' in seen)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 130
    if way == "terminal":
        assert seen.count(ALTERNATE_SCREEN) == 1
        assert seen.partition(ALTERNATE_SCREEN)[2].count(NORMAL_SCREEN) == 1
        assert seen.endswith(SHOWN_CURSOR + NORMAL_SCREEN)
    if way == "json":
        states = [json.loads(line)["tasks"][0]["state"] for line in seen.splitlines()]
        assert states[0] == "pending"
        assert "running" in states


class Door(Proxy):
    """Refuses connections while it is closed."""

    is_open = True

    def takes(self) -> bool:
        return self.is_open


@pytest.mark.chaos
@pytest.mark.parametrize("options", [["-w"], ["-w", "--json"]], ids=["pipe", "json"])
def test_watch_resumes_after_a_lost_connection(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    """It reports the lost connection meanwhile."""
    host, _, port = shell.ensemble.hosts.partition(":")
    with Door(host, int(port)) as door:
        monkeypatch.setenv("MILLRACE_ZOOKEEPER", f"127.0.0.1:{door.port}")
        with _watched(options, on_terminal=False, stderr=subprocess.STDOUT) as (process, seen):
            eventually(lambda: b"cluster" in seen)
            door.is_open = False
            door.cut()
            eventually(lambda: b"MR-4001" in seen)
            door.is_open = True
            eventually(lambda: b"cluster" in seen.rpartition(b"MR-4001")[2])
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=120) == 130


@contextmanager
def _watched(
    options: list[str], *, on_terminal: bool, stderr: int | None = None
) -> Iterator[tuple["subprocess.Popen[bytes]", bytearray]]:
    """Run `millrace status` as a process and collect its output; the process ends with the block."""
    terminal, its = pty.openpty() if on_terminal else os.pipe()
    command = (sys.executable, "-m", "millrace", "status", *options)
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "150", "LINES": "40"}
    process = subprocess.Popen(
        command, stdout=its, stderr=stderr, stdin=subprocess.DEVNULL, env=environment
    )
    os.close(its)
    seen = bytearray()

    def read() -> None:
        with suppress(OSError):  # EIO: the other side closed the terminal
            while found := os.read(terminal, 1 << 16):
                seen.extend(found)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield process, seen
    finally:
        process.kill()
        process.wait()
        reader.join()
        os.close(terminal)


def test_commands_without_an_ensemble_name_the_setting(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unset or wrong setting gives a code and a fix."""
    monkeypatch.setenv("MILLRACE_CLUSTER", "a/b")
    assert "MILLRACE_CLUSTER" in shell("status", exit_code=1)
    monkeypatch.delenv("MILLRACE_ZOOKEEPER")
    output = shell("status", exit_code=1)
    assert output.startswith("MR-4205 ")
    assert "export MILLRACE_ZOOKEEPER=" in output


def test_generation_is_shown_and_raised(shell: Shell) -> None:
    """After an ensemble was rebuilt, the command raises epochs above all earlier ones."""
    assert shell("cluster", "show").endswith("generation 1\n")
    assert shell("cluster", "raise-generation").endswith("generation 2\n")


def test_every_code_can_be_explained(shell: Shell) -> None:
    """Works offline, with cause and fix; an unknown code is an error."""
    assert "raise-generation" in shell("explain", "MR-4006")
    assert shell("explain", "4006") == shell("explain", "mr-4006")
    assert "MR-4101" in shell("explain")
    assert shell("explain", "MR-0", exit_code=1).startswith("MR-4207 ")


def test_waiting_for_a_blocked_task_fails_at_once(
    shell: Shell, source_set: DatabaseSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command does not wait for a position that cannot be reached."""

    def script(_task: TaskDocument, _lease: HeldLease, _stop: threading.Event) -> None:
        raise Fatal("MR-4106", "no such file", fix="Put it there.")

    monkeypatch.setenv("MILLRACE_TEST_PASSWORD", source_set.password)
    shell("set", "create", "-f", shell.file(_document_of(source_set)))
    shell("task", "create", "-f", shell.file(CAPTURE))
    _commit(source_set)
    with _running(shell, ScriptedRunner(script, gtid_set="")):
        output = shell("task", "wait", "shop-capture", "--timeout", "60", exit_code=1)
    assert output.startswith("MR-4202 ")
    assert "MR-4106 no such file" in output
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
    with _running(shell, captures), _running(shell, applies, kind=TaskKind.APPLY):
        assert "has reached" in shell("task", "wait", "shop-capture", "--timeout", "60")
        _commit(source_set)
        behind = shell("task", "wait", "shop-capture", "--timeout", "1", exit_code=1)
        assert behind.startswith("MR-4201 ")
        assert "shop-capture is running" in behind
        assert shell("task", "wait", "shop-apply", "--timeout", "1", exit_code=1).startswith(
            "MR-4201"
        )
        applies.gtid_set = source_set.primary.gtid_position()
        done = json.loads(shell("task", "wait", "shop-apply", "--timeout", "60", "--json"))
        assert done["task"] == "shop-apply"
        assert done["gtid_set"]


def test_wait_timeout_names_the_stopped_replica_and_missing_gtids(
    shell: Shell, source_set: DatabaseSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tasks report "caught up"; the timeout error names the member, the thread and the statement that starts it."""
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
        with _running(shell, captures):
            output = shell("task", "wait", "shop-capture", "--timeout", "1", exit_code=1)
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
    document = parse_set(yaml.safe_load(_document_of(source_set, dead_port=1)))
    history = primary_history(document)
    assert not missing(primary_history(document).position, history.position, history)
    shell("set", "create", "-f", shell.file(_document_of(source_set, only_replicas=True)))
    shell("task", "create", "-f", shell.file(CAPTURE))
    output = shell("task", "wait", "shop-capture", "--timeout", "1", exit_code=1)
    assert output.startswith("MR-4204 ")
    assert "no member is a primary" in output
    monkeypatch.setenv("MILLRACE_TEST_PASSWORD", "wrong")
    refused = shell("task", "wait", "shop-capture", "--timeout", "5", exit_code=1)
    assert refused.startswith("MR-1002 ")
    shell("task", "delete", "shop-capture")
    shell("task", "create", "-f", shell.file(APPLY))
    assert shell("task", "wait", "shop-apply", exit_code=1).startswith("MR-4203 ")


def test_compare_exits_with_1_and_names_the_difference(
    shell: Shell,
    mariadb_server: DatabaseServer,
    target_server: DatabaseServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Exit code 0 while all rows are equal, 1 otherwise; the same result as text and as one JSON object."""
    monkeypatch.setenv("MILLRACE_TEST_PASSWORD", mariadb_server.password)
    for name, server in (("shop", mariadb_server), ("warehouse", target_server)):
        shell("set", "create", "-f", shell.file(_document_of_one(name, server)))
        server.execute("DROP DATABASE IF EXISTS cli_compared")
        server.execute("CREATE DATABASE cli_compared")
        server.execute("CREATE TABLE cli_compared.t (id INT PRIMARY KEY, v VARCHAR(20))")
        server.execute("INSERT INTO cli_compared.t VALUES (1, 'one'), (2, 'two'), (3, 'three')")
    shell("task", "create", "-f", shell.file(CAPTURE + "include: [cli_compared.*]\n"))
    shell("task", "create", "-f", shell.file(APPLY.replace("target: shop", "target: warehouse")))
    counts = "1 table, 3 rows: "
    assert shell("compare", "shop-apply", "--now").endswith(f"{counts}equal\n")
    assert json.loads(shell("compare", "shop-apply", "--now", "--json")) == {
        "task": "shop-apply",
        "tables": 1,
        "rows": 3,
        "differences": 0,
        "is_equal": True,
        "details": [],
    }
    target_server.execute("UPDATE cli_compared.t SET v = 'zwei' WHERE id = 2")
    target_server.execute("DELETE FROM cli_compared.t WHERE id = 3")
    words = shell("compare", "shop-apply", "--now", exit_code=1, stream="out")
    assert words.splitlines() == [
        "cli_compared.t: different: 2",
        "cli_compared.t: missing: 3",
        f"{counts}2 differences",
    ]
    assert json.loads(
        shell("compare", "shop-apply", "--now", "--json", exit_code=1, stream="out")
    ) == {
        "task": "shop-apply",
        "tables": 1,
        "rows": 3,
        "differences": 2,
        "is_equal": False,
        "details": [
            {"table": "cli_compared.t", "what": "different", "key": "2"},
            {"table": "cli_compared.t", "what": "missing", "key": "3"},
        ],
    }
    for server in (mariadb_server, target_server):
        server.execute("DROP DATABASE cli_compared")


@dataclass
class ReportingRunner(ScriptedRunner):
    """Reports the position that the test sets, again and again."""

    def run(
        self, task: TaskDocument, *, lease: HeldLease, stop: threading.Event, report: Report
    ) -> None:
        while not stop.wait(0.02):
            report(TaskReport(TaskState.RUNNING, gtid_set=self.gtid_set))


@contextmanager
def _running(
    shell: Shell, runner: ScriptedRunner, *, kind: TaskKind = TaskKind.CAPTURE
) -> Iterator[None]:
    """Run a worker and a scheduler around the commands."""
    ensemble, is_capture = shell.ensemble, kind is TaskKind.CAPTURE
    with (
        ensemble.session() as own,
        ensemble.session() as other,
        supervised(own, ensemble.tree, runner, name="w1" if is_capture else "a1", kind=kind),
        scheduled(other, ensemble.tree, name="s1" if is_capture else "s2"),
    ):
        yield


def _state(shell: Shell) -> str:
    (task,) = json.loads(shell("task", "list", "--json"))
    return str(task["state"])


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


def _document_of_one(name: str, server: DatabaseServer) -> str:
    members = [{"host": server.host, "port": server.port}]
    plain = {**yaml.safe_load(SHOP), "set": name, "members": members, "user": server.user}
    return yaml.safe_dump({**plain, "tls": "require-unverified"})


def _commit(source_set: DatabaseSet) -> None:
    source_set.execute("CREATE DATABASE IF NOT EXISTS waited")
    source_set.execute("DROP DATABASE waited")


def test_verify_finds_the_broker_in_the_task_document(shell: Shell) -> None:
    """`topic verify` reads the broker from the task document; here that broker is unreachable."""
    shell("set", "create", "-f", shell.file(SHOP))
    shell("task", "create", "-f", shell.file(CAPTURE))
    topic = yaml.safe_load(CAPTURE).get("topic", "shop")
    assert "MR-3502" in shell("topic", "verify", "unheard-of", exit_code=1)
    assert "MR-3501" in shell("topic", "verify", topic, exit_code=1)


def test_command_reports_an_unreachable_ensemble(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, the error code, and what to check."""
    monkeypatch.setenv("MILLRACE_ZOOKEEPER", "127.0.0.1:1")
    impatient = partialmethod(Ensemble.open, connect_timeout_s=0.3)
    monkeypatch.setattr(Ensemble, "open", impatient)
    assert run(["status", "--json"]) == 1
    output = capsys.readouterr().err
    assert "MR-4001" in output
    assert "MILLRACE_ZOOKEEPER" in output
