"""The snapshots that a run has seen end, until they are in ZooKeeper (``producer.snapshot.requests``).

Not known: when a snapshot began that another owner began, and how many rows that owner published.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from millrace.producer.snapshot.insertion_plan import Insertion
from millrace.schemas.requests.snapshot_request import ENDED_MAX, EndedSnapshot, Span
from millrace.schemas.snapshot import SnapshotState


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class History:
    """``note`` is called by the converter's thread, ``ended`` is emptied by the housekeeping thread.

    ``rows`` counts the rows of all snapshots of this run.
    """

    clock_ms: Callable[[], int] = now_ms
    ended: "deque[EndedSnapshot]" = field(default_factory=lambda: deque(maxlen=ENDED_MAX))
    rows: int = 0
    _begun: tuple[str, int, int] | None = None  # id, time, and ``rows`` then

    @classmethod
    def since(cls, state: SnapshotState | None) -> "History":
        """A history for a run that begins in this state."""
        history = cls()
        if state is not None and state.at is None:  # nothing of it is published
            history._begun = (state.id, history.clock_ms(), 0)
        return history

    def note(self, before: SnapshotState | None, insertion: Insertion) -> None:
        """Note what is inserted. ``before``: the state before it."""
        self.rows += insertion.kept_count
        after = insertion.state
        if before is None and after is not None:
            self._begun = (after.id, self.clock_ms(), self.rows)
        if before is None or after is not None:
            return
        begun, rows = None, None
        if self._begun is not None and self._begun[0] == before.id:
            _, begun, rows_then = self._begun
            rows = self.rows - rows_then
        span = Span(begun, self.clock_ms())
        self.ended.append(
            EndedSnapshot(before.id, before.tables, before.where, span, rows, insertion.is_stopped)
        )
