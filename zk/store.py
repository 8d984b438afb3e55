"""Sets and tasks in the tree: create, read, replace, pause, resume, delete.

Guarantees: every change is a compare-and-set on the version that was read (Retryable MR-4007 when somebody was
faster); creating the same document twice is no error; what can't be a name reaches no node (MR-4104). Two capture
tasks for one topic are refused here, and once more by the scheduler, which decides by order of creation.
"""

from collections.abc import Mapping, Sequence
from enum import Enum

from millrace.errors import Fatal, Retryable
from schemas.documents import (
    ApplyTask,
    CaptureTask,
    Consistency,
    SetDocument,
    TaskDocument,
    address_of,
    is_name,
    set_of,
)
from schemas.status import TaskReport
from zk.entries import (
    Desired,
    Refused,
    SetEntry,
    TaskEntry,
    paused,
    resumed,
    set_content,
    set_entries,
    set_entry,
    task_content,
    task_entries,
    task_entry,
)
from zk.session import Node, Session
from zk.status import read_status
from zk.tree import Tree


class Outcome(Enum):
    """What creating a document came to."""

    CREATED = "created"
    REPLACED = "replaced"
    UNCHANGED = "unchanged"


class Store:
    """The documents of one cluster."""

    def __init__(self, session: Session, tree: Tree) -> None:
        self._session = session
        self._tree = tree

    def sets(self) -> Mapping[str, SetEntry | Refused]:
        """Every set, sorted by name."""
        return set_entries(self._folder("sets"))

    def tasks(self) -> Mapping[str, TaskEntry | Refused]:
        """Every task, sorted by name."""
        return task_entries(self._folder("tasks"))

    def set_entry(self, name: str) -> SetEntry:
        """One set; Fatal MR-4104 when there is none, or the error of a node that can't be read."""
        entry = set_entry(self._node(self._tree.set(name), "set", name), name=name)
        if isinstance(entry, Refused):
            raise entry.error
        return entry

    def set_document(self, name: str) -> SetDocument:
        """One set's document, for runners: Retryable while there is none that can be read.

        It is mended without its tasks, whose revision stays: blocked, they would wait for an operator once more.
        """
        try:
            return self.set_entry(name).document
        except Fatal as error:
            raise Retryable(error.code, error.message, fix=error.fix, **error.context) from error

    def last_report(self, task: TaskDocument) -> TaskReport | None:
        """What the task's owner, this or an earlier one, reported last of this work; for runners.

        Retryable MR-4104 when the task was deleted meanwhile: what it left is not this run's to believe or forget.
        """
        node = self._session.get(self._tree.task(task.name))
        if node is None:
            raise Retryable("MR-4104", f"task {task.name} was deleted while it started")
        standing = read_status(self._session, self._tree, task.name)
        is_known = standing is not None and standing.is_of(task, created=node.czxid)
        return standing.report if standing is not None and is_known else None

    def task_entry(self, name: str) -> TaskEntry:
        """One task; Fatal MR-4104 when there is none, or the error of a node that can't be read."""
        entry = task_entry(self._task_node(name), name=name)
        if isinstance(entry, Refused):
            raise entry.error
        return entry

    def create_set(self, document: SetDocument, *, replace: bool = False) -> Outcome:
        """Put a set document in place; another one of the name is Fatal MR-4103 unless ``replace``."""
        path, content = self._tree.set(document.name), set_content(document)
        return self._create(path, content, what=f"set {document.name}", replace=replace)

    def create_task(self, task: TaskDocument, *, replace: bool = False) -> Outcome:
        """Put a task in place. Its set must exist (MR-4104), its topic must be free (MR-4105).

        What apply can't do is refused (MR-4101), also a topic twice (MR-4108) or where it comes from (MR-4109).
        A replaced task that was paused stays paused.
        """
        self.set_entry(set_of(task))
        others = self._other_tasks(task.name)
        _check_topic(task, others)
        _check_target(task, others)
        standing = self._session.get(self._tree.task(task.name))
        entry = task_entry(standing, name=task.name) if standing else None
        if isinstance(entry, TaskEntry):
            if entry.document == task:
                return Outcome.UNCHANGED
            desired = Desired(task, entry.desired.paused_by, entry.desired.resumed)
        else:
            desired = Desired(task)
        path, content = self._tree.task(task.name), task_content(desired)
        return self._create(path, content, what=f"task {task.name}", replace=replace)

    def pause(self, name: str, *, by: str) -> None:
        """Ask for a stop; a task that is paused already keeps the one who asked first."""
        entry = self.task_entry(name)
        if not entry.desired.paused_by:
            self._write_task(name, paused(entry.desired, by=by), entry.version)

    def resume(self, name: str) -> None:
        """Ask to run: ends a pause, and makes a blocked or waiting task try again now."""
        entry = self.task_entry(name)
        self._write_task(name, resumed(entry.desired), entry.version)

    def delete(self, name: str) -> None:
        """Remove the task; its owner stops it, the scheduler clears the rest. Topic and target stay."""
        node = self._task_node(name)
        self._session.delete(self._tree.task(name), version=node.version)

    def _create(self, path: str, content: bytes, *, what: str, replace: bool) -> Outcome:
        if self._session.create(path, content) is not None:
            return Outcome.CREATED
        standing = self._session.get(path)
        if standing is None:
            raise Retryable("MR-4007", f"{what} was deleted just now")
        if standing.content == content:
            return Outcome.UNCHANGED
        if not replace:
            raise Fatal("MR-4103", f"{what} exists with other contents")
        self._session.put(path, content, version=standing.version)
        return Outcome.REPLACED

    def _other_tasks(self, name: str) -> list[TaskDocument]:
        """All that can be read, but for the one of this name."""
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
        """Fatal MR-4104 when there is none. What can't be a name is not asked for: ``path`` would be another node's."""
        node = self._session.get(path) if is_name(name) else None
        if node is None:
            raise Fatal("MR-4104", f"there is no {what} {name!r} in cluster {self._tree.cluster}")
        return node

    def _folder(self, folder: str) -> dict[str, Node]:
        path = self._tree.folder(folder)
        found = {name: self._session.get(f"{path}/{name}") for name in self._session.children(path)}
        return {name: node for name, node in found.items() if node is not None}


