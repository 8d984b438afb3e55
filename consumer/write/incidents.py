"""Counts the incidents of tasks: in each executor until its next answer, and in the driver since its start.

    executor   a lane counts in the tally of ``turn.resident``; the answer to the order takes the counts along, also if
               the order failed
    driver     adds them to its own tally, which outlives the runs of a task

A conflict that `overwrite` or `skip` resolves is counted after the commit of its part, so a part that is applied again
is not counted again. A process that is killed takes its counts since its last answer with it: the table
``millrace.conflict`` on the target has them all.
"""

import threading
from collections.abc import Sequence

from millrace.schemas.stages import Incidents


class Tally:
    """Incidents by task. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, Incidents] = {}

    def add(self, task: str, incidents: Incidents) -> None:
        """Add to a task's counts."""
        with self._lock:
            self._found[task] = self._of(task) + incidents

    def retried(self, task: str, errno: str) -> None:
        """Count an error after which the same work is done again."""
        self.add(task, Incidents(retries={errno: 1}))

    def conflicted(self, task: str, kinds: Sequence[str]) -> None:
        """Count conflicts of these kinds."""
        if kinds:
            self.add(task, Incidents(conflicts={kind: kinds.count(kind) for kind in set(kinds)}))

    def of(self, task: str) -> Incidents:
        """A task's counts."""
        with self._lock:
            return self._of(task)

    def take(self, task: str) -> Incidents:
        """A task's counts, which begin again."""
        with self._lock:
            return self._found.pop(task, Incidents())

    def _of(self, task: str) -> Incidents:
        return self._found.get(task, Incidents())
