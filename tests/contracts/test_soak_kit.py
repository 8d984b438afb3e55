"""The soak's own processes: none ends before its users do."""

import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.fixtures.stack import FaultStack
from tests.kit.faults import soak
from tests.kit.faults.soak import LIVES_S, REGISTRY, History, Soak
from tests.kit.waiting import eventually

JOIN_S = 0.3  # for a thread that has ended


class _Process:
    identity = SimpleNamespace(pid=0)

    def __init__(self) -> None:
        self._is_alive = True

    def is_alive(self) -> bool:
        return self._is_alive

    def kill(self) -> None:
        self._is_alive = False


class _Server:
    starter = threading.current_thread()

    def kill(self) -> None:
        pass

    def start(self) -> None:
        self.starter = threading.current_thread()


@dataclass
class _Stack:
    """Notes at each expiry whether the thread that started ZooKeeper is alive."""

    servers: dict[str, _Server] = field(default_factory=lambda: {"zookeeper": _Server()})
    services: dict[str, _Process] = field(default_factory=dict)
    is_up: list[bool] = field(default_factory=list)

    def log_from_here(self, _: str) -> object:
        return list

    def launch(self, name: str, *, fault: str = "") -> _Process:
        self.services[name] = _Process()
        return self.services[name]

    def end(self, name: str) -> None:
        self.services.pop(name, None)

    def expire(self, _: _Process) -> None:
        starter = self.servers["zookeeper"].starter
        starter.join(JOIN_S)
        self.is_up.append(starter.is_alive())


def test_soak_keeps_servers_until_no_thread_needs_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A server dies with the thread that started it. A process's last expiry waited 300 s for a dead ZooKeeper."""
    monkeypatch.setattr(soak, "SERVER_LIVES_S", (0.01, 0.01))
    monkeypatch.setattr(soak, "SERVER_AWAY_S", (0.0, 0.0))
    monkeypatch.setattr(soak, "session_members", lambda _: [])
    stack = _Stack()
    soaking = Soak(cast(FaultStack, stack), seed=1, history=History(tmp_path / "deaths"))
    for name in (REGISTRY, *LIVES_S):
        stack.launch(name)
    own = threading.current_thread()
    soaking.begin()
    eventually(lambda: stack.servers["zookeeper"].starter is not own, what="ZooKeeper restarts")
    soaking.calm()
    assert stack.is_up
    assert all(stack.is_up)
