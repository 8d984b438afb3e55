"""The live workers: each registers an ephemeral node under its name.

    {"format":1,"kind":"capture","relays":["shop"],"labels":["zone=a"],"capacity":20,"host":"h1","since_ms":…,
     "version":"0.2.0"}

Guarantees: a name belongs to one session at a time (the second gets MR-4009). After a lost session ``ensure``
registers again. The node names the relay logs that the worker has at most ``RELAYS_S`` late. ``since_ms`` is the
worker's own clock and only for people.
"""

import os
import socket
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from millrace import __version__
from millrace.errors import Fatal, Retryable
from millrace.schemas.documents import NAME_WANTED, TaskKind, is_name
from millrace.zk.client.session import Node, Session
from millrace.zk.tree.paths import Tree, decode, encode

RELAYS_MAX = 1000  # with names of at most 63 bytes: 64 KiB; ZooKeeper accepts 1 MiB
RELAYS_S = 10.0  # between two looks at the relay logs: one directory is listed

Relays = Callable[[], Collection[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerIdentity:
    """One worker. ``relays`` returns the sets of which it has a relay log.

    ``labels`` are texts like ``zone=a``. ``capacity``: the sets (capture) or tasks (apply) that it takes; None: any.
    """

    name: str
    kind: TaskKind
    relays: Relays = tuple
    labels: frozenset[str] = frozenset()
    capacity: int | None = None


class Membership:
    """The registration of this process as a worker."""

    def __init__(
        self,
        session: Session,
        tree: Tree,
        worker: WorkerIdentity,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session = session
        self._path = tree.worker(worker.name)
        self._worker = worker
        self._clock = clock
        self._since_ms = time.time_ns() // 1_000_000
        self._registered_in = -1
        self._content = b""
        self._looked_at_s = float("-inf")

    def ensure(self) -> None:
        """Register in the current session, if not done yet, and keep the node current.

        Retryable MR-4009 while another session has the name.
        """
        incarnation = self._session.incarnation
        now_s = self._clock()
        if self._registered_in == incarnation and now_s - self._looked_at_s < RELAYS_S:
            return
        content = self._current()
        if self._registered_in != incarnation:
            self._register(content)
            self._registered_in = incarnation
        elif content != self._content:
            node = self._own_node()
            self._session.put(self._path, content, version=node.version)
        self._content, self._looked_at_s = content, now_s

    def _register(self, content: bytes) -> None:
        if self._session.create(self._path, content, ephemeral=True) is None:
            self._own_node()

    def _own_node(self) -> Node:
        registered = self._session.get(self._path)
        if registered is None:
            self._registered_in = -1  # another process deleted it
            raise Retryable("MR-4007", f"{self._path} was deleted")
        if registered.ephemeral_owner != self._session.id:
            raise Retryable("MR-4009", f"a worker named {self._worker.name} is registered")
        return registered

    def _current(self) -> bytes:
        plain: dict[str, object] = {
            "kind": self._worker.kind.value,
            "relays": sorted(self._worker.relays())[:RELAYS_MAX],
            "labels": sorted(self._worker.labels),
            "capacity": self._worker.capacity,
            "host": socket.gethostname(),
            "since_ms": self._since_ms,
            "version": __version__,
        }
        return encode(plain)


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A worker's node. ``relays``: the sets of which it has a relay log. ``since_ms`` is its own clock; 0: unknown.

    ``version``: of Millrace; "" if it is older than 0.2.0.
    """

    kind: TaskKind
    relays: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset()
    capacity: int | None = None
    host: str = ""
    since_ms: int = 0
    version: str = ""


def registered(nodes: Mapping[str, Node]) -> dict[str, Registered]:
    """The live workers by name. Skips nodes that can't be read; a field that can't be read has its default."""
    found: dict[str, Registered] = {}
    for name, node in nodes.items():
        try:
            plain = decode(node.content, f"workers/{name}")
            kind = TaskKind(str(plain.get("kind")))
        except (Fatal, ValueError):
            continue
        found[name] = Registered(
            kind=kind,
            relays=_texts(plain.get("relays")),
            labels=_texts(plain.get("labels")),
            capacity=_count(plain.get("capacity")),
            host=str(plain.get("host", "")),
            since_ms=_count(plain.get("since_ms")) or 0,
            version=str(plain.get("version", "")),
        )
    return found


def kinds_of(nodes: Mapping[str, Node]) -> dict[str, TaskKind]:
    """Worker → the kind of tasks it runs. Skips nodes that can't be read."""
    return {name: worker.kind for name, worker in registered(nodes).items()}


def _texts(plain: object) -> frozenset[str]:
    return frozenset(map(str, plain)) if isinstance(plain, list) else frozenset()


def _count(plain: object) -> int | None:
    return plain if isinstance(plain, int) and not isinstance(plain, bool) else None


def process_name(given: str) -> str:
    """``given``, or ``default_name()`` when it is empty. Fatal MR-4101 when it is not a valid name."""
    if given and not is_name(given):
        raise Fatal(
            "MR-4101",
            f"the name of this process is {given[:60]!r}, wanted {NAME_WANTED}",
            fix="Give --name such a name, or omit it: the default is host-pid.",
        )
    return given or default_name()


def default_name() -> str:
    """``host-pid``: unique among live workers, and shows the operator where the process runs."""
    host = "".join(
        c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in socket.gethostname()
    )
    return f"{host[:40].lstrip('._-') or 'host'}-{os.getpid()}"
