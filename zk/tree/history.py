"""The former documents of each set and task, who wrote them, when, and by which command.

    history/task:shop-capture      {"format":1,"first":4,"last":23}
    └── 23                         {"format":1,"by":"ann@host","command":"millrace task create","document":{…}}

Every write of a document adds a revision in the same ZooKeeper transaction, a deletion one with ``"document":null``.
The time is the node's, by the ensemble's clock. The last ``REVISIONS_MAX`` revisions are kept, also of a deleted
document, but only of the last ``DELETED_MAX`` deleted ones.

A document that an older Millrace wrote has no revision. It becomes one, without an author, when it is replaced.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from millrace.errors import Fatal
from millrace.log import get_logger
from millrace.zk.client.session import Change, Create, Delete, Node, Put, Session
from millrace.zk.tree.documents import Document, DocumentKey, DocumentKind, plain_document
from millrace.zk.tree.paths import Tree, decode, encode

REVISIONS_MAX = 20  # of one document, each at most half a MiB
DELETED_MAX = 100  # deleted documents whose history is kept

Plain = dict[str, object]

log = get_logger("zk.tree.history")


@dataclass(frozen=True, slots=True)
class Author:
    """An operator and the command that writes a document; empty if unknown."""

    by: str = ""
    command: str = ""


@dataclass(frozen=True, slots=True)
class Revision:
    """One state of a document. ``document``: ``None`` after it was deleted."""

    number: int
    author: Author
    at_ms: int  # the ensemble's clock
    document: Plain | None


@dataclass(frozen=True, slots=True)
class _Head:
    """The numbers of a document's revisions, and the head node's version; no node: 1, 0 and -1."""

    first: int = 1
    last: int = 0
    version: int = -1


class History:
    """The histories of one cluster."""

    def __init__(self, session: Session, tree: Tree) -> None:
        self._session = session
        self._tree = tree

    def revisions(self, key: DocumentKey) -> tuple[Revision, ...]:
        """All revisions that are kept, the oldest first. Fatal MR-4011 if one can't be read."""
        head = self._head(key)
        found = (self._revision(key, number) for number in range(head.first, head.last + 1))
        return tuple(revision for revision in found if revision is not None)

    def changes(
        self, key: DocumentKey, before: Document | None, after: Document | None, author: Author
    ) -> list[Change]:
        """The changes that record this write, for the same commit."""
        head = self._head(key)
        last = self._last(key, head)
        written: list[Plain] = []
        known = plain_document(before) if before is not None else None
        if known is not None and (last is None or last.document != known):
            written.append(_content(known, Author()))
        written.append(_content(plain_document(after) if after is not None else None, author))
        new_last = head.last + len(written)
        new_first = max(head.first, new_last - REVISIONS_MAX + 1)
        content, path = (
            encode({"first": new_first, "last": new_last}),
            self._tree.history(key.kind, key.name),
        )
        changes: list[Change] = [
            Create(path, content) if head.version < 0 else Put(path, content, head.version)
        ]
        changes += [
            Create(f"{path}/{number}", encode(plain))
            for number, plain in enumerate(written, start=head.last + 1)
        ]
        return changes + [Delete(f"{path}/{number}", -1) for number in range(head.first, new_first)]

    def forgotten(self, deleted: set[DocumentKey]) -> Iterator[Change]:
        """The changes that remove the histories of the documents that were deleted longest ago.

        ``deleted``: those that the same commit deletes.
        """
        folder = self._tree.folder("history")
        alive = {
            f"{kind}:{name}"
            for kind in DocumentKind
            for name in self._session.children(self._tree.folder(f"{kind}s"))
        }
        gone = set(self._session.children(folder)) - alive
        surplus = len(gone) + len(deleted) - DELETED_MAX
        if surplus <= 0:
            return
        nodes = [(name, self._session.get(f"{folder}/{name}")) for name in gone]
        known = [(node.mzxid, name, node) for name, node in nodes if node is not None]
        for _, name, node in sorted(known, key=lambda each: each[0])[:surplus]:
            head, path = _head_of(node, name), f"{folder}/{name}"
            yield from (
                Delete(f"{path}/{number}", -1) for number in range(head.first, head.last + 1)
            )
            yield Delete(path, node.version)

    def _last(self, key: DocumentKey, head: _Head) -> Revision | None:
        try:
            return self._revision(key, head.last) if head.last else None
        except Fatal as error:  # a write that repairs a document must not fail for it
            log.warning("a revision is ignored", document=str(key), error=error)
            return None

    def _head(self, key: DocumentKey) -> _Head:
        path = self._tree.history(key.kind, key.name)
        node = self._session.get(path)
        return _Head() if node is None else _head_of(node, path)

    def _revision(self, key: DocumentKey, number: int) -> Revision | None:
        path = f"{self._tree.history(key.kind, key.name)}/{number}"
        node = self._session.get(path)
        if node is None:
            return None
        plain = decode(node.content, path)
        document = plain.get("document")
        if document is not None and not isinstance(document, dict):
            raise Fatal("MR-4011", f"{path}: document must be an object")
        author = Author(str(plain.get("by", "")), str(plain.get("command", "")))
        return Revision(number, author, node.modified_ms, document)


def _head_of(node: Node, path: str) -> _Head:
    plain = decode(node.content, path)
    first, last = plain.get("first"), plain.get("last")
    if not isinstance(first, int) or not isinstance(last, int):
        raise Fatal("MR-4011", f"{path}: first and last must be integers")
    return _Head(first, last, node.version)


def _content(document: Plain | None, author: Author) -> Plain:
    return {"by": author.by, "command": author.command, "document": document}
