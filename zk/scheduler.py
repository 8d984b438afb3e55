"""The elected loop that turns tasks and workers into assignments.

    look (one snapshot) → assign (pure) → plan (pure) → commit, unit by unit, each under the reign's check

Guarantees: a crash at any point leaves whole units assigned, and the successor, who looks afresh, completes the plan;
a scheduler that lost its session can't write. Orphans are placed at once; living tasks are moved for balance only
after the workers have been the same for ``settle_s``, so that a worker that comes and goes disturbs nothing.
Tasks whose document can't be read keep the assignment they have. Not done: weighing tasks by their load.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millrace.errors import Fatal, Fenced, Retryable
from millrace.faults import fault_point, register
from millrace.log import get_logger
from schemas.documents import CaptureTask, TaskKind, TopicAddress
from zk.assignment import Placeable, assign, placeable
from zk.election import Reign, stand
from zk.entries import Refused, TaskEntry, task_entries
from zk.membership import kinds_of
from zk.mirror import Mirror
from zk.session import Change, Create, Delete, Node, Put, Session
from zk.tree import Tree, encode, lay, text_field

LOOK_S = 2.0  # without a watch firing; bounds how long a lost watch can delay
SETTLE_S = 10.0
CHANGES_MAX = 200  # in one commit: 200 paths and small contents are far below ZooKeeper's 1 MiB

BETWEEN_COMMITS = register("zk.scheduler.between_commits")
AFTER_ELECTION = register("zk.scheduler.after_election")

log = get_logger("zk.scheduler")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that one round of decisions rests on."""

    tasks: Mapping[str, TaskEntry | Refused]
    workers: Mapping[str, TaskKind]
    assignments: Mapping[str, Node]
    leftovers: tuple[str, ...]  # status nodes of tasks that are gone and have no owner


class Scheduler:
    """One candidate; leads when elected."""

    def __init__(
        self, session: Session, tree: Tree, *, name: str, settle_s: float = SETTLE_S
    ) -> None:
        self._session = session
        self._tree = tree
        self._name = name
        self._settle_s = settle_s
        self._wake = threading.Event()
        self._mirrors = {
            folder: Mirror(session, tree.folder(folder), self._wake.set)
            for folder in ("tasks", "workers", "assignments")
        }
        self._known_workers: frozenset[str] = frozenset()
        self._workers_since_s = time.monotonic()
        session.on_state(lambda _state: self._wake.set())

    def run(self, stop: threading.Event) -> None:
        """Lead or stand by until ``stop`` is set (looked at every ``LOOK_S``; ``wake`` shortens it)."""
        reign: Reign | None = None
        while not stop.is_set():
            try:
                reign = self._round(reign)
            except Fenced as error:
                log.warning("not the leader any more", error=error)
                reign = None
            except Retryable as error:
                log.warning("scheduling waits", error=error)
            self._wake.wait(LOOK_S)
            self._wake.clear()
        if reign is not None and reign.is_current():
            try:
                reign.resign()
            except Retryable as error:
                log.warning("could not resign; the session's end will do", error=error)

    def wake(self) -> None:
        """Look now."""
        self._wake.set()

    def _round(self, reign: Reign | None) -> Reign | None:
        if reign is None or not reign.is_current():
            lay(self._session, self._tree)
            reign = stand(self._session, self._tree, name=self._name, watch=self._wake.set)
            if reign is None:
                return None
            log.info("leading", scheduler=self._name)
            fault_point(AFTER_ELECTION)
        snapshot = self._look()
        wanted = assign(
            [placeable(entry.document) for entry in runnable(snapshot.tasks).values()],
            snapshot.workers,
            workers_of(snapshot.assignments),
            rebalance=self._is_settled(snapshot.workers),
        )
        for group in plan(snapshot, wanted, self._tree):
            try:
                reign.commit(group)
            except Retryable as error:
                if error.code != "MR-4007":
                    raise
                # one unit disagrees (or has a child that nobody of us made): the others don't wait for it
                log.warning("a unit is not assigned now", error=error)
                continue
            log.info("assigned", changes=[change.path for change in group])
            fault_point(BETWEEN_COMMITS)
        return reign

    def _look(self) -> Snapshot:
        nodes = {folder: mirror.snapshot() for folder, mirror in self._mirrors.items()}
        reported = set(self._session.children(self._tree.folder("status")))
        gone = reported - nodes["tasks"].keys()
        if gone:
            gone -= set(self._session.children(self._tree.folder("owners")))
        return Snapshot(
            tasks=task_entries(nodes["tasks"]),
            workers=kinds_of(nodes["workers"]),
            assignments=nodes["assignments"],
            leftovers=tuple(sorted(gone)),
        )

    def _is_settled(self, workers: Mapping[str, TaskKind]) -> bool:
        names = frozenset(workers)
        if names != self._known_workers:
            self._known_workers = names
            self._workers_since_s = time.monotonic()
        return time.monotonic() - self._workers_since_s >= self._settle_s


def runnable(tasks: Mapping[str, TaskEntry | Refused]) -> dict[str, TaskEntry]:
    """Tasks that may be placed: readable, and of several capture tasks for one topic the oldest."""
    chosen: dict[str, TaskEntry] = {}
    written: list[TopicAddress] = []
    readable = [entry for entry in tasks.values() if isinstance(entry, TaskEntry)]
    for entry in sorted(readable, key=lambda entry: entry.created):
        document = entry.document
        if isinstance(document, CaptureTask):
            if any(address.is_same_topic(document.output) for address in written):
                continue
            written.append(document.output)
        chosen[document.name] = entry
    return chosen


def plan(snapshot: Snapshot, wanted: Mapping[str, str], tree: Tree) -> list[list[Change]]:
    """What to commit, in groups that must happen whole: all tasks of a unit together."""
    entries = runnable(snapshot.tasks)
    units: defaultdict[str, list[Change]] = defaultdict(list)
    for task, worker in sorted(wanted.items()):
        change = _move(task, worker, snapshot.assignments.get(task), tree)
        if change is not None:
            unit: Placeable = placeable(entries[task].document)
            units[unit.unit].append(change)
    gone: list[Change] = [
        Delete(tree.assignment(task), node.version)
        for task, node in snapshot.assignments.items()
        if task not in snapshot.tasks
    ]
    gone += [Delete(tree.status(task), -1) for task in snapshot.leftovers]
    groups = [*units.values(), *([change] for change in gone)]
    return [part for group in groups for part in _parts(group)]


def _move(task: str, worker: str, standing: Node | None, tree: Tree) -> Change | None:
    path, content = tree.assignment(task), encode({"worker": worker})
    if standing is None:
        return Create(path, content)
    return Put(path, content, standing.version) if standing.content != content else None


def _parts(group: Sequence[Change]) -> list[list[Change]]:
    return [list(group[at : at + CHANGES_MAX]) for at in range(0, len(group), CHANGES_MAX)]


def workers_of(assignments: Mapping[str, Node]) -> dict[str, str]:
    """Task → worker as assigned; a node that can't be read is no assignment (and is written over)."""
    found: dict[str, str] = {}
    for task, node in assignments.items():
        try:
            found[task] = text_field(node.content, f"assignments/{task}", "worker")
        except Fatal as error:
            log.warning("an assignment is ignored", error=error)
    return found
