"""The worker's loop: what is assigned to this worker runs, what is not does not.

Once a round, one frozen snapshot; ``decide`` (pure) says what to do with each task; slots do it in their threads,
so that a task that is slow to stop holds no other up.

Guarantees
- While the ensemble is away nothing is decided and running tasks go on, DEGRADED: the log says so of each by name, for
  nobody can read a status then, and says when it runs again.
- A session found to be over ends every slot: each stops, joins, and is made anew (a new lease, a new epoch) if the
  task is still ours by what the new session reads.
- A lease that a slot could not give up at its end is given up as soon as the ensemble answers.
- A document that can't be read changes nothing about a task that runs (the last good one stays).
- A task for which the machine has no thread is started as soon as it has one; the others go on.
- At the end every slot is joined before the session is closed; a slot that does not end within ``stop_s`` is named
  and its lease is left standing: it ends with the process.
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from millrace.codes import CATALOGUE
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.lack import lack_of
from millrace.log import get_logger
from schemas.documents import TaskKind, set_of
from schemas.status import TaskReport, TaskState
from zk.backoff import Pace
from zk.entries import Refused, SetEntry, set_entries, task_entries
from zk.lease import give_up
from zk.membership import Membership
from zk.mirror import Mirror
from zk.runner import TaskRunner
from zk.scheduler import workers_of
from zk.session import Session, SessionState
from zk.slot import Slot, Wanted, Workplace
from zk.status import StatusWriter, read_status, work_of
from zk.tree import Tree, lay

LOOK_S = 1.0  # without a watch firing; bounds how long a lost watch can delay

log = get_logger("zk.supervisor")


class Action(Enum):
    """What to do with one task in one round."""

    START = "start"
    END = "end"
    DROP = "drop"  # its slot has ended and is not wanted
    LEAVE = "leave"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A slot as ``decide`` sees it."""

    wanted: Wanted
    is_alive: bool
    is_ending: bool
    state: TaskState


def decide(
    assigned: Wanted | Refused | None, held: Held | None, *, blocked_revision: int | None
) -> Action:
    """One task: what is wanted of this worker (``None``: nothing), and what it does.

    ``blocked_revision`` is the revision under which the task was blocked, here or on another worker.
    """
    wanted = assigned if isinstance(assigned, Wanted) else None
    if held is not None and held.is_alive:
        if held.is_ending or isinstance(assigned, Refused):
            return Action.LEAVE
        if wanted is None or wanted.entry.desired.paused_by or not wanted.is_same_work(held.wanted):
            return Action.END
        is_newer = wanted.entry.revision != held.wanted.entry.revision
        # an operator acted while it waits for its next try: try now
        return Action.END if is_newer and held.state is TaskState.DEGRADED else Action.LEAVE
    if wanted is None or wanted.entry.desired.paused_by:
        return Action.DROP if held is not None else Action.LEAVE
    return Action.LEAVE if wanted.entry.revision == blocked_revision else Action.START


