"""The elected scheduler: assigns tasks to workers.

    read (one snapshot) → assign (pure) → plan (pure) → commit unit by unit, each with the check of the term

Guarantees: a crash at any point leaves whole units assigned. The successor reads a new snapshot and completes the
plan. A scheduler that lost its session can't write. Orphans are placed at once. Running
tasks move only for balance, between workers registered for ``settle_s``, so a restarting worker disturbs nothing.
A task whose document can't be read keeps its assignment. Not done here: weighing tasks by their load.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from millrace.errors import Fatal, Fenced, Retryable
from millrace.faults import fault_point, register
from millrace.log import get_logger
from schemas.documents import CaptureTask, TaskKind, TopicAddress
from zk.client.mirror import Mirror
from zk.client.session import Change, Create, Delete, Node, Put, Session
from zk.lease.election import LeaderTerm, try_to_lead
from zk.lease.membership import kinds_of, relay_holders
from zk.placement.assignment import Placeable, assign, placeable, unit_of_set
from zk.tree.entries import WORK_FOLDERS, UnreadableEntry, WorkEntry, work_entries
from zk.tree.paths import Tree, create_tree, encode, text_field

ROUND_S = 2.0  # the longest pause between two rounds; a watch ends it early
SETTLE_S = 10.0
CHANGES_MAX = 200  # in one commit; 200 paths with small contents are far below ZooKeeper's 1 MiB

BETWEEN_COMMITS = register("zk.placement.scheduler.between_commits")
AFTER_ELECTION = register("zk.placement.scheduler.after_election")

log = get_logger("zk.placement.scheduler")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The input of one round of decisions."""

    tasks: Mapping[str, WorkEntry | UnreadableEntry]
    workers: Mapping[str, TaskKind]
    assignments: Mapping[str, Node]
    holders: Mapping[str, Collection[str]]  # unit → the workers that have a relay log of it
    leftovers: tuple[str, ...]  # paths: status and starts of deleted tasks without an owner


class Scheduler:
    """One candidate, which leads when elected."""

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
            for folder in (*WORK_FOLDERS, "workers", "assignments")
        }
        # by name and czxid: a worker that registers again counts as new
        self._since_s: dict[tuple[str, int], float] = {}
        session.on_state(lambda _state: self._wake.set())

    def run(self, stop: threading.Event) -> None:
        """Lead or wait to lead until ``stop`` is set, which it notices within ``ROUND_S``, or at once by ``wake``."""
        term: LeaderTerm | None = None
        while not stop.is_set():
            try:
                term = self._round(term)
            except Fenced as error:
                log.warning("no longer the leader", error=error)
                term = None
            except Retryable as error:
                log.warning("scheduling is delayed", error=error)
            self._wake.wait(ROUND_S)
            self._wake.clear()
        if term is not None and term.is_current():
            try:
                term.resign()
            except Retryable as error:
                log.warning(
                    "could not resign: the end of the session frees the leader node", error=error
                )

    def wake(self) -> None:
        """Start the next round now."""
        self._wake.set()

    def _round(self, term: LeaderTerm | None) -> LeaderTerm | None:
        if term is None or not term.is_current():
            create_tree(self._session, self._tree)
            term = try_to_lead(self._session, self._tree, name=self._name, watch=self._wake.set)
            if term is None:
                return None
            log.info("leading", scheduler=self._name)
            fault_point(AFTER_ELECTION)
        snapshot = self._read_snapshot()
        wanted = assign(
            [placeable(entry.document) for entry in runnable(snapshot.tasks).values()],
            snapshot.workers,
            workers_of(snapshot.assignments),
            settled=self._settled(),
            holders=snapshot.holders,
        )
        for group in plan(snapshot, wanted, self._tree):
            try:
                term.commit(group)
            except Retryable as error:
                if error.code != "MR-4007":
                    raise
                # a node of this unit has changed, or has a child that Millrace did not create: continue with the others
                log.warning("a unit was not assigned in this round", error=error)
                continue
            log.info("assigned", changes=[change.path for change in group])
            fault_point(BETWEEN_COMMITS)
        return term

    def _read_snapshot(self) -> Snapshot:
        nodes = {folder: mirror.snapshot() for folder, mirror in self._mirrors.items()}
        now_s = time.monotonic()
        tasks = work_entries(nodes)
        known = [(name, node.czxid) for name, node in nodes["workers"].items()]
        self._since_s = {worker: self._since_s.get(worker, now_s) for worker in known}
        left = {
            f"{folder}/{name}": name
            for folder in map(self._tree.folder, ("status", "starts"))
            for name in self._session.children(folder)
            if name not in tasks
        }
        owned = self._session.children(self._tree.folder("owners")) if left else ()
        return Snapshot(
            tasks=tasks,
            workers=kinds_of(nodes["workers"]),
            holders={
                unit_of_set(name): workers
                for name, workers in relay_holders(nodes["workers"]).items()
            },
            assignments=nodes["assignments"],
            leftovers=tuple(path for path, name in left.items() if name not in owned),
        )

    def _settled(self) -> frozenset[str]:
        """The workers that have been registered without a break for ``settle_s``."""
        now_s = time.monotonic()
        return frozenset(
            name
            for (name, _), since_s in self._since_s.items()
            if now_s - since_s >= self._settle_s
        )


def runnable(tasks: Mapping[str, WorkEntry | UnreadableEntry]) -> dict[str, WorkEntry]:
    """The tasks that may be placed: readable ones, and only the oldest of several capture tasks for one topic."""
    chosen: dict[str, WorkEntry] = {}
    written: list[TopicAddress] = []
    readable = [entry for entry in tasks.values() if not isinstance(entry, UnreadableEntry)]
    for entry in sorted(readable, key=lambda entry: entry.created):
        document = entry.document
        if isinstance(document, CaptureTask):
            if any(address.is_same_topic(document.output) for address in written):
                continue
            written.append(document.output)
        chosen[document.name] = entry
    return chosen


def plan(snapshot: Snapshot, wanted: Mapping[str, str], tree: Tree) -> list[list[Change]]:
    """The changes to commit, in groups. A group is committed as a whole: all tasks of a unit."""
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
    gone += [Delete(path, -1) for path in snapshot.leftovers]
    groups = [*units.values(), *([change] for change in gone)]
    return [part for group in groups for part in _parts(group)]


def _move(task: str, worker: str, node: Node | None, tree: Tree) -> Change | None:
    path, content = tree.assignment(task), encode({"worker": worker})
    if node is None:
        return Create(path, content)
    return Put(path, content, node.version) if node.content != content else None


def _parts(group: Sequence[Change]) -> list[list[Change]]:
    return [list(group[at : at + CHANGES_MAX]) for at in range(0, len(group), CHANGES_MAX)]


def workers_of(assignments: Mapping[str, Node]) -> dict[str, str]:
    """Task → assigned worker. Skips nodes that can't be read; the scheduler overwrites them."""
    found: dict[str, str] = {}
    for task, node in assignments.items():
        try:
            found[task] = text_field(node.content, f"assignments/{task}", "worker")
        except Fatal as error:
            log.warning("an assignment is ignored", error=error)
    return found
