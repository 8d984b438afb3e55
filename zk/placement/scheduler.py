"""The elected scheduler: assigns tasks to workers.

    read (one snapshot) → assign (pure) → plan (pure) → commit unit by unit, each with the check of the term

Guarantees: a crash at any point leaves whole units assigned. The successor reads a new snapshot and completes the
plan. A scheduler that lost its session can't write. Orphans and wishes are placed at once. Other running units move
only between settled workers (``zk.placement.settling``), and in each ``ROUND_S`` at most ``moves_max`` of them. A task
whose document can't be read keeps its assignment. The leader's node names the workers that are not settled.
Not done here: weighing tasks by their load.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from millrace.errors import Fenced, Retryable
from millrace.faults import fault_point, register
from millrace.log import get_logger
from millrace.schemas.documents import (
    CaptureTask,
    Placement,
    Reader,
    TopicAddress,
)
from millrace.zk.client.mirror import Mirror
from millrace.zk.client.session import Change, Create, Delete, Node, Put, Session, SessionState
from millrace.zk.lease.election import LeaderTerm, try_to_lead
from millrace.zk.lease.membership import Registered, registered
from millrace.zk.placement.assignment import (
    Assignment,
    Candidate,
    Placeable,
    assign,
    placeable,
    unit_of,
    unit_of_set,
)
from millrace.zk.placement.metrics import ASSIGNMENTS, note_round, note_tasks, note_workers
from millrace.zk.placement.nodes import assignment_content, assignments_of, wishes_of
from millrace.zk.placement.settling import SETTLE_S, Arrival, arrivals_after
from millrace.zk.tree.entries import (
    WORK_FOLDERS,
    SetEntry,
    UnreadableEntry,
    WorkEntry,
    set_entries,
    work_entries,
)
from millrace.zk.tree.paths import Tree, create_tree

ROUND_S = 2.0  # the longest pause between two rounds; a watch ends it early
MOVES_MIN = 2
MOVES_SHARE = 20  # in each ROUND_S, 1/20 of the units may move between live workers
CHANGES_MAX = 200  # in one commit; 200 paths with small contents are far below ZooKeeper's 1 MiB

BETWEEN_COMMITS = register("zk.placement.scheduler.between_commits")
AFTER_ELECTION = register("zk.placement.scheduler.after_election")

log = get_logger("zk.placement.scheduler")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The input of one round of decisions."""

    tasks: Mapping[str, WorkEntry | UnreadableEntry]
    nodes: Mapping[str, Mapping[str, Node]]  # by folder
    leftovers: tuple[str, ...] = ()  # paths: status and starts of deleted tasks without an owner

    @property
    def assignments(self) -> Mapping[str, Node]:
        """The assignments' nodes."""
        return self.nodes["assignments"]


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
            for folder in (*WORK_FOLDERS, "workers", "drained", "wishes", "assignments")
        }
        self._arrivals: dict[str, Arrival] = {}
        self._moved = 0  # units that left a live worker since ``_moved_since_s``
        self._moved_since_s = float("-inf")
        self._round_at_s = time.monotonic()
        self._unready = "it has not looked for the leader yet"
        session.on_state(lambda _state: self._wake.set())

    def run(self, stop: threading.Event) -> None:
        """Lead or wait to lead until ``stop`` is set, which it notices within ``ROUND_S``, or at once by ``wake``."""
        term: LeaderTerm | None = None
        while not stop.is_set():
            self._round_at_s = time.monotonic()
            try:
                term = self._round(term)
                self._unready = ""
                note_round("done", is_leading=term is not None)
            except Fenced as error:
                log.warning("no longer the leader", error=error)
                term = None
                note_round("fenced", is_leading=False)
            except Retryable as error:
                log.warning("scheduling is delayed", error=error)
                self._unready = str(error)
                note_round("delayed", is_leading=term is not None and term.is_current())
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

    @property
    def round_ages_s(self) -> Mapping[str, float]:
        """How long ago its loop began its last round."""
        return {"scheduler": time.monotonic() - self._round_at_s}

    @property
    def unready(self) -> str:
        """Why it neither leads nor waits to lead; "" if it does."""
        if self._session.state is not SessionState.CONNECTED:
            return f"the session to ZooKeeper is {self._session.state.value}"
        return self._unready

    def _round(self, term: LeaderTerm | None) -> LeaderTerm | None:
        if term is None or not term.is_current():
            create_tree(self._session, self._tree)
            term = try_to_lead(self._session, self._tree, name=self._name, watch=self._wake.set)
            if term is None:
                return None
            log.info("leading", scheduler=self._name)
            fault_point(AFTER_ELECTION)
        snapshot = self._read_snapshot()
        now_s = time.monotonic()
        settled = self._settled(snapshot, now_s)
        term.publish(unsettled=sorted(snapshot.nodes["workers"].keys() - settled))
        tasks = placeables(snapshot)
        if now_s - self._moved_since_s >= ROUND_S:
            self._moved, self._moved_since_s = 0, now_s
        placed = assign(
            tasks,
            candidates(snapshot, settled),
            assignments_of(snapshot.assignments),
            wishes=wishes_of(snapshot.nodes["wishes"]),
            moves_max=moves_max(tasks) - self._moved,
        )
        self._moved += placed.moves
        note_tasks(len(tasks), placed=sum(bool(each.worker) for each in placed.assigned.values()))
        note_workers(each.kind for each in registered(snapshot.nodes["workers"]).values())
        self._commit(term, plan(snapshot, placed.assigned, self._tree))
        return term

    def _commit(self, term: LeaderTerm, groups: Sequence[Sequence[Change]]) -> None:
        for group in groups:
            try:
                term.commit(group)
            except Retryable as error:
                if error.code != "MR-4007":
                    raise
                # a node of this unit has changed, or has a child that Millrace did not create: continue with the others
                log.warning("a unit was not assigned in this round", error=error)
                continue
            log.info("assigned", changes=[change.path for change in group])
            ASSIGNMENTS.inc(sum(not isinstance(change, Delete) for change in group))
            fault_point(BETWEEN_COMMITS)

    def _read_snapshot(self) -> Snapshot:
        nodes = {folder: mirror.snapshot() for folder, mirror in self._mirrors.items()}
        tasks = work_entries(nodes)
        left = {
            f"{folder}/{name}": name
            for folder in map(self._tree.folder, ("status", "starts"))
            for name in self._session.children(folder)
            if name not in tasks
        }
        owned = self._session.children(self._tree.folder("owners")) if left else ()
        return Snapshot(
            tasks, nodes, tuple(path for path, name in left.items() if name not in owned)
        )

    def _settled(self, snapshot: Snapshot, now_s: float) -> frozenset[str]:
        """The workers that may receive units."""
        here = {name: node.czxid for name, node in snapshot.nodes["workers"].items()}
        self._arrivals = arrivals_after(self._arrivals, here, now_s, settle_s=self._settle_s)
        return frozenset(name for name, one in self._arrivals.items() if one.is_settled(now_s))


