"""The documents of a cluster at one moment, an operator's edits, and the rules between documents. Pure: no session.

A rule between documents (one writer for a topic, a set for each task) holds for the documents after all edits. So
several edits are checked as a whole: a set and its tasks may come together, a topic may move from one task to another.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum

from millrace.errors import Fatal
from millrace.schemas.documents import (
    ApplyTask,
    CaptureTask,
    PublishTask,
    Reader,
    SetDocument,
    TaskDocument,
    address_of,
    plain_set,
    plain_task,
    set_of,
)
from millrace.schemas.documents.topic_names import may_be_equal, written_topics
from millrace.zk.client.session import Node
from millrace.zk.tree.entries import SetEntry, TaskEntry, UnreadableEntry, set_entry, task_entry

Document = SetDocument | TaskDocument
Entry = SetEntry | TaskEntry | UnreadableEntry


class DocumentKind(StrEnum):
    """The kinds of documents."""

    SET = "set"
    TASK = "task"


@dataclass(frozen=True, slots=True, order=True)
class DocumentKey:
    """One document of a cluster."""

    kind: DocumentKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    @classmethod
    def of(cls, document: Document) -> "DocumentKey":
        """The key of a document."""
        is_set = isinstance(document, SetDocument)
        return cls(DocumentKind.SET if is_set else DocumentKind.TASK, document.name)


def capture_task_among(documents: Iterable[object], task: Reader) -> CaptureTask:
    """The one of these documents that captures to the topic that this task reads, by any address of the same brokers.

    Fatal MR-4203 if there is none.
    """
    for document in documents:
        if isinstance(document, CaptureTask) and document.output.is_same_topic(task.source):
            return document
    raise Fatal("MR-4203", f"no task captures to the topic {task.source.topic}")


def set_key(name: str) -> DocumentKey:
    """The key of a set."""
    return DocumentKey(DocumentKind.SET, name)


def task_key(name: str) -> DocumentKey:
    """The key of a task."""
    return DocumentKey(DocumentKind.TASK, name)


@dataclass(frozen=True, slots=True)
class Edit:
    """One document to write; ``None`` deletes it."""

    key: DocumentKey
    document: Document | None

    @classmethod
    def to(cls, document: Document) -> "Edit":
        """Write this document."""
        return cls(DocumentKey.of(document), document)


@dataclass(frozen=True, slots=True)
class Documents:
    """Documents as they were while ``guard`` had its version: every write of a document raises it."""

    guard: Node
    entries: Mapping[DocumentKey, Entry]

    def document(self, key: DocumentKey) -> Document | None:
        """The document; ``None`` if there is none that can be read."""
        entry = self.entries.get(key)
        return None if entry is None or isinstance(entry, UnreadableEntry) else entry.document

    def after(self, edits: Sequence[Edit]) -> "dict[DocumentKey, Document | Fatal]":
        """The documents after these edits; a document that can't be read is its error."""
        found: dict[DocumentKey, Document | Fatal] = {
            key: entry.error if isinstance(entry, UnreadableEntry) else entry.document
            for key, entry in self.entries.items()
        }
        for edit in edits:
            if edit.document is None:
                found.pop(edit.key, None)
            else:
                found[edit.key] = edit.document
        return found


def entry_of(key: DocumentKey, node: Node) -> Entry:
    """Read a document's node."""
    read = set_entry if key.kind is DocumentKind.SET else task_entry
    return read(node, name=key.name)


def plain_document(document: Document) -> dict[str, object]:
    """A document as plain values, in the fields of the YAML."""
    return plain_set(document) if isinstance(document, SetDocument) else plain_task(document)


def refusals(seen: Documents, edits: Sequence[Edit]) -> Iterator[tuple[DocumentKey, Fatal]]:
    """Every reason against these edits, with the document that it is about.

    MR-4104: a task's set does not exist; MR-4105, MR-4108, MR-4109, MR-4111: two tasks exclude each other; MR-4140: a
    deleted set is in use. Tasks that are not edited are not judged.
    """
    after = seen.after(edits)
    tasks = [each for each in after.values() if isinstance(each, TaskDocument)]
    for edit in edits:
        task = edit.document
        if task is None and edit.key.kind is DocumentKind.SET:
            users = sorted(each.name for each in tasks if set_of(each) == edit.key.name)
            if users:
                what = f"{edit.key} is used by task {', task '.join(users)}"
                deletions = ", ".join(f"`millrace task delete {name}`" for name in users)
                fix = f"Delete these tasks first ({deletions}), or give them another set."
                yield edit.key, Fatal("MR-4140", what, fix=fix)
        elif isinstance(task, TaskDocument):
            its_set = after.get(set_key(set_of(task)))
            if set_of(task) and its_set is None:
                yield edit.key, Fatal("MR-4104", _no_set(set_of(task), after))
            elif isinstance(its_set, Fatal):
                yield edit.key, its_set
            for other in tasks:
                error = _conflict(task, other) if other.name != task.name else None
                if error is not None:
                    yield edit.key, error


def _no_set(name: str, after: Mapping[DocumentKey, object]) -> str:
    known = [key.name for key in after if key.kind is DocumentKind.SET]
    nearest = get_close_matches(name, known, n=1)
    return f"there is no set {name!r}" + (f"; did you mean {nearest[0]!r}?" if nearest else "")


def _conflict(task: TaskDocument, other: TaskDocument) -> Fatal | None:
    """The reason why both tasks can't exist."""
    topic = address_of(task).topic
    if isinstance(task, PublishTask) or isinstance(other, PublishTask):
        return _one_topic(task, other)
    if not address_of(task).is_same_topic(address_of(other)):
        return None
    if isinstance(task, CaptureTask) and isinstance(other, CaptureTask):
        return Fatal("MR-4105", f"task {other.name} writes the topic {topic} already")
    if set_of(task) != set_of(other):
        return None
    if isinstance(task, ApplyTask) and isinstance(other, ApplyTask):
        what = f"task {other.name} applies the topic {topic} to the set {other.target} already"
        return Fatal("MR-4108", what)
    does = "captures it to" if isinstance(other, CaptureTask) else "applies to it"
    what = f"{set_of(task)} is source and target: task {other.name} {does} the topic {topic}"
    return Fatal("MR-4109", what)


def _one_topic(task: TaskDocument, other: TaskDocument) -> Fatal | None:
    """MR-4111 if one of them, a publish task, may write a topic that the other one writes, or reads as a set topic."""
    if not address_of(task).brokers.shares_address(address_of(other).brokers):
        return None
    for topic in written_topics(task):
        for theirs in written_topics(other):
            if may_be_equal(topic, theirs):
                what = f"it writes {topic}, and task {other.name} writes {theirs}"
                return Fatal("MR-4111", f"{task.name}: {what}, which may be the same topic")
    for writer, reader in ((task, other), (other, task)):
        read = address_of(reader).topic
        for topic in written_topics(writer):
            if isinstance(writer, PublishTask) and may_be_equal(topic, read):
                what = f"{writer.name} writes {topic}, which may be {read}, the set topic of {reader.name}"
                return Fatal("MR-4111", what)
    return None
