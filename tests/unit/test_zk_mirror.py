"""A mirror of a folder over a driver that keeps watches like kazoo, and a clock that only the test moves."""

import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo import exceptions as zke
from kazoo.client import KazooState

from millrace.zk.client import session as zk_session
from millrace.zk.client.mirror import REFRESH_S, Mirror
from millrace.zk.client.session import Session

FOLDER = "/folder"
Watcher = Callable[[object], None]


@dataclass
class ModelKazoo:
    """Nodes and their watchers; equal watchers of a node are kept once."""

    nodes: dict[str, bytes] = field(default_factory=dict)
    watchers: dict[str, set[Watcher]] = field(default_factory=lambda: defaultdict(set))
    reads: int = 0
    client_state: str = "CONNECTED"

    def add_listener(self, heard: Callable[[str], None]) -> None:
        """Report a connection at once."""
        heard(KazooState.CONNECTED)

    def start_async(self) -> threading.Event:
        """Return an event that is set at once: connected."""
        live = threading.Event()
        live.set()
        return live

    def get_async(self, path: str, watch: Watcher | None) -> Any:
        """Return a node."""
        self.reads += 1
        if path not in self.nodes:
            return self._answered(zke.NoNodeError())
        self._watch(path, watch)
        stat = SimpleNamespace(version=0, czxid=1, mzxid=1, mtime=0, ephemeralOwner=0)
        return self._answered((self.nodes[path], stat))

    def get_children_async(self, path: str, watch: Watcher | None) -> Any:
        """Return the names in the folder."""
        self.reads += 1
        self._watch(path, watch)
        return self._answered([name.rpartition("/")[2] for name in self.nodes])

    def exists_async(self, path: str, watch: Watcher | None = None) -> Any:
        """Leave only a watch."""
        self._watch(path, watch)
        return self._answered(None)

    def fire(self, path: str) -> None:
        """Report a change of the node."""
        for watcher in self.watchers.pop(path, set()):
            watcher(None)

    def _watch(self, path: str, watch: Watcher | None) -> None:
        if watch is not None:
            self.watchers[path].add(watch)

    def _answered(self, answer: object) -> Any:
        def get(timeout: float) -> object:
            if isinstance(answer, Exception):
                raise answer
            return answer

        return SimpleNamespace(get=get)


@dataclass
class Rig:
    """A mirror of a folder with two nodes."""

    kazoo: ModelKazoo
    mirror: Mirror
    now_s: float = 0.0
    wakes: int = 0

    def contents(self) -> dict[str, bytes]:
        """Return the mirror's contents."""
        return {name: node.content for name, node in self.mirror.snapshot().items()}


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    """Return a mirror over the model."""
    kazoo = ModelKazoo({f"{FOLDER}/a": b"1", f"{FOLDER}/b": b"1"})
    monkeypatch.setattr(zk_session, "KazooClient", lambda **_: kazoo)
    session = Session.open("h:1")

    def wake() -> None:
        made.wakes += 1

    made = Rig(kazoo, Mirror(session, FOLDER, wake, clock=lambda: made.now_s))
    return made


def test_lost_watch_is_repaired_while_the_mirror_is_busy(rig: Rig) -> None:
    """A full read comes every ``REFRESH_S``, not that long after the last request."""
    assert rig.contents() == {"a": b"1", "b": b"1"}
    rig.kazoo.nodes[f"{FOLDER}/a"] = b"2"  # and the watch does not fire
    rig.kazoo.nodes[f"{FOLDER}/c"] = b"1"
    del rig.kazoo.nodes[f"{FOLDER}/b"]
    for second in range(int(REFRESH_S) + 1):
        rig.now_s = float(second)
        assert rig.contents() == {"a": b"1", "b": b"1"}
    rig.now_s = REFRESH_S + 1
    assert rig.contents() == {"a": b"2", "c": b"1"}


def test_full_reads_leave_one_watch_per_node(rig: Rig) -> None:
    """A worker reads for months, and the driver keeps each watch that did not fire."""
    for round_ in range(100):
        rig.now_s = round_ * (REFRESH_S + 1)
        rig.contents()
    assert {path: len(found) for path, found in rig.kazoo.watchers.items()} == {
        FOLDER: 1,
        f"{FOLDER}/a": 1,
        f"{FOLDER}/b": 1,
    }


def test_watch_event_reads_only_its_node(rig: Rig) -> None:
    """Nothing else is read between two full reads."""
    rig.contents()
    before = rig.kazoo.reads
    rig.contents()
    assert rig.kazoo.reads == before
    rig.kazoo.nodes[f"{FOLDER}/a"] = b"2"
    rig.kazoo.fire(f"{FOLDER}/a")
    assert rig.wakes == 1
    assert rig.contents() == {"a": b"2", "b": b"1"}
    assert rig.kazoo.reads == before + 1
