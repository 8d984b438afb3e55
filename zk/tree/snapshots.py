"""The requests for snapshots in ZooKeeper, for commands and owners (``schemas.requests.snapshot_request``)."""

from collections.abc import Callable

from millrace.errors import Fatal, Retryable
from schemas.requests.snapshot_request import SnapshotRequests, requests_of
from zk.client.session import Session
from zk.tree.paths import Tree, decode, encode

_TRIES = 10  # one is lost for each other process that writes between our read and our write


def read_requests(session: Session, tree: Tree, task: str) -> SnapshotRequests:
    """The requests; none without a node. Fatal MR-4011."""
    node = session.get(tree.snapshots(task))
    return SnapshotRequests() if node is None else _parsed(node.content, tree.snapshots(task))


def change_requests(
    session: Session,
    tree: Tree,
    task: str,
    change: Callable[[SnapshotRequests], SnapshotRequests],
) -> SnapshotRequests:
    """Apply ``change`` and return the result. Fatal MR-4011; Retryable MR-4007 if others write all the time."""
    path = tree.snapshots(task)
    for _ in range(_TRIES):
        node = session.get(path)
        before = SnapshotRequests() if node is None else _parsed(node.content, path)
        after = change(before)
        if after == before:
            return after
        content = encode(after.to_plain())
        if node is None:
            if session.create(path, content) is not None:
                return after
            continue
        try:
            session.put(path, content, version=node.version)
        except Retryable as error:
            if error.code != "MR-4007":
                raise
            continue
        return after
    raise Retryable("MR-4007", f"other processes keep writing {path}")


def _parsed(content: bytes, path: str) -> SnapshotRequests:
    try:
        return requests_of(decode(content, path))
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise Fatal("MR-4011", f"{path} can't be read: {error}") from error
