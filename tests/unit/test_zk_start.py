"""A process reports problems of its surroundings: the ensemble's name and its own name."""

import socket
import threading
from collections.abc import Callable
from itertools import count
from typing import cast
from unittest import mock

import pytest

from millrace import log
from millrace.errors import Fatal, Retryable
from millrace.http import Page
from millrace.schemas.documents import TaskKind
from millrace.zk.client.mirror import Mirror
from millrace.zk.client.session import Session
from millrace.zk.ensemble import Ensemble
from millrace.zk.lease.membership import Membership, WorkerIdentity
from millrace.zk.run import worker as process
from millrace.zk.run.supervisor import Supervisor
from millrace.zk.tree.paths import Tree
from millrace.zk.tree.reports import StatusWriter


@pytest.mark.parametrize(
    "hosts",
    [
        "127.0.0.1:abc",
        "::::",
        "a b:2181",
        "h:0",
        "h:65536",
        "h:2181,",
        "[::1",
        "é:1",
        "a..b:2181",
        ".a",
        "a" * 64,
    ],
)
def test_invalid_ensemble_address_is_refused(hosts: str) -> None:
    """MR-4205 shows the value found, where the driver would raise a ValueError."""
    with pytest.raises(Fatal) as caught:
        Ensemble.from_environment({"MILLRACE_ZOOKEEPER": hosts})
    assert caught.value.code == "MR-4205"
    assert hosts in caught.value.message
    assert "host:port[,host:port]" in caught.value.fix


def test_named_stack_that_does_not_run_is_the_reason() -> None:
    """Not the variable that a running stack would have set. An ensemble that is named counts."""
    with pytest.raises(Fatal) as caught:
        Ensemble.from_environment({"MILLRACE_STACK": "nosuch"})
    assert (caught.value.code, "'nosuch'" in caught.value.message) == ("MR-8010", True)
    assert "millrace up --name nosuch" in caught.value.fix
    both = {"MILLRACE_STACK": "nosuch", "MILLRACE_ZOOKEEPER": "zk1"}
    assert Ensemble.from_environment(both).hosts == "zk1"


@pytest.mark.parametrize("hosts", ["zk1", "zk1:2181, zk-2.x_y:2181", "[::1]:2181", "h:1/a/b"])
def test_valid_ensemble_address_is_accepted(hosts: str) -> None:
    """Ports and a path are optional."""
    assert Ensemble.from_environment({"MILLRACE_ZOOKEEPER": hosts}).hosts == hosts


def test_unresolvable_host_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer can come, so the process does not wait; one name with an address is enough to try."""
    opened: list[str] = []
    monkeypatch.setattr(Session, "open", lambda hosts, **_: opened.append(hosts))

    def look_up(name: str, _port: object) -> list[object]:
        if name.startswith("nonsense"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return []

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pytest.raises(
        Retryable, match="nonsense: Name or service not known; nonsense2: "
    ) as caught:
        Ensemble.from_environment({"MILLRACE_ZOOKEEPER": "nonsense,nonsense2:2181"}).open()
    assert caught.value.code == "MR-4001"
    assert opened == []
    for hosts in ("nonsense,zk1", "[::1]:2181/path"):
        Ensemble.from_environment({"MILLRACE_ZOOKEEPER": hosts}).open()
    assert opened == ["nonsense,zk1", "[::1]:2181/path"]


@pytest.mark.parametrize("kind", ["worker", "scheduler"])
def test_page_names_the_ensemble_that_does_not_answer(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An orchestrator's log shows what the process waits for, and not only that it starts."""
    stop, page = threading.Event(), Page()

    def refuse(*_: object, **__: object) -> Session:
        stop.set()
        raise Retryable("MR-4001", "no server answered")

    monkeypatch.setattr(process, "stop_on_signals", lambda: stop)
    monkeypatch.setattr(Ensemble, "open", refuse)
    where = Ensemble.from_environment({"MILLRACE_ZOOKEEPER": "zk1:2181"})
    if kind == "worker":
        identity = WorkerIdentity(name="w", kind=TaskKind.CAPTURE)
        assert process.run_worker(identity, mock.Mock(), ensemble=where, page=page) == 0
    else:
        assert process.run_scheduler(ensemble=where, page=page) == 0
    body = b"".join(page({"PATH_INFO": "/readyz"}, mock.Mock()))
    assert body == b"it starts: it waits for ZooKeeper at zk1:2181\n"


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], Supervisor]:
    """Return a supervisor of an empty tree that calls a function in each round, to register its worker."""

    def make(register: Callable[[], None]) -> Supervisor:
        monkeypatch.setattr("millrace.zk.run.supervisor.create_tree", lambda *_: None)
        monkeypatch.setattr(Mirror, "snapshot", lambda _: {})
        monkeypatch.setattr(Membership, "ensure", lambda _: register())
        return Supervisor(
            cast(Session, mock.MagicMock()),
            Tree("c"),
            worker=WorkerIdentity(name="w1", kind=TaskKind.CAPTURE),
            runner=mock.MagicMock(),
        )

    return make


def test_name_in_use_is_reported_once(
    rounds: Callable[[Callable[[], None]], Supervisor],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ZooKeeper is reachable, and one line per second would hide everything else."""
    log.configure(json=False, level="info")
    monkeypatch.setattr(StatusWriter, "run", lambda *_: None)
    monkeypatch.setattr("millrace.zk.run.supervisor.ROUND_S", 0.0)
    stop, reported = threading.Event(), list[str]()
    answers = iter([True, True, True, False, True])

    def register() -> None:
        reported.append(capsys.readouterr().err)
        is_taken = next(answers, None)
        if is_taken is None:
            stop.set()
        elif is_taken:
            raise Retryable("MR-4009", "a worker named w1 is registered")

    rounds(register).run(stop)
    lines = [("another worker has this name" in text) for text in reported]
    assert lines == [False, True, False, False, False, True]
    assert "--name" in reported[1]
    assert "away" not in "".join(reported)


def test_worker_that_cannot_write_statuses_ends(
    rounds: Callable[[Callable[[], None]], Supervisor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would appear to stop forever; the process that restarts it gives it another thread."""
    stop = threading.Event()
    looks = count(1)

    def fail(*_: object) -> None:
        raise ZeroDivisionError("by a writer")

    def register() -> None:
        if next(looks) > 3:  # a second each
            stop.set()

    monkeypatch.setattr(StatusWriter, "run", fail)
    with pytest.raises(ZeroDivisionError):
        rounds(register).run(stop)
