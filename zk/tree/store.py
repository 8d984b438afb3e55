"""Sets and tasks in the tree: create, read, replace, pause, resume, delete, and write several at once.

Guarantees
- Every change is a compare-and-set on the version that was read (Retryable MR-4007 when another process changed it).
- Every write of a document also raises the version of the folder ``tasks``, in the same ZooKeeper transaction. So the
  rules between documents, such as one writer for a topic, are checked against what is there at the write: two tasks
  that exclude each other are never both created, and no set is deleted while a task that uses it is created.
- The former document is kept, in the same ZooKeeper transaction (``zk.tree.history``).
- Creating the same document twice is no error.
- An invalid name never becomes a path (MR-4104).

An older Millrace raises that version only for tasks. It may have left two capture tasks for one topic; the scheduler
runs the one that was created first.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from enum import Enum
from typing import TypeVar
from uuid import uuid4

from millrace.errors import Fatal, Retryable
from millrace.faults import fault_point, register
from millrace.schemas.documents import (
    CaptureTask,
    Directives,
    Reader,
    SetDocument,
    TaskDocument,
    is_name,
    names_of,
    set_of,
)
from millrace.schemas.plain import from_plain, to_plain
from millrace.schemas.requests.decision import Decision
from millrace.schemas.requests.snapshot_request import SnapshotRequests
from millrace.schemas.status import TaskReport
from millrace.zk.client.session import Change, Create, Delete, Node, Put, Session
from millrace.zk.tree.documents import (
    Document,
    DocumentKey,
    DocumentKind,
    Documents,
    Edit,
    capture_task_among,
    entry_of,
    refusals,
    set_key,
    task_key,
)
from millrace.zk.tree.entries import (
    NODE_BYTES_MAX,
    Desired,
    SetEntry,
    TaskEntry,
    UnreadableEntry,
    decided,
    directives_content,
    directives_of,
    paused,
    resumed,
    set_content,
    set_entries,
    set_entry,
    task_content,
    task_entries,
    task_entry,
)
from millrace.zk.tree.history import Author, History, Revision
from millrace.zk.tree.paths import Tree, decode, encode, text_field
from millrace.zk.tree.reports import read_status

WRITE_TRIES = 10  # one is lost for each document that is written between our check and our write
COMMIT_BYTES_MAX = 1_000_000  # ZooKeeper's default limit of a request is 1,048,575 bytes
CHANGE_BYTES = 200  # of one change without its path and content: operation, lengths, access rules

BEFORE_COMMIT = register("documents.before_commit")
AFTER_COMMIT = register("documents.after_commit")

T = TypeVar("T")


class Outcome(Enum):
    """The effect of creating a document."""

    CREATED = "created"
    REPLACED = "replaced"
    UNCHANGED = "unchanged"


class Store:
    """The documents of one cluster."""

    def __init__(self, session: Session, tree: Tree, *, author: Author = Author()) -> None:  # noqa: B008 - frozen
        """``author`` is recorded with each document that is written."""
        self._session = session
        self._tree = tree
        self._author = author
        self._history = History(session, tree)

    def sets(self) -> Mapping[str, SetEntry | UnreadableEntry]:
        """Every set, sorted by name."""
        return set_entries(self._session.folder(self._tree.folder("sets")))

    def tasks(self) -> Mapping[str, TaskEntry | UnreadableEntry]:
        """Every task, sorted by name."""
        return task_entries(self._session.folder(self._tree.folder("tasks")))

    def set_entry(self, name: str) -> SetEntry:
        """One set. Fatal MR-4104 when it does not exist; the read error when its node is malformed."""
        entry = set_entry(self._node(set_key(name)), name=name)
        if isinstance(entry, UnreadableEntry):
            raise entry.error
        return entry

    def set_document(self, name: str) -> SetDocument:
        """One set's document, for runners. Retryable while it is missing or malformed.

        Not Fatal: an operator fixes the set without changing its tasks. A blocked task would keep its revision and
        wait for another action.
        """
        try:
            return self.set_entry(name).document
        except Fatal as error:
            raise Retryable(error.code, error.message, fix=error.fix, **error.context) from error

    def capture_task_of(self, task: Reader) -> CaptureTask:
        """The task that captures to the topic that is read, for runners. Retryable MR-4203 while there is none."""
        entries = self.tasks().values()
        try:
            return capture_task_among(
                (e.document for e in entries if isinstance(e, TaskEntry)), task
            )
        except Fatal as error:
            raise Retryable(error.code, error.message, fix=error.fix, **error.context) from error

    def directives(self, set_name: str) -> Directives:
        """An operator's wishes about the members of a set, for runners. Retryable while ZooKeeper is away."""
        path = self._tree.directives(set_name)
        node = self._session.get(path) if is_name(set_name) else None
        return Directives() if node is None else directives_of(node.content, path)

    def direct(self, set_name: str, change: Callable[[Directives], Directives]) -> Directives:
        """Change the wishes about a set's members; returns the new ones. Fatal MR-4104 if there is no such set."""
        self.set_entry(set_name)
        path = self._tree.directives(set_name)
        node = self._session.get(path)
        before = Directives() if node is None else directives_of(node.content, path)
        after = change(before)
        if node is not None:
            self._session.put(path, directives_content(after), version=node.version)
        elif self._session.create(path, directives_content(after)) is None:
            raise Retryable("MR-4007", f"another process has just created {path}")
        return after

    def installation(self) -> str:
        """The id of this installation, made at the first call; Fatal MR-4011 where it can not be read."""
        path = self._tree.installation
        node = self._session.get(path)
        if node is None:
            self._session.create(path, encode({"id": uuid4().hex}))  # nothing where it exists
            node = self._session.get(path)
        if node is None:
            raise Retryable("MR-4007", f"{path} was deleted just now")
        return text_field(node.content, path, "id")

    def last_report(self, task: TaskDocument) -> TaskReport | None:
        """The last report on this work by the task's current or an earlier owner; for runners.

        Retryable MR-4104 when the task was deleted meanwhile: without its node, the report can't be attributed.
        """
        node = self._session.get(self._tree.task(task.name))
        if node is None:
            raise Retryable("MR-4104", f"task {task.name} was deleted while it started")
        saved = read_status(self._session, self._tree, task.name)
        is_same_work = saved is not None and saved.is_of(task, created=node.czxid)
        return saved.report if saved is not None and is_same_work else None

    def positions_of(self, set_name: str, *, is_complete: bool = False) -> Mapping[str, str]:
        """By task, the GTID set that each capture task of a set has published, or its start while nothing was reported.

        Empty: the task begins at the first binlog that there is. A task that can't be read is left out;
        ``is_complete``: its error is raised, because it may be one of the set.
        """
        found = {}
        for entry in self.tasks().values():
            if isinstance(entry, UnreadableEntry):
                if is_complete:
                    raise entry.error
                continue
            if not isinstance(entry.document, CaptureTask):
                continue
            task = entry.document
            if task.set_name == set_name:
                saved = read_status(self._session, self._tree, task.name)
                is_known = saved is not None and saved.is_of(task, created=entry.created)
                reported = saved.report.gtid_set if saved is not None and is_known else ""
                found[task.name] = reported or task.start.gtid_set
        return found

    def task_entry(self, name: str) -> TaskEntry:
        """One task. Fatal MR-4104 when it does not exist; the read error when its node is malformed."""
        entry = task_entry(self._node(task_key(name)), name=name)
        if isinstance(entry, UnreadableEntry):
            raise entry.error
        return entry

    def documents(self) -> Documents:
        """All sets and tasks."""
        return self._read(all_sets=True, all_tasks=True)

    def write(self, seen: Documents, edits: Sequence[Edit]) -> None:
        """Make these edits of ``seen`` in one ZooKeeper transaction, or none.

        Fatal with the first of ``refusals``; MR-4145 if they are too large. Retryable MR-4007 if a document was written
        since ``seen`` was read, or one of these tasks was paused or resumed. A paused task stays paused.
        """
        for _, error in refusals(seen, edits):
            raise error
        guard = self._tree.folder("tasks")
        changes: list[Change] = [Put(guard, seen.guard.content, seen.guard.version)]
        for edit in edits:
            changes += self._changes(seen, edit)
        deleted = {edit.key for edit in edits if edit.document is None}
        if deleted:
            changes += self._history.forgotten(deleted)
        _check_size(changes)
        fault_point(BEFORE_COMMIT)
        self._session.commit(*changes)
        fault_point(AFTER_COMMIT)

    def revisions(self, key: DocumentKey) -> tuple[Revision, ...]:
        """The revisions of a document that are kept, the oldest first. Fatal MR-4104 if there is none and never was."""
        found = self._history.revisions(key) if is_name(key.name) else ()
        if not found:
            self._node(key)
        return found

    def create_set(self, document: SetDocument, *, replace: bool = False) -> Outcome:
        """Create a set. Fatal MR-4103 when another one of its name exists, unless ``replace``."""
        key = DocumentKey.of(document)
        return retried(lambda: self._put(self._read(key), document, replace=replace))

    def create_task(self, task: TaskDocument, *, replace: bool = False) -> Outcome:
        """Create a task, or replace one. A replaced task that was paused stays paused.

        Fatal MR-4103 when another task of its name exists, unless ``replace``; MR-4104 when its set does not exist;
        MR-4105 when another task captures to its topic; MR-4108 when another task applies its topic to the same
        target; MR-4109 when it would apply a topic to the set from which the topic is captured.
        """
        its_set = set_key(set_of(task))

        def create() -> Outcome:
            seen = self._read(its_set, all_tasks=True)
            if set_of(task) and its_set not in seen.entries:
                raise self._missing(its_set)
            return self._put(seen, task, replace=replace)

        return retried(create)

    def delete_set(self, name: str) -> None:
        """Delete a set and the wishes about its members. Fatal MR-4140 while a task uses it."""
        self._delete(set_key(name), all_tasks=True)

    def delete(self, name: str) -> None:
        """Delete the task. Its owner stops it and the scheduler deletes its other nodes. Topic and target stay."""
        self._delete(task_key(name))

    def pause(self, name: str, *, by: str) -> None:
        """Ask the worker to stop the task. A task that is paused already keeps its ``paused_by``."""
        entry = self.task_entry(name)
        if not entry.desired.paused_by:
            self._write_task(name, paused(entry.desired, by=by), entry.version)

    def resume(self, name: str) -> None:
        """Ask the worker to run the task: ends a pause, and makes a blocked or waiting task try again now."""
        entry = self.task_entry(name)
        self._write_task(name, resumed(entry.desired), entry.version)

    def decide(self, entry: TaskEntry, decision: Decision) -> None:
        """Leave ``decision`` for the task's next owner. A blocked task starts again, a paused one when it is resumed.

        Fatal MR-4180 while another one waits. Retryable MR-4007 if the task was changed since ``entry`` was read.
        """
        name = entry.document.name
        if entry.desired.decision is not None:
            raise _waits(name, entry.desired.decision)
        desired = decided(entry.desired, decision)
        if (size := len(task_content(desired))) > NODE_BYTES_MAX:
            what = f"with this GTID set the node of {name} has {size} bytes"
            raise Fatal("MR-4185", what, task=name)
        self._write_task(name, desired, entry.version)

    def withdraw(self, entry: TaskEntry) -> Decision:
        """Remove the decision that waits; returns it. Fatal MR-4181 if there is none. Retryable as ``decide``."""
        waiting = entry.desired.decision
        if waiting is None:
            none = Fatal("MR-4181", f"no decision waits for the task {entry.document.name}")
            raise none.name(**names_of(entry.document))
        self._write_task(entry.document.name, decided(entry.desired, None), entry.version)
        return waiting

    def waiting_decision(self, task: TaskDocument) -> Decision | None:
        """The decision that the owner must execute before it publishes; for runners. Retryable as ``last_report``."""
        return self._own_entry(task).desired.decision

    def end_decision(self, task: TaskDocument, decision: Decision) -> None:
        """Remove ``decision``, which is in the topic; for runners. Does nothing if it is gone. Retryable MR-4007."""
        entry = self._own_entry(task)
        waiting = entry.desired.decision
        if waiting is not None and waiting.id == decision.id:
            self._write_task(task.name, decided(entry.desired, None), entry.version)

    def snapshot_requests(self, task: str) -> SnapshotRequests:
        """The operators' requests for snapshots of a task; none without a node. Fatal MR-4011."""
        path = self._tree.snapshots(task)
        node = self._session.get(path)
        return SnapshotRequests() if node is None else _parsed(node.content, path)

    def change_snapshots(
        self, task: str, change: Callable[[SnapshotRequests], SnapshotRequests]
    ) -> SnapshotRequests:
        """Apply ``change``; the result. Fatal MR-4011; Retryable MR-4007 if other processes write all the time."""
        path = self._tree.snapshots(task)

        def changed() -> SnapshotRequests:
            node = self._session.get(path)
            before = SnapshotRequests() if node is None else _parsed(node.content, path)
            after = change(before)
            if after == before:
                return after
            content = encode(to_plain(after))
            if node is not None:
                self._session.put(path, content, version=node.version)
            elif self._session.create(path, content) is None:
                raise Retryable("MR-4007", f"another process has just created {path}")
            return after

        return retried(changed)

    def _own_entry(self, task: TaskDocument) -> TaskEntry:
        """The entry of a running task. Retryable while it is missing or malformed."""
        try:
            return self.task_entry(task.name)
        except Fatal as error:
            raise Retryable(error.code, error.message, fix=error.fix, **error.context) from error

    def _delete(self, key: DocumentKey, *, all_tasks: bool = False) -> None:
        def delete() -> None:
            if not is_name(key.name):
                raise self._missing(key)
            seen = self._read(key, all_tasks=all_tasks)
            if key not in seen.entries:
                raise self._missing(key)
            self.write(seen, [Edit(key, None)])

        retried(delete)

    def _put(self, seen: Documents, document: Document, *, replace: bool) -> Outcome:
        """Check and write one document."""
        edit = Edit.to(document)
        for _, error in refusals(seen, [edit]):
            raise error
        if seen.document(edit.key) == document:
            return Outcome.UNCHANGED
        is_new = edit.key not in seen.entries
        if not is_new and not replace:
            raise Fatal(
                "MR-4103",
                f"{edit.key} exists with other contents",
                fix=f"Compare with `millrace {edit.key.kind} show {edit.key.name}`. Add --replace to replace it.",
            )
        self.write(seen, [edit])
        return Outcome.CREATED if is_new else Outcome.REPLACED

    def _read(
        self, *keys: DocumentKey, all_sets: bool = False, all_tasks: bool = False
    ) -> Documents:
        """These documents, as far as they exist. The guard is read first: a later write raises its version."""
        guard = self._session.get(self._tree.folder("tasks"))
        if guard is None:
            raise Retryable("MR-4007", f"{self._tree.folder('tasks')} does not exist")
        wanted = [key for key in keys if is_name(key.name)]
        for kind, is_wanted in ((DocumentKind.SET, all_sets), (DocumentKind.TASK, all_tasks)):
            if is_wanted:
                names = self._session.children(self._tree.folder(f"{kind}s"))
                wanted += [DocumentKey(kind, name) for name in names]
        nodes = {key: self._session.get(self._path(key)) for key in wanted}
        return Documents(
            guard, {key: entry_of(key, node) for key, node in nodes.items() if node is not None}
        )

    def _changes(self, seen: Documents, edit: Edit) -> Iterable[Change]:
        """The changes of one edit: its node, its history, and the wishes about a set or task that is deleted."""
        path, entry = self._path(edit.key), seen.entries.get(edit.key)
        before = seen.document(edit.key)
        yield from self._history.changes(edit.key, before, edit.document, self._author)
        if edit.document is None:
            if entry is not None:
                yield Delete(path, entry.version)
            is_set = edit.key.kind is DocumentKind.SET
            name = edit.key.name
            wishes = self._tree.directives(name) if is_set else self._tree.snapshots(name)
            node = self._session.get(wishes)
            yield from [Delete(wishes, node.version)] if node is not None else []
            return
        content = _content(edit.document, entry)
        yield Create(path, content) if entry is None else Put(path, content, entry.version)

    def _path(self, key: DocumentKey) -> str:
        is_set = key.kind is DocumentKind.SET
        return self._tree.set(key.name) if is_set else self._tree.task(key.name)

    def _write_task(self, name: str, desired: Desired, version: int) -> None:
        self._session.put(self._tree.task(name), task_content(desired), version=version)

    def _node(self, key: DocumentKey) -> Node:
        """The node, or Fatal MR-4104. An invalid name is not looked up: its path may be that of another node."""
        node = self._session.get(self._path(key)) if is_name(key.name) else None
        if node is None:
            raise self._missing(key)
        return node

    def _missing(self, key: DocumentKey) -> Fatal:
        error = f"there is no {key.kind} {key.name!r} in cluster {self._tree.cluster}"
        folder = self._tree.folder(f"{key.kind}s")
        known = self._session.children(folder) if is_name(key.name) else ()
        nearest = get_close_matches(key.name, known, n=1)
        return Fatal("MR-4104", error + (f"; did you mean {nearest[0]!r}?" if nearest else ""))


