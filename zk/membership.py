"""Which workers are alive: an ephemeral node each, under a name that an operator can recognise.

Guarantees: one living session a name (MR-4009 for the second); after a lost session ``ensure`` registers again.
"""

import os
import socket
from collections.abc import Mapping

from millrace.errors import Fatal, Retryable
from schemas.documents import NAME_WANTED, TaskKind, is_name
from zk.session import Node, Session
from zk.tree import Tree, decode, encode


class Membership:
    """This process as a worker."""

    def __init__(self, session: Session, tree: Tree, *, name: str, kind: TaskKind) -> None:
        self._session = session
        self._path = tree.worker(name)
        self._name = name
        self._content = encode({"kind": kind.value})
        self._registered_in = -1

    def ensure(self) -> None:
        """Be registered in the current session; Retryable MR-4009 while another session has the name."""
        incarnation = self._session.incarnation
        if self._registered_in == incarnation:
            return
        if self._session.create(self._path, self._content, ephemeral=True) is None:
            standing = self._session.get(self._path)
            if standing is None or standing.ephemeral_owner != self._session.id:
                raise Retryable("MR-4009", f"a worker named {self._name} is registered")
        self._registered_in = incarnation


def kinds_of(nodes: Mapping[str, Node]) -> dict[str, TaskKind]:
    """Living workers and what they can run; nodes that can't be read are no workers."""
    found: dict[str, TaskKind] = {}
    for name, node in nodes.items():
        try:
            found[name] = TaskKind(str(decode(node.content, f"workers/{name}").get("kind")))
        except (Fatal, ValueError):
            continue
    return found


def process_name(given: str) -> str:
    """What this process is called: as ``given``, ``default_name()`` when that is empty; Fatal MR-4101 for no name."""
    if given and not is_name(given):
        raise Fatal(
            "MR-4101",
            f"the name of this process is {given[:60]!r}, wanted {NAME_WANTED}",
            fix="Give --name such a name, or none: host-pid is taken then.",
        )
    return given or default_name()


def default_name() -> str:
    """``host-pid``: unique among living workers, and where to look."""
    host = "".join(
        c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in socket.gethostname()
    )
    return f"{host[:40].lstrip('._-') or 'host'}-{os.getpid()}"
