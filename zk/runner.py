"""What the supervisor runs: the seam between control and the two halves that move rows.

A runner is one object a worker; ``run`` is called in a thread of its own for each task. It
- takes its truth from the topic or target at every start, after ``lease.verify()``;
- returns soon (seconds) after ``stop`` is set, **with every thread of its own joined**: the lease is given up as
  soon as it returns, and a successor may start at once;
- raises what it can't mend: Retryable (run again after a pause, with a new lease), Fenced (ask ZooKeeper, new
  lease), Fatal (blocked until an operator acts);
- reports as often as it likes; only the latest report is kept, and written at most twice a second.
"""

import threading
from collections.abc import Callable
from typing import Protocol

from schemas.documents import SetDocument, TaskDocument
from schemas.status import TaskReport

Report = Callable[[TaskReport], None]


class HeldLease(Protocol):
    """The right to run one task, as a runner sees it."""

    @property
    def task(self) -> str:
        """The task's name."""

    @property
    def epoch(self) -> int:
        """Greater than that of every lease of this task before."""

    def is_held(self) -> bool:
        """What this process knows, without asking: false once the session is known to be over."""

    def verify(self) -> None:
        """Ask ZooKeeper: Fenced MR-4003 when it is lost, Retryable MR-4001 when it can't be asked."""


class TaskRunner(Protocol):
    """Moves the rows of tasks of one kind."""

    def run(
        self, task: TaskDocument, *, lease: HeldLease, stop: threading.Event, report: Report
    ) -> None:
        """Until ``stop`` is set or an error is raised; see the module's duties."""


class SetSource(Protocol):
    """Where a runner finds what ZooKeeper knows beside its task."""

    def set_document(self, name: str) -> SetDocument:
        """As it stands now; Retryable while ZooKeeper is away, or the set gone or not to be read."""

    def last_report(self, task: TaskDocument) -> TaskReport | None:
        """What was reported last of a task, by whomever; None when nothing was of this work."""
