"""The interface between the supervisor and the code that moves rows, for capture and for apply.

Each worker has one runner and calls ``run`` in a separate thread for each task. A runner
- reads its start position from the topic or target at every start, after ``lease.verify()``;
- returns within seconds after ``stop`` is set, **with all its threads joined**: the lease is released as soon as it
  returns, and a successor may start at once;
- raises the errors that it can't handle: Retryable (run again after a pause, with a new lease), Fenced (ask
  ZooKeeper, new lease), Fatal (blocked until an operator acts);
- reports as often as it likes: only the latest report is kept, and written at most twice a second.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Protocol

from millrace.schemas.documents import ApplyTask, CaptureTask, SetDocument, TaskDocument, Work
from millrace.schemas.requests.decision import Decision
from millrace.schemas.requests.snapshot_request import SnapshotRequests
from millrace.schemas.status import TaskReport

Report = Callable[[TaskReport], None]


class HeldLease(Protocol):
    """A runner's view of the lease: the right to run one task."""

    @property
    def task(self) -> str:
        """The task's name."""

    @property
    def epoch(self) -> int:
        """Greater than the epoch of every earlier lease of this task."""

    def is_held(self) -> bool:
        """False once the session is known to be over. Does not ask ZooKeeper."""

    def verify(self) -> None:
        """Ask ZooKeeper. Fenced MR-4003 when the lease is lost, Retryable MR-4001 when ZooKeeper is away."""


class TaskRunner(Protocol):
    """Moves the rows of tasks of one kind."""

    def run(self, task: Work, *, lease: HeldLease, stop: threading.Event, report: Report) -> None:
        """Move rows until ``stop`` is set or an error is raised. The module lists the duties."""


class SetSource(Protocol):
    """The ZooKeeper data that a runner can read besides its task."""

    def set_document(self, name: str) -> SetDocument:
        """The set's current document. Retryable while ZooKeeper is away, or the set is missing or unreadable."""

    def capture_task_of(self, task: ApplyTask) -> CaptureTask:
        """The task that captures to the topic of an apply task. Retryable MR-4203 while there is none."""

    def last_report(self, task: TaskDocument) -> TaskReport | None:
        """The last report on this work of the task, from any worker; None when there is none."""

    def waiting_decision(self, task: TaskDocument) -> Decision | None:
        """An operator's decision about the task's progress, which its runner must execute before it publishes."""

    def end_decision(self, task: TaskDocument, decision: Decision) -> None:
        """Remove the decision, which is in the topic. Retryable if that is not possible now."""

    def snapshot_requests(self, task: str) -> SnapshotRequests:
        """The operators' requests for snapshots of a task. Retryable while ZooKeeper is away; Fatal MR-4011."""

    def change_snapshots(
        self, task: str, change: Callable[[SnapshotRequests], SnapshotRequests]
    ) -> SnapshotRequests:
        """Change them, and return the result. Errors: as ``snapshot_requests``; Retryable MR-4007."""

    def positions_of(self, set_name: str, *, is_complete: bool = False) -> Mapping[str, str]:
        """The GTID sets that the set's capture tasks have published, running or not, by task.

        A task that never ran gives its start. Retryable while ZooKeeper is away. ``is_complete``: raises the error of a
        task that can't be read; otherwise it is left out.
        """