class Supervisor:
    """One worker of one kind."""

    def __init__(
        self,
        session: Session,
        tree: Tree,
        *,
        name: str,
        kind: TaskKind,
        runner: TaskRunner,
        pace: Pace | None = None,
    ) -> None:
        self._session = session
        self._tree = tree
        self._kind = kind
        self._wake = threading.Event()
        self._pace = pace or Pace()
        self._membership = Membership(session, tree, name=name, kind=kind)
        self._status = StatusWriter(session, tree, report_s=self._pace.report_s)
        self._place = Workplace(
            session=session,
            tree=tree,
            worker=name,
            runner=runner,
            status=self._status,
            pace=self._pace,
        )
        self._mirrors = {
            folder: Mirror(session, tree.folder(folder), self._wake.set)
            for folder in ("tasks", "sets", "assignments")
        }
        self._slots: dict[str, Slot] = {}
        self._blocked: dict[str, int] = {}
        self._left: set[str] = set()  # tasks whose slot may have left its owner node
        self._laid_in = -1
        self._stuck: set[str] = set()
        self._is_name_taken = False
        self._failure: BaseException | None = None  # of the thread that writes statuses
        self._away: dict[str, int] = {}  # tasks told of as without the ensemble, under which epoch
        session.on_state(self._state_changed)

    def run(self, stop: threading.Event) -> bool:
        """Until ``stop`` is set (``wake`` makes it look); False when a task's thread did not end in time.

        Raises what ended the thread that writes statuses, once every task has ended: nobody would see them any more.
        """
        writer_stop = threading.Event()
        writer = threading.Thread(target=self._write, args=(writer_stop,), name="status")
        writer.start()
        is_clean = False
        try:
            while not stop.is_set():
                self._look()
                self._tell_away()
                self._wake.wait(LOOK_S)
                self._wake.clear()
                if self._failure is not None:
                    raise self._failure
        finally:
            is_clean = self._end_all()
            writer_stop.set()
            writer.join()
        return is_clean

    def _write(self, stop: threading.Event) -> None:
        try:
            self._status.run(stop)
        except BaseException as error:  # noqa: BLE001 - comes out of `run`, and ends the process
            self._failure = error

    def wake(self) -> None:
        """Look now."""
        self._wake.set()

    def reports(self) -> Mapping[str, TaskReport]:
        """Every task's report as known here; RUNNING is DEGRADED while the ensemble is away."""
        return {name: self._overlaid(slot.report) for name, slot in tuple(self._slots.items())}

    def _look(self) -> None:
        try:
            self._round()
            self._is_name_taken = False
        except Retryable as error:
            if error.code == "MR-4009":
                self._tell_taken(error)
                return
            log.warning("ZooKeeper is away or busy: running tasks go on", error=error)
        except MillraceError as error:
            log.error("ZooKeeper refuses this worker: running tasks go on", error=error)

    def _round(self) -> None:
        if self._laid_in != self._session.incarnation:
            lay(self._session, self._tree)
            self._laid_in = self._session.incarnation
        self._give_up_what_was_left()
        self._membership.ensure()
        assigned = self._assigned()
        for name in sorted(assigned.keys() | self._slots.keys()):
            self._act(name, assigned.get(name))

    def _give_up_what_was_left(self) -> None:
        """A new slot removes it by itself, as it takes its own lease."""
        for name in sorted(self._left):
            if name not in self._slots:
                give_up(self._session, self._tree, task=name)
            self._left.discard(name)

    def _assigned(self) -> dict[str, Wanted | Refused]:
        """What this worker should run, by one snapshot."""
        nodes = {folder: mirror.snapshot() for folder, mirror in self._mirrors.items()}
        sets = set_entries(nodes["sets"])
        workers = workers_of(nodes["assignments"])
        found: dict[str, Wanted | Refused] = {}
        for name, entry in task_entries(nodes["tasks"]).items():
            if workers.get(name) != self._place.worker:
                continue
            if isinstance(entry, Refused):
                found[name] = entry
            elif entry.document.kind is self._kind:
                of = sets.get(set_of(entry.document))
                found[name] = Wanted(entry, of.document if isinstance(of, SetEntry) else None)
        return found

    def _act(self, name: str, assigned: Wanted | Refused | None) -> None:
        slot = self._slots.get(name)
        held = None
        if slot is not None:
            held = Held(
                wanted=slot.wanted,
                is_alive=slot.is_alive,
                is_ending=slot.is_ending,
                state=slot.report.state,
            )
            if not slot.is_alive and slot.report.state is TaskState.BLOCKED:
                self._blocked[name] = slot.wanted.entry.revision
            if slot.is_stuck and name not in self._stuck:
                self._tell_stuck(name)
        elif isinstance(assigned, Wanted) and name not in self._blocked:
            self._remember_block(name)
        match decide(assigned, held, blocked_revision=self._blocked.get(name)):
            case Action.START:
                assert isinstance(assigned, Wanted), "only what is wanted is started"
                self._start(name, assigned)
            case Action.END:
                assert slot is not None, "only a slot can end"
                slot.end()
            case Action.DROP:
                self._drop(name, assigned)
            case Action.LEAVE:
                pass

    def _start(self, name: str, wanted: Wanted) -> None:
        self._blocked.pop(name, None)
        slot = Slot(wanted, self._place, ended=self._wake.set)
        try:
            slot.start()
        except RuntimeError as error:
            if (lacking := lack_of(error)) is None:
                raise
            log.warning("a task is started later", task=name, error=lacking)
            return
        self._slots[name] = slot
        log.info("task started", task=name, kind=self._kind.value)

    def _drop(self, name: str, assigned: Wanted | Refused | None) -> None:
        slot = self._slots.pop(name)
        if slot.may_own:
            self._left.add(name)
        self._stuck.discard(name)
        self._blocked.pop(name, None)
        ran = slot.wanted.entry
        is_same_task = isinstance(assigned, Wanted) and assigned.entry.created == ran.created
        if isinstance(assigned, Wanted) and is_same_task and slot.report.epoch:
            by = assigned.entry.desired.paused_by
            paused = replace(
                slot.report,
                state=TaskState.PAUSED,
                why=f"paused by {by}",
                code="",
                fix="",
                next_try_s=0,
            )
            revision, work = assigned.entry.revision, work_of(ran.document)
            self._status.offer(name, paused, revision=revision, work=work, brokers=slot.brokers)
            self._status.flush(name)
        self._status.forget(name)
        log.info("task ended", task=name)

    def _remember_block(self, name: str) -> None:
        standing = read_status(self._session, self._tree, name)
        if standing is not None and standing.report.state is TaskState.BLOCKED:
            self._blocked[name] = standing.revision

    def _tell_taken(self, error: Retryable) -> None:
        """Once: it may last until another's session ends, and for as long as a worker of this name runs."""
        if not self._is_name_taken:
            log.error("another worker has this name: nothing is run until it is free", error=error)
        self._is_name_taken = True

    def _tell_away(self) -> None:
        """Once for each task, and once when it is over; a new run says for itself that it runs."""
        for name, report in self.reports().items():
            if report.code == "MR-4001" and name not in self._away:
                self._away[name] = report.epoch
                told = {"why": report.why, "code": report.code, "fix": report.fix}
                log.warning("task degraded", task=name, **told)
            if report.state is TaskState.RUNNING and self._away.pop(name, None) == report.epoch:
                log.info("task running", task=name, epoch=report.epoch)

    def _tell_stuck(self, name: str) -> None:
        self._stuck.add(name)
        error = Fatal("MR-4013", f"task {name} was asked to stop over {self._pace.stop_s:g} s ago")
        log.error("a task does not stop", task=name, error=error)

    def _end_all(self) -> bool:
        for slot in self._slots.values():
            slot.end()
        deadline_s = time.monotonic() + self._pace.stop_s  # for all together
        for slot in self._slots.values():
            slot.join(max(0.0, deadline_s - time.monotonic()))
        stuck = [name for name, slot in self._slots.items() if slot.is_alive]
        for name in stuck:
            self._tell_stuck(name)
        return not stuck

    def _state_changed(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            for slot in tuple(self._slots.values()):
                slot.end()
        self._wake.set()

    def _overlaid(self, report: TaskReport) -> TaskReport:
        if report.state is not TaskState.RUNNING or self._session.state is SessionState.CONNECTED:
            return report
        away = CATALOGUE["MR-4001"]
        return replace(
            report,
            state=TaskState.DEGRADED,
            why="ZooKeeper is away; rows are still moved",
            code=away.code,
            fix=away.fix,
        )
