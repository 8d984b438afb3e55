"""The live workers: each registers an ephemeral node under its name.

Guarantees: a name belongs to one session at a time (the second gets MR-4009). After a lost session ``ensure``
registers again.
"""

import os
import socket
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass

from millrace.errors import Fatal, Retryable
from schemas.documents import NAME_WANTED, TaskKind, is_name
from zk.client.session import Node, Session
from zk.tree.paths import Tree, decode, encode

RELAYS_MAX = 1000  # with names of at most 63 bytes: 64 KiB; ZooKeeper accepts 1 MiB

Relays = Callable[[], Collection[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerIdentity:
    """One worker. ``relays`` returns the sets of which it has a relay log; it is called at each registration."""

    name: str
    kind: TaskKind
    relays: Relays = tuple


class Membership:
    """The registration of this process as a worker."""

    def __init__(self, session: Session, tree: Tree, worker: WorkerIdentity) -> None:
        self._session = session
        self._path = tree.worker(worker.name)
        self._worker = worker
        self._registered_in = -1

    def ensure(self) -> None:
        """Register in the current session, if not done yet. Retryable MR-4009 while another session has the name."""
        incarnation = self._session.incarnation
        if self._registered_in == incarnation:
            return
        relays = sorted(self._worker.relays())[:RELAYS_MAX]
        content = encode({"kind": self._worker.kind.value, "relays": relays})
        if self._session.create(self._path, content, ephemeral=True) is None:
            registered = self._session.get(self._path)
            if registered is None or registered.ephemeral_owner != self._session.id:
                raise Retryable("MR-4009", f"a worker named {self._worker.name} is registered")
        self._registered_in = incarnation


def kinds_of(nodes: Mapping[str, Node]) -> dict[str, TaskKind]:
    """Worker → the kind of tasks it runs. Skips nodes that can't be read."""
    found: dict[str, TaskKind] = {}
    for name, node in nodes.items():
        try:
            found[name] = TaskKind(str(decode(node.content, f"workers/{name}").get("kind")))
        except (Fatal, ValueError):
            continue
    return found


def relay_holders(nodes: Mapping[str, Node]) -> dict[str, set[str]]:
    """Set → the workers that had a relay log of it when they registered. Skips nodes that can't be read."""
    found: dict[str, set[str]] = {}
    for name, node in nodes.items():
        with suppress(Fatal):
            relays = decode(node.content, f"workers/{name}").get("relays")
            for set_name in relays if isinstance(relays, list) else ():
                found.setdefault(str(set_name), set()).add(name)
    return found


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
