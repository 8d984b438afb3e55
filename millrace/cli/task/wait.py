"""Waits until a task has reached a GTID set: by default the position that the primary had at the start of the wait.

    capture task   the position of its set's primary
    apply task     the position of the primary whose set is captured to its topic

Guarantees
- The position to reach is read once, at the start.
- Success means that the task's owner reported a GTID set that provably contains it (``schemas.gtid.missing``). A
  greater number of another history does not count. If the numbers alone are no proof, the primary is asked again.
- A blocked task ends the wait at once, with its own code. So does a paused task that has not arrived, and for an apply
  task its capture task, if that is blocked or paused and has not arrived.
- It reads a handful of nodes, when one of them has changed, and otherwise once a second.
- A member that can't be reached is asked again until the timeout.
- At the timeout, the error names the operator who pauses the set's relay. Otherwise it names each replica that has
  stopped replicating, its stopped threads and its missing GTIDs.
  The capture task may read from that replica, and then it waits for changes although rows are missing.
"""

import threading
import time
from dataclasses import dataclass

from millrace.cli.control import Control
from millrace.cli.task.primary import halted_replicas, primary_history
from millrace.errors import Fatal, Retryable
from millrace.schemas.documents import (
    CaptureTask,
    Reader,
    SetDocument,
    TaskDocument,
)
from millrace.schemas.gtid import GtidPosition, History, missing, parse_gtid_set
from millrace.schemas.status import TaskReport, TaskState
from millrace.zk.tree.documents import capture_task_among
from millrace.zk.tree.entries import TaskEntry
from millrace.zk.view import Cluster, read_tasks, status_of

ROUND_S = 1.0  # the longest pause between two reads of the task's nodes; a change ends it early
ASK_AGAIN_S = 0.5
_EMPTY = (
    "Give --gtid the GTIDs that the task shall have reached; a shell variable may be unset. Without --gtid, the command"
    " waits for all current changes."
)


@dataclass(frozen=True, slots=True)
class Arrival:
    wanted: GtidPosition
    waited_s: float


def wait_until_arrived(
    now: Control, name: str, *, timeout_s: float, gtid_set: str | None = None
) -> Arrival:
    """Wait until the task has reached ``gtid_set``; None: what the primary has now.

    Fatal MR-6001 for text that is no GTID set or an empty one, MR-4202 when the task or its capture task has stopped.
    Retryable MR-4201 at the timeout.
    """
    start_s = time.monotonic()
    deadline_s = start_s + timeout_s
    task = now.store.task_entry(name).document
    capture = None if isinstance(task, CaptureTask) else capture_task_of(now, task).name
    document = now.store.set_entry(source_set_of(now, task)).document
    proof = _Proof(document, _history_until(deadline_s, document), gtid_set)
    names = [name, *([capture] if capture is not None else [])]
    changed = threading.Event()
    while True:
        changed.clear()
        cluster = read_tasks(now.session, now.tree, names, watch=changed.set)
        report = _report(cluster, name)
        if report.state is TaskState.BLOCKED:
            raise _stopped(name, report)
        if not (unproven := proof.missing(report)):
            return Arrival(proof.wanted, time.monotonic() - start_s)
        if report.state is TaskState.PAUSED:
            raise _stopped(name, report)
        if capture is not None:
            before = _report(cluster, capture)
            if before.state in (TaskState.BLOCKED, TaskState.PAUSED) and proof.missing(before):
                raise _stopped(capture, before, waiting=name)
        if time.monotonic() > deadline_s:
            state = f"{name} is {report.state.value}" + (f" ({report.why})" if report.why else "")
            has = (
                f"it has {report.gtid_set or 'nothing'}, which is not proven to contain {unproven}"
            )
            text = f"not within {timeout_s:g} s: {state}; {has}"
            if paused_by := now.store.directives(document.name).relay_paused_by:
                text += f"; the relay of set {document.name} is paused by {paused_by}"
                raise Retryable("MR-4201", text, fix=f"`millrace relay resume {document.name}`")
            raise _timed_out(text, capture or name, proof)
        changed.wait(min(ROUND_S, max(0.0, deadline_s - time.monotonic())))


class _Proof:
    """Whether a reported position contains ``gtid_set``, or if that is None, what the primary had at the start."""

    def __init__(self, document: SetDocument, history: History, gtid_set: str | None) -> None:
        self.document = document
        self.history = history
        self._asked_again_at_s = float("-inf")
        self.wanted = history.position
        if gtid_set is not None:
            self.wanted = parse_gtid_set(history.position.flavour, gtid_set)
            if self.wanted.is_empty:
                raise Fatal("MR-6001", f"{gtid_set!r} has no GTID", fix=_EMPTY)

    def missing(self, report: TaskReport) -> str:
        """The GTIDs not proven to have arrived, or "". Asks the primary at most every ``ASK_AGAIN_S``."""
        reached = parse_gtid_set(self.wanted.flavour, report.gtid_set)
        unproven = missing(self.wanted, reached, self.history)
        if not unproven or not reached.includes(self.wanted):
            return unproven
        # the numbers are reached, but by transactions that the primary had not logged at the last answer
        if time.monotonic() - self._asked_again_at_s >= ASK_AGAIN_S:
            self._asked_again_at_s = time.monotonic()
            try:
                self.history = primary_history(self.document)
            except Retryable:
                return unproven
        return missing(self.wanted, reached, self.history)


def source_set_of(now: Control, task: TaskDocument) -> str:
    """The set whose changes the task captures or reads. Fatal MR-4203 when no task captures to its topic."""
    return task.set_name if isinstance(task, CaptureTask) else capture_task_of(now, task).set_name


def capture_task_of(now: Control, task: Reader) -> CaptureTask:
    """The task that captures to the topic that is read, by any address of the same brokers; or Fatal MR-4203."""
    entries = now.store.tasks().values()
    return capture_task_among((e.document for e in entries if isinstance(e, TaskEntry)), task)


def _stopped(name: str, report: TaskReport, *, waiting: str = "") -> Fatal:
    """``waiting``: the apply task that receives no more records."""
    what = f"{waiting} waits for its capture task: " if waiting else ""
    if report.state is TaskState.BLOCKED:
        what += f"{name} is blocked: {report.code} {report.why}"
        return Fatal("MR-4202", what, fix=report.fix, blocked_by=report.code)
    return Fatal("MR-4202", f"{what}{name} is {report.why}", fix=f"`millrace task resume {name}`.")


def _timed_out(what: str, capture: str, proof: _Proof) -> Retryable:
    """MR-4201, with the stopped replicas: the capture task may read from one of them."""
    halted = halted_replicas(proof.document, proof.history)
    if not halted:
        return Retryable("MR-4201", what)
    starts = "; ".join(f"`{replica.start}` on {replica.member}" for replica in halted)
    switch = f"`millrace task pause {capture}` and `millrace task resume {capture}`"
    fix = f"{starts}; or {switch} to read from another member."
    return Retryable("MR-4201", "; ".join([what, *map(str, halted)]), fix=fix)


def _history_until(deadline_s: float, document: SetDocument) -> History:
    while True:
        try:
            return primary_history(document)
        except Retryable:
            if time.monotonic() + ASK_AGAIN_S > deadline_s:
                raise
            time.sleep(ASK_AGAIN_S)


def _report(cluster: Cluster, name: str) -> TaskReport:
    entry = cluster.tasks.get(name)
    if entry is None:
        raise Fatal("MR-4104", f"task {name} was deleted during the wait")
    return status_of(name, entry, cluster)