def retried(action: Callable[[], T]) -> T:
    """The result of ``action``, which is repeated when another process wrote in between."""
    for _ in range(WRITE_TRIES - 1):
        try:
            return action()
        except Retryable as error:
            if error.code != "MR-4007":
                raise
    return action()


def _content(document: Document, entry: SetEntry | TaskEntry | UnreadableEntry | None) -> bytes:
    """The content of the document's node. A task that was paused stays paused."""
    if isinstance(document, SetDocument):
        return set_content(document)
    if isinstance(entry, TaskEntry):
        return task_content(Desired(document, entry.desired.paused_by, entry.desired.resumed))
    return task_content(Desired(document))


def _waits(name: str, decision: Decision) -> Fatal:
    approval = decision.approval
    what = f"{decision.kind} by {approval.operator} waits for the task {name} already"
    return Fatal("MR-4180", what, task=name, reason=approval.reason)


def _check_size(changes: Sequence[Change]) -> None:
    """Fatal MR-4145 if ZooKeeper would refuse the transaction; it would close the connection without an answer."""
    size = sum(
        CHANGE_BYTES
        + len(change.path)
        + (len(change.content) if isinstance(change, Create | Put) else 0)
        for change in changes
    )
    if size > COMMIT_BYTES_MAX:
        raise Fatal("MR-4145", f"the documents take {size} bytes, more than {COMMIT_BYTES_MAX}")


def _parsed(content: bytes, path: str) -> SnapshotRequests:
    try:
        return from_plain(SnapshotRequests, decode(content, path))
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise Fatal("MR-4011", f"{path} can't be read: {error}") from error
