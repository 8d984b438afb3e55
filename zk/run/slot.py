"""One task on one worker: a thread that acquires the lease, runs the runner, and retries.

    ┌──────────► acquire the lease ──held by another──► wait, ask again   ASSIGNED
    │                 │ new epoch
    │            runner.run(…)                                            RUNNING (as the runner reports)
    │                 │ returns or raises: all its threads are joined
    │            report the state, release the lease
    │                 │
    ├── Retryable, Fenced: pause ◄┤                                       DEGRADED
    │                             └── Fatal: the thread ends              BLOCKED

Guarantees
- One thread runs the runner and then releases the lease: the lease is never released while rows may move.
- A slot belongs to one session. When that is lost, the worker ends the slot and creates another if the task is still
  assigned to it: with a new lease, a new epoch, and a full start from the state of the topic or target.
- BLOCKED is written to the tree before the lease is released, if the ensemble can be reached. The worker also
  remembers it.
- While a task starts again after an error, its report keeps the error until the runner reports: an operator who looks
  at any moment sees the reason.

``except Exception`` is allowed here, because every error of a runner, or of acquiring its lease, must become a state
with a code, and in ``zk.run.subscriber_watch``.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from millrace.errors import Fatal, Fenced, MillraceError, Retryable
from millrace.faults import fault_point, register
from millrace.log import get_logger
from millrace.metrics import counter
from millrace.schemas.documents import RelayTask, SetDocument, Work, address_of, names_of, stream_of
from millrace.schemas.stages import SubscriberStage
from millrace.schemas.status import TaskReport, TaskState
from millrace.wording import with_names
from millrace.zk.client.session import Session
from millrace.zk.lease.lease import Lease, acquire
from millrace.zk.lease.starts import Starts
from millrace.zk.run.backoff import Failures, NextStep, Pace, after
from millrace.zk.run.runner import TaskRunner
from millrace.zk.tree.entries import WorkEntry
from millrace.zk.tree.paths import Tree
from millrace.zk.tree.reports import Offered, StatusWriter, read_status, work_of

LEASE_RETRY_S = 0.2  # between two attempts to acquire the lease

AFTER_ACQUIRE = register("zk.run.slot.after_acquire")
BEFORE_RELEASE = register("zk.run.slot.before_release")

FAILURES = counter("millrace_task_failures_total")
FENCED = counter("millrace_fenced_total")

log = get_logger("zk.run.slot")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """The state that all slots of a worker share."""

    session: Session
    tree: Tree
    worker: str
    runner: TaskRunner
    status: StatusWriter
    starts: Starts
    pace: Pace
    # the last measurement of a task's subscribers
    subscribers: Callable[[str], tuple[SubscriberStage, ...]] = lambda _task: ()


@dataclass(frozen=True, slots=True)
class AssignedTask:
    """A task that this worker should run, and its set (``None`` when that can't be read)."""

    entry: WorkEntry
    set_document: SetDocument | None

    def is_same_work(self, other: "AssignedTask") -> bool:
        """Whether the running task ``other`` may continue as this one. A resume, for one, only changes the revision.

        If the set can't be read, the last good one stays in use. A task that was deleted and created again is another
        task, even if its document is the same.
        """
        mine, others = self.entry, other.entry
        return (
            mine.created == others.created
            and mine.document == others.document
            and self._has_same_stream(other)
        )

    def _has_same_stream(self, other: "AssignedTask") -> bool:
        if self.set_document is None or other.set_document is None:
            return self.set_document is None
        return stream_of(self.set_document) == stream_of(other.set_document)


class Slot:
    """The thread that runs one task."""

    def __init__(
        self, task: AssignedTask, context: WorkerContext, *, on_end: Callable[[], None]
    ) -> None:
        """The slot's thread calls ``on_end`` at its very end."""
        self.task = task
        self._context = context
        self._on_end = on_end
        self._name = task.entry.document.name
        self._names = names_of(task.entry.document)
        self._ending = threading.Event()
        # the last report, even if it could not be written to ZooKeeper, and the brokers of its progress
        self.report = TaskReport(TaskState.ASSIGNED, "starting", worker=context.worker)
        self.brokers = _brokers_of(task.entry.document)
        self._ending_since_s = float("inf")
        self._running_since_s: float | None = None
        self._incarnation: int | None = None  # of the session of the last lease
        self.may_own = False  # the owner node may exist: held, or its creation had no answer
        self._has_start = False  # our record in `starts` may exist
        self.ended_runs = 0  # with or without an error
        self._thread = threading.Thread(
            target=self._run_thread, name=f"task {self._name}", daemon=True
        )

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def end(self) -> None:
        """Stop the task; returns immediately. The thread waits for the runner to return, then releases the lease."""
        if not self._ending.is_set():
            self._ending_since_s = time.monotonic()
        self._ending.set()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread; whether it has ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def is_alive(self) -> bool:
        """Whether the thread still runs, so that rows may move."""
        return self._thread.is_alive()

    @property
    def is_ending(self) -> bool:
        """Whether the slot was asked to end."""
        return self._ending.is_set()

    @property
    def is_stuck(self) -> bool:
        """Whether the slot takes longer to end than ``Pace.stop_s``."""
        return self.is_alive and time.monotonic() - self._ending_since_s > self._context.pace.stop_s

    @property
    def is_proven(self) -> bool:
        """Whether it has run longer than the processes that ended under this task: then it does not kill this one."""
        since_s = self._running_since_s
        if since_s is None:
            return False
        trial_s = max(self._context.pace.steady_s, self._context.starts.trial_s(self._name))
        return time.monotonic() - since_s >= trial_s

    def _run_thread(self) -> None:
        try:
            self._run_until_ended()
        finally:
            self._on_end()

    def _run_until_ended(self) -> None:
        failures = Failures()
        step: NextStep | None = None
        while not self._ending.is_set():
            lease = self._try_acquire()
            if lease is None:
                continue
            self._incarnation = lease.incarnation
            fault_point(AFTER_ACQUIRE)
            error = self._run(lease, step)
            self.ended_runs += 1
            failures = self._reset_after_steady_run(failures)
            if error is None and self._ending.is_set():
                self._set_state(TaskState.ASSIGNED, why="stopped by this worker", epoch=lease.epoch)
                self._release(lease)
                return
            step = self._after_failure(error, failures)
            failures = step.failures
            self._release(lease)
            if step.state is TaskState.BLOCKED:
                return
            self._ending.wait(step.wait_s)

    def _try_acquire(self) -> Lease | None:
        """A new lease, or ``None`` after a pause."""
        context = self._context
        self.may_own = True
        try:
            return acquire(context.session, context.tree, task=self._name, worker=context.worker)
        except Retryable as error:
            self.may_own = error.code != "MR-4004"
            self.report = replace(
                self.report,
                # another holder is normal while the task moves; an ensemble that is away is not
                state=self.report.state.to(
                    TaskState.ASSIGNED if error.code == "MR-4004" else TaskState.DEGRADED
                ),
                why=f"waits for its lease: {error.full_message}",
                code=error.code,
                fix=error.name(**self._names).fix,
                next_try_s=0.0,
            )
            self._ending.wait(LEASE_RETRY_S)
        except Exception as error:  # noqa: BLE001  # every error becomes a state
            step = self._after_failure(error, Failures())
            if step.state is TaskState.BLOCKED:
                self.end()
            self._ending.wait(step.wait_s)
        return None

    def _run(self, lease: Lease, failed: NextStep | None) -> BaseException | None:
        """The error that ended the run. ``failed``: what came of the run before it."""
        self._running_since_s = None
        try:
            self._load_progress()
            if failed is None:
                self._set_state(TaskState.ASSIGNED, why="starting", epoch=lease.epoch)
            else:
                error = failed.error
                self._set_state(
                    failed.state, why=error.full_message, error=error, epoch=lease.epoch
                )
            self._context.starts.begin(self._name, revision=self.task.entry.revision)
            self._has_start = True
            self._context.runner.run(
                self.task.entry.document,
                lease=lease,
                stop=self._ending,
                report=lambda report: self._on_report(report, lease),
            )
        except Exception as error:  # noqa: BLE001  # every error becomes a state
            # a task that was asked to stop and fails while it stops has stopped, unless the error is Fatal
            return None if self._ending.is_set() and not isinstance(error, Fatal) else error
        return None

    def _after_failure(self, error: BaseException | None, failures: Failures) -> NextStep:
        """Decide the next step, report the new state and log it."""
        step = after(error, failures, self._context.pace)
        step.error.name(**self._names)
        FAILURES.labels(code=step.error.code).inc()
        FENCED.inc(isinstance(error, Fenced))
        self._set_state(
            step.state, why=step.error.full_message, error=step.error, next_try_s=step.wait_s
        )
        self._log_failure(step.state, error, step.error)
        return step

    def _load_progress(self) -> None:
        """Before the first report: take over the progress that an earlier owner of this work reported."""
        if self.report.epoch:
            return
        saved = read_status(self._context.session, self._context.tree, self._name)
        entry = self.task.entry
        if saved is not None and saved.is_of(entry.document, created=entry.created):
            known, self.brokers = saved.report, saved.brokers
            self.report = replace(
                self.report,
                gtid_set=known.gtid_set,
                seq=known.seq,
                topic=known.topic,
                topic_end=known.topic_end,
            )

    def _on_report(self, report: TaskReport, lease: Lease) -> None:
        """Publish a runner's report. A runner only reports RUNNING and DEGRADED."""
        self.brokers = _brokers_of(self.task.entry.document)
        if report.state is TaskState.RUNNING and self._running_since_s is None:
            self._running_since_s = time.monotonic()
            log.info("task running", task=self._name, epoch=lease.epoch)
        fix = with_names(report.fix, self._names)
        context = self._context
        subscribers = context.subscribers(self._name)
        own = replace(report, worker=context.worker, epoch=lease.epoch, subscribers=subscribers)
        self._offer(replace(own, fix=fix))

    def _reset_after_steady_run(self, failures: Failures) -> Failures:
        """``failures``, or none if the last run moved rows for a while. Notes whether it ran at all."""
        since_s = self._running_since_s
        if since_s is None:
            return failures
        if time.monotonic() - since_s >= self._context.pace.steady_s:
            return Failures(has_run=True)
        return replace(failures, has_run=True)

    def _set_state(
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
                self.report.at_rest(),
                state=self.report.state.to(state),
                why=why,
                code=error.code if error else "",
                fix=error.fix if error else "",
                next_try_s=next_try_s,
                epoch=self.report.epoch if epoch is None else epoch,
            )
        )

    def _offer(self, report: TaskReport) -> None:
        self.report = report
        offered = Offered(
            report,
            self.task.entry.revision,
            work=work_of(self.task.entry.document),
            brokers=self.brokers,
            # BLOCKED stays valid after the session: an operator has to act
            incarnation=None if report.state is TaskState.BLOCKED else self._incarnation,
        )
        self._context.status.offer(self._name, offered)

    def _release(self, lease: Lease) -> None:
        self._context.status.flush(self._name)
        fault_point(BEFORE_RELEASE)
        try:
            if self._has_start:  # first, or the next owner counts our record as a kill
                self._context.starts.end(self._name)
                self._has_start = False
            lease.release()
            self.may_own = False
        except MillraceError as error:
            # deleted later by our next acquire, by the supervisor, or with the session
            log.warning("the lease could not be released now", task=self._name, error=error)

    def _log_failure(
        self, state: TaskState, error: BaseException | None, reported: MillraceError
    ) -> None:
        log.warning(
            f"task {state.value}",
            task=self._name,
            error=reported,
            exc_info=None if error is None or isinstance(error, MillraceError) else error,
        )


def _brokers_of(task: Work) -> str:
    return "" if isinstance(task, RelayTask) else address_of(task).brokers.bootstrap
