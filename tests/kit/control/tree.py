"""Documents as read from a tree and as wanted by an operator, without a session."""

from millrace.schemas.documents import SetDocument
from millrace.zk.changes.changes import Wanted
from millrace.zk.client.session import Node
from millrace.zk.tree.documents import Document, DocumentKey, Documents, set_key, task_key
from millrace.zk.tree.entries import Desired, SetEntry, TaskEntry

GUARD = Node(b"", version=3, czxid=1, mzxid=1, modified_ms=0, ephemeral_owner=0)


def documents_of(*documents: Document) -> Documents:
    """A cluster that has these documents."""
    return Documents(
        GUARD,
        {
            DocumentKey.of(document): (
                SetEntry(document, 0, 1, 1)
                if isinstance(document, SetDocument)
                else TaskEntry(Desired(document), 0, 1, 1)
            )
            for document in documents
        },
    )


def wanted_of(*documents: Document, prune: bool = False, broken: tuple[str, ...] = ()) -> Wanted:
    """These documents; the names of ``broken`` are those of sets and tasks."""
    keys = frozenset(key(name) for name in broken for key in (set_key, task_key))
    return Wanted({DocumentKey.of(document): document for document in documents}, keys, prune)
