"""The lease of a task: an ephemeral owner node, and the epoch that it gives.

    step                      a crash or a lost session after it leaves
    1 read owner              nothing
    2 create owner            the node until the session ends; nobody else can own the task till then
    3 read generation         the same
    4 (running)               the same; receivers fence by epoch, so a late write of ours is refused
    5 delete owner            nothing

Guarantees: two leases never have the same epoch; a later one has the greater. A lease decides *placement* only:
between the end of our session on the server and the moment we hear of it two owners may run, and it is the fences of
Kafka and the target that keep the rows safe.
"""

from dataclasses import dataclass

from millrace.errors import Fatal, Fenced, Retryable
from zk.epoch import epoch_of, generation_of
from zk.session import Node, Session
from zk.tree import Tree, encode, text_field


class Lease:
    """One held (or lost) lease. Safe to ask from many threads."""

    def __init__(self, session: Session, tree: Tree, *, task: str, made: "_Made") -> None:
        self._session = session
        self._path = tree.owner(task)
        self._task = task
        self._czxid = made.czxid
        self._incarnation = made.incarnation
        self._epoch = made.epoch
        self._is_released = False

    @property
    def task(self) -> str:
        """The task's name."""
        return self._task

    @property
    def epoch(self) -> int:
        """The fencing number; see zk/epoch.py."""
        return self._epoch

    @property
    def incarnation(self) -> int:
        """The session's, when the lease was taken."""
        return self._incarnation

    def is_held(self) -> bool:
        """True until the lease is released or its session is known to be over (also while the ensemble is away)."""
        return not self._is_released and self._session.incarnation == self._incarnation

    def verify(self) -> None:
        """Ask ZooKeeper whether the owner node is still the one we made."""
        node = self._session.get(self._path)
        if self._is_released or node is None or node.czxid != self._czxid:
            owner = holder_of(node, self._path) if node else "nobody"
            raise Fenced(
                "MR-4003", f"the lease of {self._task} is lost: {owner} owns it", epoch=self._epoch
            )

    def release(self) -> None:
        """Give it up. Only after the runner's threads are joined; harmless when it is lost already."""
        self._is_released = True
        node = self._session.get(self._path)
        # between this read and the delete nobody else can make the node: it ends with our session or by our hand
        if node is not None and node.czxid == self._czxid:
            self._session.delete(self._path, version=node.version)


def acquire(session: Session, tree: Tree, *, task: str, worker: str) -> Lease:
    """A new lease with a new epoch, or Retryable MR-4004 while somebody else has it.

    A node that our own session left (an answer lost on the way, a release that could not be sent) is removed first:
    the caller runs at most one runner a task, so nothing of ours lives under it.
    """
    path = tree.owner(task)
    incarnation = (
        session.incarnation
    )  # before the node is made: a session lost in between is found out
    content = encode({"worker": worker})
    standing = session.get(path)
    if standing is not None and standing.ephemeral_owner == session.id:
        session.delete(path, version=standing.version)
    elif standing is not None:
        raise _held(path, standing)
    node = session.create(path, content, ephemeral=True)
    if node is None:
        raise Retryable("MR-4004", f"the lease of {task} was taken by somebody else just now")
    epoch = epoch_of(node.czxid, generation=generation_of(session, tree))
    return Lease(
        session,
        tree,
        task=task,
        made=_Made(czxid=node.czxid, incarnation=incarnation, epoch=epoch),
    )


def give_up(session: Session, tree: Tree, *, task: str) -> None:
    """Remove the owner node that our own session left, if there is one: only while nothing of ours runs the task."""
    path = tree.owner(task)
    node = session.get(path)
    if node is not None and node.ephemeral_owner == session.id:
        session.delete(path, version=node.version)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """The owner node we made, and under which session."""

    czxid: int
    incarnation: int
    epoch: int


def _held(path: str, node: Node) -> Retryable:
    holder = holder_of(node, path)
    return Retryable("MR-4004", f"{holder} still holds the lease", holder=holder)


def holder_of(node: Node, path: str) -> str:
    """Who made an owner node, for people: one that can't be read is somebody's all the same."""
    try:
        return text_field(node.content, path, "worker")
    except Fatal:
        return "an unreadable owner"