def moves_max(tasks: Collection[Placeable]) -> int:
    """How many units may leave a live worker in each ``ROUND_S``."""
    return max(MOVES_MIN, len({task.unit for task in tasks}) // MOVES_SHARE)


def placeables(snapshot: Snapshot) -> list[Placeable]:
    """The tasks that may be placed. A set that can't be read has no labels; its tasks can't start anyway."""
    sets = set_entries(snapshot.nodes["sets"])
    found = []
    for entry in runnable(snapshot.tasks).values():
        task, placement = entry.document, Placement()
        if isinstance(task, Reader):
            placement = task.placement
        elif isinstance(its_set := sets.get(task.set_name), SetEntry):
            placement = its_set.document.placement
        found.append(placeable(task, placement))
    return found


def candidates(snapshot: Snapshot, settled: Collection[str]) -> dict[str, Candidate]:
    """The live workers."""
    drained = snapshot.nodes["drained"]
    return {
        name: candidate(worker, is_settled=name in settled, is_drained=name in drained)
        for name, worker in registered(snapshot.nodes["workers"]).items()
    }


def candidate(worker: Registered, *, is_settled: bool, is_drained: bool) -> Candidate:
    """A worker as placement sees it."""
    return Candidate(
        kind=worker.kind,
        labels=worker.labels,
        capacity=worker.capacity,
        is_settled=is_settled,
        is_drained=is_drained,
        relays=frozenset(map(unit_of_set, worker.relays)),
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


def plan(snapshot: Snapshot, wanted: Mapping[str, Assignment], tree: Tree) -> list[list[Change]]:
    """The changes to commit, in groups. A group is committed as a whole: all tasks of a unit."""
    entries = runnable(snapshot.tasks)
    units: defaultdict[str, list[Change]] = defaultdict(list)
    for task, assignment in sorted(wanted.items()):
        change = _move(task, assignment, snapshot.assignments.get(task), tree)
        if change is not None:
            units[unit_of(entries[task].document)].append(change)
    gone: list[Change] = [
        Delete(tree.assignment(task), node.version)
        for task, node in snapshot.assignments.items()
        if task not in snapshot.tasks
    ]
    alive = {unit_of_set(name) for name in snapshot.nodes["sets"]}
    alive |= {f"task:{name}" for name in snapshot.tasks}
    gone += [
        Delete(tree.wish(unit), node.version)
        for unit, node in snapshot.nodes["wishes"].items()
        if unit not in alive
    ]
    gone += [Delete(path, -1) for path in snapshot.leftovers]
    groups = [*units.values(), *([change] for change in gone)]
    return [part for group in groups for part in _parts(group)]


def _move(task: str, assignment: Assignment, node: Node | None, tree: Tree) -> Change | None:
    path, content = tree.assignment(task), assignment_content(assignment)
    if node is None:
        return Create(path, content)
    return Put(path, content, node.version) if node.content != content else None


def _parts(group: Sequence[Change]) -> list[list[Change]]:
    return [list(group[at : at + CHANGES_MAX]) for at in range(0, len(group), CHANGES_MAX)]
