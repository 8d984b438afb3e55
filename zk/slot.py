"""One task on one worker: a thread that takes the lease, runs the runner, and tries again.

    ┌──────────► take the lease ──held by another──► wait, ask again      ASSIGNED
    │                 │ new epoch
    │            runner.run(…)                                            RUNNING (by its own report)
    │                 │ returns or raises: all its threads are joined
    │            tell the state, give the lease up
    │                 │
    ├── Retryable, Fenced: pause ◄┤                                       DEGRADED
    │                             └── Fatal: the thread ends              BLOCKED

Guarantees
- The runner and the release of the lease are steps of one thread: the lease is never given up while rows may move.
- One slot lives in one session: when that is lost the worker ends the slot, and makes another if the task is still
  its own: new lease, new epoch, and with it a full start from the truth in topic or target.
- BLOCKED stands in the tree before the lease goes, if the ensemble can be reached; it is remembered here anyway.

The one place where ``except Exception`` is allowed: whatever a runner raises, or whatever is raised where its lease is
taken, must become a state with a code.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from millrace.errors import Fatal, MillraceError, Retryable
from millrace.faults import fault_point, register
from millrace.log import get_logger
from schemas.documents import SetDocument, address_of
from schemas.status import TaskReport, TaskState
from zk.backoff import NextStep, Pace, Tries, after
from zk.entries import TaskEntry
from zk.lease import Lease, acquire
from zk.runner import TaskRunner
from zk.session import Session
from zk.status import StatusWriter, read_status, work_of
from zk.tree import Tree

HANDOVER_S = 0.2  # how often a lease that another still holds is asked for

AFTER_ACQUIRE = register("zk.slot.after_acquire")
BEFORE_RELEASE = register("zk.slot.before_release")

log = get_logger("zk.slot")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """What all slots of a worker share."""

    session: Session
    tree: Tree
    worker: str
    runner: TaskRunner
    status: StatusWriter
    pace: Pace


@dataclass(frozen=True, slots=True)
class Wanted:
    """What should run: the task and the set it connects to (``None`` when that can't be read)."""

    entry: TaskEntry
    set_document: SetDocument | None

    def is_same_work(self, other: "Wanted") -> bool:
        """Whether a running task may go on as ``other``: a pause undone or a resume changes only the revision.

        A set that can't be read is no other set: the last good one stays. One that was deleted and created again is
        another task, whatever it says.
        """
        mine, others = self.entry, other.entry
        return (
            mine.created == others.created
            and mine.document == others.document
            and self.set_document in (None, other.set_document)
        )


class Slot:
    """A task that this worker should run."""

    def __init__(self, wanted: Wanted, place: Workplace, *, ended: Callable[[], None]) -> None:
        """``ended`` is called from the slot's thread as its last act."""
        self.wanted = wanted
        self._place = place
        self._ended = ended
        self._name = wanted.entry.document.name
        self._ending = threading.Event()
        self._report = TaskReport(TaskState.ASSIGNED, "starting", worker=place.worker)
        self._brokers = address_of(wanted.entry.document).bootstrap
        self._ending_since_s = float("inf")
        self._running_since_s: float | None = None
        self._incarnation: int | None = None  # of the session that the last lease was taken in
        self._may_own = False
        self._thread = threading.Thread(target=self._live, name=f"task {self._name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def end(self) -> None:
        """Stop for good; returns at once. The thread joins its work, then gives the lease up."""
        if not self._ending.is_set():
            self._ending_since_s = time.monotonic()
        self._ending.set()

    def join(self, timeout_s: float) -> bool:
        """Whether the thread has ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def is_alive(self) -> bool:
        """The thread has not ended: rows may move."""
        return self._thread.is_alive()

    @property
    def is_ending(self) -> bool:
        """Asked to end."""
        return self._ending.is_set()

    @property
    def is_stuck(self) -> bool:
        """Asked to end longer ago than a stop may take."""
        return self.is_alive and time.monotonic() - self._ending_since_s > self._place.pace.stop_s

    @property
    def may_own(self) -> bool:
        """An owner node of ours may stand: a lease is held, or one was not given up, or its making had no answer."""
        return self._may_own

    @property
    def report(self) -> TaskReport:
        """As known here, whether or not ZooKeeper could be told."""
        return self._report

    @property
    def brokers(self) -> str:
        """Where the progress of ``report`` was made: the document's, once its runner has told any."""
        return self._brokers

    def _live(self) -> None:
        try:
            self._work()
        finally:
            self._ended()

    def _work(self) -> None:
        tries = Tries()
        while not self._ending.is_set():
            lease = self._lease()
            if lease is None:
                continue
            self._incarnation = lease.incarnation
            fault_point(AFTER_ACQUIRE)
            error = self._run(lease)
            tries = self._settled(tries)
            if error is None and self._ending.is_set():
                self._tell(TaskState.ASSIGNED, why="stopped by this worker", epoch=lease.epoch)
                self._release(lease)
                return
            step = self._told(error, tries)
            tries = step.tries
            self._release(lease)
            if step.state is TaskState.BLOCKED:
                return
            self._ending.wait(step.wait_s)

    def _lease(self) -> Lease | None:
        """A new lease, or ``None`` after a short wait."""
        place = self._place
        self._may_own = True
        try:
            return acquire(place.session, place.tree, task=self._name, worker=place.worker)
        except Retryable as error:
            self._may_own = error.code != "MR-4004"
            self._report = replace(
                self._report,
                # another holder is the ordinary hand-over; an ensemble that is away is not
                state=self._report.state.to(
                    TaskState.ASSIGNED if error.code == "MR-4004" else TaskState.DEGRADED
                ),
                why=f"waits for its lease: {error.told}",
                code=error.code,
                fix=error.fix,
                next_try_s=0.0,
            )
            self._ending.wait(HANDOVER_S)
        except Exception as error:  # noqa: BLE001  # whatever it is, it becomes a state
            step = self._told(error, Tries())
            if step.state is TaskState.BLOCKED:
                self.end()
            self._ending.wait(step.wait_s)
        return None

    def _run(self, lease: Lease) -> BaseException | None:
        self._running_since_s = None
        try:
            self._remember()
            self._tell(TaskState.ASSIGNED, why="starting", epoch=lease.epoch)
            self._place.runner.run(
                self.wanted.entry.document,
                lease=lease,
                stop=self._ending,
                report=lambda report: self._heard(report, lease),
            )
        except Exception as error:  # noqa: BLE001  # whatever it is, it becomes a state
            # asked to stop and failing on the way out is a stop
            return None if self._ending.is_set() and not isinstance(error, Fatal) else error
        return None

    def _told(self, error: BaseException | None, tries: Tries) -> NextStep:
        """What comes next, once its state and the log say so."""
        step = after(error, tries, self._place.pace)
        self._tell(step.state, why=step.error.told, error=step.error, next_try_s=step.wait_s)
        self._log_failure(step.state, error, step.error)
        return step

    def _remember(self) -> None:
        """Before anything is told: how far this work came under an earlier owner stays in its status."""
        if self._report.epoch:
            return
        standing = read_status(self._place.session, self._place.tree, self._name)
        entry = self.wanted.entry
        if standing is not None and standing.is_of(entry.document, created=entry.created):
            known, self._brokers = standing.report, standing.brokers
            self._report = replace(
                self._report,
                gtid_set=known.gtid_set,
                seq=known.seq,
                topic=known.topic,
                topic_end=known.topic_end,
            )

    def _heard(self, report: TaskReport, lease: Lease) -> None:
        """A runner's report; only RUNNING and DEGRADED are its to say."""
        self._brokers = address_of(self.wanted.entry.document).bootstrap
        if report.state is TaskState.RUNNING and self._running_since_s is None:
            self._running_since_s = time.monotonic()
            log.info("task running", task=self._name, epoch=lease.epoch)
        self._offer(replace(report, worker=self._place.worker, epoch=lease.epoch))

    def _settled(self, tries: Tries) -> Tries:
        """A run that moved rows for a while ends a row of failures."""
        since_s = self._running_since_s
        if since_s is not None and time.monotonic() - since_s >= self._place.pace.steady_s:
            return Tries()
        return tries

    def _tell(
        self,
        state: TaskState,
        *,
        why: str,
        error: MillraceError | None = None,
        next_try_s: float = 0.0,
        epoch: int | None = None,
    ) -> None:
        self._offer(
            replace(
                self._report,
                state=self._report.state.to(state),
                why=why,
                code=error.code if error else "",
                fix=error.fix if error else "",
                next_try_s=next_try_s,
                epoch=self._report.epoch if epoch is None else epoch,
            )
        )

    def _offer(self, report: TaskReport) -> None:
        self._report = report
        self._place.status.offer(
            self._name,
            report,
            revision=self.wanted.entry.revision,
            work=work_of(self.wanted.entry.document),
            brokers=self._brokers,
            # that an operator has to act is true whatever becomes of the session
            incarnation=None if report.state is TaskState.BLOCKED else self._incarnation,
        )

    def _release(self, lease: Lease) -> None:
        self._place.status.flush(self._name)
        fault_point(BEFORE_RELEASE)
        try:
            lease.release()
            self._may_own = False
        except MillraceError as error:
            # the next acquire of this session removes it, or the supervisor, or the session's end
            log.warning("the lease could not be given up", task=self._name, error=error)

    def _log_failure(
        self, state: TaskState, error: BaseException | None, told: MillraceError
    ) -> None:
        log.warning(
            f"task {state.value}",
            task=self._name,
            error=told,
            exc_info=None if error is None or isinstance(error, MillraceError) else error,
        )
