"""The worker's loop: it starts the tasks that are assigned to this worker and ends all others.

Each round takes one immutable snapshot of the tree. ``decide`` (pure) chooses an action for each task. Each task runs
in the thread of its slot (``zk.run.slot``), so a task that is slow to stop delays no other task.

Guarantees
- While ZooKeeper can't be reached, nothing is decided, and running tasks continue, DEGRADED. `millrace status` does not
  work then, so the log names each of these tasks, and names it again when it is RUNNING.
- When the session is lost, every slot is ended. If the new session still assigns a task to this worker, the task gets a
  new slot once the old one has ended, with a new lease and a new epoch.
- A lease that a slot could not release at its end is released as soon as ZooKeeper answers.
- If the document of a running task can no longer be read, the task continues with the last good one.
- Tasks that may have killed earlier processes (``zk.lease.starts``) are started one after another. Each waits until the
  previous one has run longer than those processes did, or ended. So if this process ends, it is clear by which task.
- If the machine has no thread left for a task, the task is started in a later round. The others continue.
- When the worker stops, all slots are ended and joined before the session is closed. A slot that does not end within
  ``stop_s`` is logged. Its lease is not released: it ends with the process.
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from millrace.codes import CATALOGUE
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.log import get_logger
from millrace.process.shortage import shortage_of
from millrace.schemas.documents import RelayTask, TaskDocument, set_of
from millrace.schemas.status import TaskReport, TaskState
from millrace.zk.client.mirror import Mirror
from millrace.zk.client.session import Session, SessionState
from millrace.zk.lease.lease import release_leftover
from millrace.zk.lease.membership import Membership, WorkerIdentity
from millrace.zk.lease.starts import Starts
from millrace.zk.placement.nodes import workers_of
from millrace.zk.run.backoff import Pace
from millrace.zk.run.runner import TaskRunner
from millrace.zk.run.slot import AssignedTask, Slot, WorkerContext
from millrace.zk.run.subscriber_watch import SubscriberWatch
from millrace.zk.tree.entries import (
    WORK_FOLDERS,
    SetEntry,
    UnreadableEntry,
    set_entries,
    work_entries,
)
from millrace.zk.tree.paths import Tree, create_tree
from millrace.zk.tree.reports import Offered, StatusWriter, read_status, work_of

WATCHER_END_S = 10.0  # it writes nothing, so the process may end before it
ROUND_S = 1.0  # the longest pause between two rounds; a watch ends it early

log = get_logger("zk.run.supervisor")


class Action(Enum):
    """The action for one task in one round."""

    START = "start"
    END = "end"
    DROP = "drop"  # forget its slot, which has ended
    LEAVE = "leave"  # do nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotState:
    """A slot as ``decide`` sees it."""

    task: AssignedTask
    is_alive: bool
    is_ending: bool
    state: TaskState


def decide(
    assigned: AssignedTask | UnreadableEntry | None,
    slot: SlotState | None,
    *,
    blocked_revision: int | None,
) -> Action:
    """The action for one task, from its assignment to this worker and its slot (``None``: there is none).

    ``blocked_revision`` is the revision at which the task was blocked, on this or another worker. A task is not started
    again at that revision: an operator must act first.
    """
    task = assigned if isinstance(assigned, AssignedTask) else None
    if slot is not None and slot.is_alive:
        if slot.is_ending or isinstance(assigned, UnreadableEntry):
            return Action.LEAVE
        if task is None or task.entry.paused_by or not task.is_same_work(slot.task):
            return Action.END
        is_newer = task.entry.revision != slot.task.entry.revision
        # an operator acted while the task waits for its next attempt: retry now
        return Action.END if is_newer and slot.state is TaskState.DEGRADED else Action.LEAVE
    if task is None or task.entry.paused_by:
        return Action.DROP if slot is not None else Action.LEAVE
    return Action.LEAVE if task.entry.revision == blocked_revision else Action.START


class Supervisor:
    """Runs the tasks of one worker."""

    def __init__(
        self,
        session: Session,
        tree: Tree,
        *,
        worker: WorkerIdentity,
        runner: TaskRunner,
        pace: Pace | None = None,
    ) -> None:
        self._session = session
        self._tree = tree
        self._kind = worker.kind
        self._wake = threading.Event()
        self._pace = pace or Pace()
        self._membership = Membership(session, tree, worker)
        self._status = StatusWriter(
            session, tree, report_s=self._pace.report_s, progress_s=self._pace.progress_s
        )
        self._subscribers = SubscriberWatch(session, tree)
        self._starts = Starts(session, tree, worker=worker.name, kills_max=self._pace.kills_max)
        self._context = WorkerContext(
            session=session,
            tree=tree,
            worker=worker.name,
            runner=runner,
            status=self._status,
            starts=self._starts,
            pace=self._pace,
            subscribers=self._subscribers.latest,
        )
        self._mirrors = {
            folder: Mirror(session, tree.folder(folder), self._wake.set)
            for folder in (*WORK_FOLDERS, "assignments")
        }
        self._slots: dict[str, Slot] = {}
        self._blocked: dict[str, int] = {}
        self._leftovers: set[str] = set()  # tasks whose ended slot may have left its owner node
        self._tree_created_in = -1  # the session's incarnation in which we created it
        self._reported_stuck: set[str] = set()
        self._on_trial = ""  # the task that may kill the process
        self._is_name_taken = False  # the worker's name, by another worker
        self._writer_error: BaseException | None = None  # the error that ended the report writer
        self._reported_away: dict[str, int] = {}  # task → its epoch when that was logged
        self._round_at_s = time.monotonic()
        self._unready = "it has not registered yet"
        session.on_state(self._state_changed)

    def run(self, stop: threading.Event) -> bool:
        """Run until ``stop`` is set; call ``wake`` after setting it. False when a task's thread did not end in time.

        If the thread that writes reports fails, ends all tasks and raises its error: no status would be written.
        """
        writer_stop = threading.Event()
        writer = threading.Thread(target=self._write, args=(writer_stop,), name="status")
        writer.start()
        watcher = threading.Thread(
            target=self._subscribers.run,
            args=(writer_stop, self._running),
            name="subscribers",
            daemon=True,  # it may wait for brokers
        )
        watcher.start()
        is_clean = False
        try:
            while not stop.is_set():
                self._try_round()
                self._log_away()
                self._wake.wait(ROUND_S)
                self._wake.clear()
                if self._writer_error is not None:
                    raise self._writer_error
        finally:
            is_clean = self._end_all()
            writer_stop.set()
            writer.join()
            self._subscribers.wake()
            watcher.join(WATCHER_END_S)
        return is_clean

    def _write(self, stop: threading.Event) -> None:
        try:
            self._status.run(stop)
        except BaseException as error:  # noqa: BLE001 - raised by `run`, ends the process
            self._writer_error = error

    def _running(self) -> dict[str, TaskDocument]:
        """The tasks that run now."""
        found = {}
        for name, slot in tuple(self._slots.items()):
            document = slot.task.entry.document
            if slot.report.state is TaskState.RUNNING and not isinstance(document, RelayTask):
                found[name] = document
        return found

    def wake(self) -> None:
        """Start the next round now."""
        self._wake.set()

    def reports(self) -> Mapping[str, TaskReport]:
        """The report of every task of this worker, with how long its runner has been silent.

        While ZooKeeper can't be reached, RUNNING becomes DEGRADED.
        """
        return {
            name: replace(
                self._degraded_while_away(slot.report), silent_s=self._status.silent_s(name)
            )
            for name, slot in tuple(self._slots.items())
        }

    @property
    def round_ages_s(self) -> Mapping[str, float]:
        """How long ago each loop of this worker began its last round."""
        now_s = time.monotonic()
        return {"supervisor": now_s - self._round_at_s, "status writer": self._status.round_age_s}

    @property
    def unready(self) -> str:
        """Why this worker takes no tasks; "" if it is registered and has read its assignments."""
        if self._session.state is not SessionState.CONNECTED:
            return f"the session to ZooKeeper is {self._session.state.value}"
        return self._unready

    def _try_round(self) -> None:
        self._round_at_s = time.monotonic()
        try:
            self._round()
            if self._is_name_taken:
                log.info("the worker's name is free")
            self._is_name_taken = False
            self._unready = ""
        except Retryable as error:
            self._unready = str(error)
            if error.code == "MR-4009":
                self._log_name_taken(error)
                return
            log.warning(
                "ZooKeeper can't be reached or is busy: running tasks continue", error=error
            )
        except MillraceError as error:
            self._unready = str(error)
            log.error("ZooKeeper refuses this worker: running tasks continue", error=error)

    def _round(self) -> None:
        if self._tree_created_in != self._session.incarnation:
            create_tree(self._session, self._tree)
            self._tree_created_in = self._session.incarnation
        self._release_leftovers()
        self._membership.ensure()
        self._watch_trial()
        assigned = self._assigned()
        for name in sorted(assigned.keys() | self._slots.keys()):
            self._act(name, assigned.get(name))

    def _release_leftovers(self) -> None:
        """Delete owner nodes that ended slots left behind. If the task has a new slot, that slot does so itself."""
        for name in sorted(self._leftovers):
            if name not in self._slots:
                release_leftover(self._session, self._tree, task=name)
            self._leftovers.discard(name)

    def _assigned(self) -> dict[str, AssignedTask | UnreadableEntry]:
        """The tasks that one snapshot assigns to this worker."""
        nodes = {folder: mirror.snapshot() for folder, mirror in self._mirrors.items()}
        sets = set_entries(nodes["sets"])
        workers = workers_of(nodes["assignments"])
        found: dict[str, AssignedTask | UnreadableEntry] = {}
        for name, entry in work_entries(nodes).items():
            if workers.get(name) != self._context.worker:
                continue
            if isinstance(entry, UnreadableEntry):
                found[name] = entry
            elif entry.document.kind.worker is self._kind:
                its_set = sets.get(set_of(entry.document))
                found[name] = AssignedTask(
                    entry, its_set.document if isinstance(its_set, SetEntry) else None
                )
        return found

    def _act(self, name: str, assigned: AssignedTask | UnreadableEntry | None) -> None:
        slot = self._slots.get(name)
        state = None
        if slot is not None:
            state = SlotState(
                task=slot.task,
                is_alive=slot.is_alive,
                is_ending=slot.is_ending,
                state=slot.report.state,
            )
            if not slot.is_alive and slot.report.state is TaskState.BLOCKED:
                self._blocked[name] = slot.task.entry.revision
            if slot.is_stuck and name not in self._reported_stuck:
                self._log_stuck(name)
        elif isinstance(assigned, AssignedTask) and name not in self._blocked:
            self._load_block(name)
        match decide(assigned, state, blocked_revision=self._blocked.get(name)):
            case Action.START:
                assert isinstance(assigned, AssignedTask), "only an assigned task is started"
                self._start(name, assigned)
            case Action.END:
                assert slot is not None, "only a task with a slot is ended"
                slot.end()
            case Action.DROP:
                self._drop(name, assigned)
            case Action.LEAVE:
                pass

    def _start(self, name: str, task: AssignedTask) -> None:
        if self._starts.is_suspect(name, revision=task.entry.revision):
            if self._on_trial:
                return
            self._starts.begin_trial(name)
            self._on_trial = name
            log.warning("a task is on trial: processes ended under it", task=name)
        self._blocked.pop(name, None)
        slot = Slot(task, self._context, on_end=self._wake.set)
        try:
            slot.start()
        except RuntimeError as error:
            if (shortage := shortage_of(error)) is None:
                raise
            log.warning("a task is started later", task=name, error=shortage)
            return
        self._slots[name] = slot
        log.info("task started", task=name, kind=task.entry.document.kind.value)

    def _watch_trial(self) -> None:
        """End the trial of a task that has passed it, or whose run has ended."""
        if not self._on_trial:
            return
        slot = self._slots.get(self._on_trial)
        is_over = slot is None or not slot.is_alive or slot.ended_runs > 0
        is_cleared = not is_over and slot is not None and slot.is_proven
        if is_over or is_cleared:
            self._starts.end_trial(is_cleared=is_cleared)
            log.info("a trial is over", task=self._on_trial, is_cleared=is_cleared)
            self._on_trial = ""

    def _drop(self, name: str, assigned: AssignedTask | UnreadableEntry | None) -> None:
        slot = self._slots.pop(name)
        if slot.may_own:
            self._leftovers.add(name)
        self._reported_stuck.discard(name)
        self._blocked.pop(name, None)
        ran = slot.task.entry
        is_same_task = isinstance(assigned, AssignedTask) and assigned.entry.created == ran.created
        if isinstance(assigned, AssignedTask) and is_same_task and slot.report.epoch:
            by = assigned.entry.paused_by
            paused = replace(
                slot.report,
                state=TaskState.PAUSED,
                why=f"paused by {by}",
                code="",
                fix="",
                next_try_s=0,
            )
            revision, work = assigned.entry.revision, work_of(ran.document)
            offered = Offered(paused, revision, work=work, brokers=slot.brokers)
            self._status.offer(name, offered)
            self._status.flush(name)
        self._status.forget(name)
        log.info("task ended", task=name)

    def _load_block(self, name: str) -> None:
        saved = read_status(self._session, self._tree, name)
        if saved is not None and saved.report.state is TaskState.BLOCKED:
            self._blocked[name] = saved.revision

    def _log_name_taken(self, error: Retryable) -> None:
        """Log it once: it may last until the other worker, or only its session, has ended."""
        if not self._is_name_taken:
            log.error(
                "another worker has this name: no task is started until it is free", error=error
            )
        self._is_name_taken = True

    def _log_away(self) -> None:
        """Log each task once when ZooKeeper is lost and once when it is back, unless a new run has logged itself."""
        for name, report in self.reports().items():
            if report.code == "MR-4001" and name not in self._reported_away:
                self._reported_away[name] = report.epoch
                reason = {"why": report.why, "code": report.code, "fix": report.fix}
                log.warning("task degraded", task=name, **reason)
            was_away_in = (
                self._reported_away.pop(name, None) if report.state is TaskState.RUNNING else None
            )
            if was_away_in == report.epoch:
                log.info("task running", task=name, epoch=report.epoch)

    def _log_stuck(self, name: str) -> None:
        self._reported_stuck.add(name)
        error = Fatal("MR-4013", f"task {name} was asked to stop over {self._pace.stop_s:g} s ago")
        log.error("a task does not stop", task=name, error=error)

    def _end_all(self) -> bool:
        for slot in self._slots.values():
            slot.end()
        deadline_s = time.monotonic() + self._pace.stop_s  # for all slots together
        for slot in self._slots.values():
            slot.join(max(0.0, deadline_s - time.monotonic()))
        stuck = [name for name, slot in self._slots.items() if slot.is_alive]
        for name in stuck:
            self._log_stuck(name)
        return not stuck

    def _state_changed(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            for slot in tuple(self._slots.values()):
                slot.end()
        self._wake.set()

    def _degraded_while_away(self, report: TaskReport) -> TaskReport:
        if report.state is not TaskState.RUNNING or self._session.state is SessionState.CONNECTED:
            return report
        away = CATALOGUE["MR-4001"]
        return replace(
            report,
            state=TaskState.DEGRADED,
            why="ZooKeeper can't be reached; the task still moves rows",
            code=away.code,
            fix=away.fix,
        )
