"""Sets and tasks in the tree: create, read, replace, pause, resume, delete.

Guarantees
- Every change is a compare-and-set on the version that was read (Retryable MR-4007 when another process changed it).
- Creating the same document twice is no error.
- An invalid name never becomes a path (MR-4104).
- Two tasks that exclude each other are never both created. Each new task document also raises the version of the
  folder ``tasks`` in the same ZooKeeper transaction, so the second one is checked again.

An older Millrace may have left two capture tasks for one topic. The scheduler runs the one that was created first.
"""

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from enum import Enum
from uuid import uuid4

from millrace.errors import Fatal, Retryable
from schemas.documents import (
    ApplyTask,
    CaptureTask,
    Directives,
    SetDocument,
    TaskDocument,
    address_of,
    is_name,
    set_of,
)
from schemas.status import TaskReport
from zk.client.session import Create, Node, Put, Session
from zk.tree.entries import (
    Desired,
    SetEntry,
    TaskEntry,
    UnreadableEntry,
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
from zk.tree.paths import Tree, encode, text_field
from zk.tree.reports import read_status

CREATE_TRIES = 10  # one is lost for each other task that is written between our check and our write


class Outcome(Enum):
    """The effect of creating a document."""

    CREATED = "created"
    REPLACED = "replaced"
    UNCHANGED = "unchanged"


class Store:
    """The documents of one cluster."""

    def __init__(self, session: Session, tree: Tree) -> None:
        self._session = session
        self._tree = tree

    def sets(self) -> Mapping[str, SetEntry | UnreadableEntry]:
        """Every set, sorted by name."""
        return set_entries(self._folder("sets"))

    def tasks(self) -> Mapping[str, TaskEntry | UnreadableEntry]:
        """Every task, sorted by name."""
        return task_entries(self._folder("tasks"))

    def set_entry(self, name: str) -> SetEntry:
        """One set. Fatal MR-4104 when it does not exist; the read error when its node is malformed."""
        entry = set_entry(self._node(self._tree.set(name), "set", name), name=name)
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

    def positions_of(self, set_name: str) -> Mapping[str, str]:
        """By task, the GTID set that each capture task of a set has published, or its start while nothing was reported.

        Empty: the task begins at the first binlog that there is. Tasks that can't be read are left out.
        """
        found = {}
        for entry in self.tasks().values():
            if isinstance(entry, UnreadableEntry) or not isinstance(entry.document, CaptureTask):
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
        entry = task_entry(self._task_node(name), name=name)
        if isinstance(entry, UnreadableEntry):
            raise entry.error
        return entry

    def create_set(self, document: SetDocument, *, replace: bool = False) -> Outcome:
        """Create a set. Fatal MR-4103 when another one of its name exists, unless ``replace``."""
        path, content = self._tree.set(document.name), set_content(document)
        return self._create(path, content, what=f"set {document.name}", replace=replace)

    def create_task(self, task: TaskDocument, *, replace: bool = False) -> Outcome:
        """Create a task, or replace one. A replaced task that was paused stays paused.

        Fatal MR-4103 when another task of its name exists, unless ``replace``; MR-4104 when its set does not exist;
        MR-4105 when another task captures to its topic; MR-4108 when another task applies its topic to the same
        target; MR-4109 when it would apply a topic to the set from which the topic is captured.
        """
        for _ in range(CREATE_TRIES - 1):
            try:
                return self._create_task(task, replace=replace)
            except Retryable as error:
                if error.code != "MR-4007":
                    raise
        return self._create_task(task, replace=replace)

    def _create_task(self, task: TaskDocument, *, replace: bool) -> Outcome:
        """Check and write. Retryable MR-4007 when another task was written in between."""
        tasks = self._session.get(self._tree.folder("tasks"))
        if tasks is None:
            raise Retryable("MR-4007", f"{self._tree.folder('tasks')} does not exist")
        self.set_entry(set_of(task))
        others = self._other_tasks(task.name)
        _check_topic(task, others)
        _check_target(task, others)
        path = self._tree.task(task.name)
        node = self._session.get(path)
        entry = task_entry(node, name=task.name) if node else None
        desired = Desired(task)
        if isinstance(entry, TaskEntry):
            if entry.document == task:
                return Outcome.UNCHANGED
            desired = Desired(task, entry.desired.paused_by, entry.desired.resumed)
        if node is not None and not replace:
            raise _exists(f"task {task.name}")
        content = task_content(desired)
        checked = Put(self._tree.folder("tasks"), tasks.content, tasks.version)
        if node is None:
            self._session.commit(checked, Create(path, content))
            return Outcome.CREATED
        self._session.commit(checked, Put(path, content, node.version))
        return Outcome.REPLACED

    def pause(self, name: str, *, by: str) -> None:
        """Ask the worker to stop the task. A task that is paused already keeps its ``paused_by``."""
        entry = self.task_entry(name)
        if not entry.desired.paused_by:
            self._write_task(name, paused(entry.desired, by=by), entry.version)

    def resume(self, name: str) -> None:
        """Ask the worker to run the task: ends a pause, and makes a blocked or waiting task try again now."""
        entry = self.task_entry(name)
        self._write_task(name, resumed(entry.desired), entry.version)

    def delete(self, name: str) -> None:
        """Delete the task. Its owner stops it and the scheduler deletes its other nodes. Topic and target stay."""
        node = self._task_node(name)
        self._session.delete(self._tree.task(name), version=node.version)

    def _create(self, path: str, content: bytes, *, what: str, replace: bool) -> Outcome:
        if self._session.create(path, content) is not None:
            return Outcome.CREATED
        node = self._session.get(path)
        if node is None:
            raise Retryable("MR-4007", f"another process has just deleted {what}")
        if node.content == content:
            return Outcome.UNCHANGED
        if not replace:
            raise _exists(what)
        self._session.put(path, content, version=node.version)
        return Outcome.REPLACED

    def _other_tasks(self, name: str) -> list[TaskDocument]:
        """The documents of all other tasks that can be read."""
        return [
            entry.document
            for known, entry in self.tasks().items()
            if isinstance(entry, TaskEntry) and known != name
        ]

    def _write_task(self, name: str, desired: Desired, version: int) -> None:
        self._session.put(self._tree.task(name), task_content(desired), version=version)

    def _task_node(self, name: str) -> Node:
        return self._node(self._tree.task(name), "task", name)

    def _node(self, path: str, what: str, name: str) -> Node:
        """The node, or Fatal MR-4104. An invalid name is not looked up: its ``path`` may be that of another node."""
        node = self._session.get(path) if is_name(name) else None
        if node is None:
            error = f"there is no {what} {name!r} in cluster {self._tree.cluster}"
            known = self._session.children(self._tree.folder(f"{what}s")) if is_name(name) else ()
            nearest = get_close_matches(name, known, n=1)
            raise Fatal("MR-4104", error + (f"; did you mean {nearest[0]!r}?" if nearest else ""))
        return node

    def _folder(self, folder: str) -> dict[str, Node]:
        path = self._tree.folder(folder)
        found = {name: self._session.get(f"{path}/{name}") for name in self._session.children(path)}
        return {name: node for name, node in found.items() if node is not None}


def _exists(what: str) -> Fatal:
    return Fatal("MR-4103", f"{what} exists with other contents")


def _check_topic(task: TaskDocument, others: Sequence[TaskDocument]) -> None:
    for other in others:
        if (
            isinstance(task, CaptureTask)
            and isinstance(other, CaptureTask)
            and task.output.is_same_topic(other.output)
        ):
            what = f"task {other.name} writes the topic {task.output.topic} already"
            raise Fatal("MR-4105", what)


def _check_target(task: TaskDocument, others: Sequence[TaskDocument]) -> None:
    topic = address_of(task).topic
    for other in others:
        is_same_topic = address_of(task).is_same_topic(address_of(other))
        if not is_same_topic or set_of(task) != set_of(other):
            continue
        if isinstance(task, ApplyTask) and isinstance(other, ApplyTask):
            what = f"task {other.name} applies the topic {topic} to the set {other.target} already"
            raise Fatal("MR-4108", what)
        if type(task) is not type(other):
            does = "captures it to" if isinstance(other, CaptureTask) else "applies to it"
            what = (
                f"{set_of(task)} is source and target: task {other.name} {does} the topic {topic}"
            )
            raise Fatal("MR-4109", what)
