"""The lease of a task: an ephemeral owner node, and the epoch derived from it.

    step                      a crash or a lost session after it leaves
    1 read owner              nothing
    2 create owner            the node until the session ends; no other worker can own the task until then
    3 read generation         the same
    4 (running)               the same; Kafka and the target compare epochs and refuse our late writes
    5 delete owner            nothing

Guarantees: no two leases have the same epoch; a later lease has a greater one. A lease only decides *placement*. When
the server ends our session, another worker can own the task before we learn of it, so two owners may run for a while.
The fences of Kafka and the target protect the rows.
"""

from dataclasses import dataclass

from millrace.errors import Fatal, Fenced, Retryable
from millrace.zk.client.session import Node, Session
from millrace.zk.lease.epoch import epoch_of, generation_of
from millrace.zk.tree.paths import Tree, encode, text_field


class Lease:
    """One lease, held or lost. Thread-safe."""

    def __init__(self, session: Session, tree: Tree, *, task: str, node: "_OwnerNode") -> None:
        self._session = session
        self._path = tree.owner(task)
        self.task = task
        self.epoch = node.epoch  # the fencing number (``zk.lease.epoch``)
        self.incarnation = node.incarnation  # of the session when the lease was acquired
        self._czxid = node.czxid
        self._is_released = False

    def is_held(self) -> bool:
        """True until the lease is released or its session is known to be over; so also while the ensemble is away."""
        return not self._is_released and self._session.incarnation == self.incarnation

    def verify(self) -> None:
        """Ask ZooKeeper whether the owner node is still ours. Fenced MR-4003 if not."""
        node = self._session.get(self._path)
        if self._is_released or node is None or node.czxid != self._czxid:
            owner = f"{holder_of(node, self._path)} owns it" if node else "it has no owner"
            raise Fenced("MR-4003", f"the lease of {self.task} is lost: {owner}", epoch=self.epoch)

    def release(self) -> None:
        """Delete the owner node, if it is ours. Call it only after the runner's threads are joined."""
        self._is_released = True
        node = self._session.get(self._path)
        # no other worker can replace the node after this read: only we or the end of our session delete it
        if node is not None and node.czxid == self._czxid:
            self._session.delete(self._path, version=node.version)


def acquire(session: Session, tree: Tree, *, task: str, worker: str) -> Lease:
    """A new lease with a new epoch. Retryable MR-4004 while another worker holds it.

    Our own session may have left an owner node: a creation without an answer, or a release that could not be sent.
    It is deleted first. This is safe because the caller has at most one runner for each task.
    """
    path = tree.owner(task)
    incarnation = session.incarnation  # read first, so that a session lost meanwhile is noticed
    content = encode({"worker": worker})
    owner = session.get(path)
    if owner is not None and owner.ephemeral_owner == session.id:
        session.delete(path, version=owner.version)
    elif owner is not None:
        holder = holder_of(owner, path)
        raise Retryable("MR-4004", f"{holder} still holds the lease", holder=holder)
    node = session.create(path, content, ephemeral=True)
    if node is None:
        raise Retryable("MR-4004", f"another worker has just acquired the lease of {task}")
    epoch = epoch_of(node.czxid, generation=generation_of(session, tree))
    return Lease(
        session,
        tree,
        task=task,
        node=_OwnerNode(czxid=node.czxid, incarnation=incarnation, epoch=epoch),
    )


def release_leftover(session: Session, tree: Tree, *, task: str) -> None:
    """Delete an owner node that our own session left. Call it only while this process does not run the task."""
    path = tree.owner(task)
    node = session.get(path)
    if node is not None and node.ephemeral_owner == session.id:
        session.delete(path, version=node.version)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OwnerNode:
    """The owner node we created, and the session's incarnation."""

    czxid: int
    incarnation: int
    epoch: int


def holder_of(node: Node, path: str) -> str:
    """The worker that an owner node names; a placeholder when the node can't be read."""
    try:
        return text_field(node.content, path, "worker")
    except Fatal:
        return "an unreadable owner"