def _check_topic(task: TaskDocument, others: Sequence[TaskDocument]) -> None:
    for other in others:
        if (
            isinstance(task, CaptureTask)
            and isinstance(other, CaptureTask)
            and task.output.is_same_topic(other.output)
        ):
            told = f"task {other.name} writes the topic {task.output.topic} already"
            raise Fatal("MR-4105", told)


def _check_target(task: TaskDocument, others: Sequence[TaskDocument]) -> None:
    if isinstance(task, ApplyTask) and task.rules.consistency is not Consistency.CAUSAL:
        wanted = f"wanted {Consistency.CAUSAL} (the other is not built yet)"
        found = f"consistency: found {str(task.rules.consistency)!r}"
        raise Fatal("MR-4101", f"task {task.name!r} is refused: {found}, {wanted}")
    topic = address_of(task).topic
    for other in others:
        is_same_topic = address_of(task).is_same_topic(address_of(other))
        if not is_same_topic or set_of(task) != set_of(other):
            continue
        if isinstance(task, ApplyTask) and isinstance(other, ApplyTask):
            told = f"task {other.name} applies the topic {topic} to the set {other.target} already"
            raise Fatal("MR-4108", told)
        if type(task) is not type(other):
            way = "captures it to" if isinstance(other, CaptureTask) else "applies to it"
            told = f"{set_of(task)} is source and target: task {other.name} {way} the topic {topic}"
            raise Fatal("MR-4109", told)
