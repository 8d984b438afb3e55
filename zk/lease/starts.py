"""Counts the worker processes that a task killed. The count is in ZooKeeper, so it survives each process.

    starts/<task>   {"format":1,"revision":…,"process":"…","workers":["w1","w2","w3"]}

    step                 a crash after it leaves
    1 begin              the node; its last worker is this one, the workers before it were killed, in a row
    2 the task runs      the same; a worker that finds a node of another process counts that process as killed
    3 end                nothing; the run ended with or without an error, or has moved rows for a while

Guarantees: a task that killed ``KILLED_MAX`` processes in a row under one revision is not started again (Fatal MR-4015)
until an operator acts, which gives a new revision. From ``TRIAL_KILLED`` kills on, a worker starts such tasks one
after another (``zk.run.supervisor``); this clears the tasks that only shared a process with the guilty one. If a
session is lost, the process that still lives does not count its own run as a kill, but another worker may.
Not done here: finding a task that kills its process after its first rows, or that kills the JVM of an apply driver.
"""

import uuid
from dataclasses import dataclass

from millrace.errors import Fatal, Retryable
from zk.client.session import Node, Session
from zk.tree.paths import Tree, decode, encode

TRIAL_KILLED = 2
KILLED_MAX = 5


class Starts:
    """The task starts of one worker process."""

    def __init__(self, session: Session, tree: Tree, *, worker: str) -> None:
        self._session = session
        self._tree = tree
        self._worker = worker
        self._process = (
            uuid.uuid4().hex
        )  # the worker's name is not enough: its next process has the same

    def killed(self, task: str, *, revision: int) -> tuple[str, ...]:
        """The workers that the task killed in a row under this revision, oldest first."""
        return self._killed(self._session.get(self._tree.starts(task)), revision)

    def begin(self, task: str, *, revision: int) -> None:
        """Record that the task starts here. Fatal MR-4015 when it has killed ``KILLED_MAX`` processes."""
        path = self._tree.starts(task)
        node = self._session.get(path)
        killed = self._killed(node, revision)
        if len(killed) >= KILLED_MAX:
            raise Fatal(
                "MR-4015",
                f"{task} killed the process of its worker {len(killed)} times in a row: {', '.join(killed)}",
            )
        plain = {"revision": revision, "process": self._process, "workers": [*killed, self._worker]}
        if node is not None:
            self._session.put(path, encode(plain), version=node.version)
        elif self._session.create(path, encode(plain)) is None:
            raise Retryable("MR-4007", f"another worker has just created {path}")

    def end(self, task: str) -> None:
        """Delete the record of this process: its run did not kill it."""
        path = self._tree.starts(task)
        node = self._session.get(path)
        start = _start(node)
        if node is not None and start is not None and start.process == self._process:
            self._session.delete(path, version=node.version)

    def _killed(self, node: Node | None, revision: int) -> tuple[str, ...]:
        start = _start(node)
        if start is None or start.revision != revision:
            return ()
        return start.workers[:-1] if start.process == self._process else start.workers


@dataclass(frozen=True, slots=True)
class _Start:
    """A node of ``starts``."""

    revision: int
    process: str
    workers: tuple[str, ...]


def _start(node: Node | None) -> _Start | None:
    """The content of a node; ``None`` when it is missing or can't be read, which counts as no kill."""
    if node is None:
        return None
    try:
        plain = decode(node.content, "starts")
    except Fatal:
        return None
    revision, workers = plain.get("revision"), plain.get("workers")
    if not isinstance(revision, int) or not isinstance(workers, list):
        return None
    return _Start(revision, str(plain.get("process")), tuple(map(str, workers)))
