"""Writes through a slot in a separate thread, while the turn reads and converts the records that follow.

    the turn       read, convert │ read, convert │ read, convert …
    this thread          write, commit, verify │ write, write, commit, verify │ …

The slot gets the calls of the turn in their order, from this thread alone. Each commit is verified at once (rule 4 of
``consumer.publish``), so the next Kafka transaction begins only after the verification. A commit is left out if the
turn has more for the slot already, and the Kafka transaction is not full: the next commit includes it. So a slow
broker makes larger Kafka transactions, and no queue of small ones.

The first error ends the writing: nothing that came later is written. The turn gets the error from its next call, or at
the end of the ``with`` block, which waits until all is written.
"""

import threading
from collections import deque
from dataclasses import dataclass
from typing import Protocol, Self

from millrace.background import Background
from millrace.consumer.publish.mark import Position
from millrace.consumer.publish.outgoing import Outgoing
from millrace.consumer.records.pieces import Size

# At most this many bytes wait, and one piece that came when there was room: 40,000 records of 800 bytes, which are
# converted while a commit and its verification take 200 ms.
WAITING_BYTES_MAX = 32 << 20
# A Kafka transaction with so many records is full, however few records of the set topic they come from.
FULL = Size(262_144, 128 << 20)


class Partitions(Protocol):
    """The slot's partitions and its position. Implemented by ``slot.Slot``."""

    def write(self, outgoing: Outgoing) -> int:
        """Queue the records that the slot's partitions do not have."""

    def owns(self, topic: str, partition: int) -> bool:
        """Whether the slot writes a partition."""

    def commit(self, position: Position) -> None:
        """Commit what is queued, if anything is; to the position all records of the set topic are written."""

    def verify(self) -> None:
        """Read back what was committed last."""


@dataclass(frozen=True, slots=True)
class _Commit:
    position: Position
    is_full: bool


class SlotWriter:
    """See the module's docstring. For one thread beside its own; a context manager, used once."""

    def __init__(self, slot: Partitions) -> None:
        self._slot = slot
        self._steps: deque[Outgoing | _Commit] = deque()
        self._waiting_bytes = 0
        self._written = Size(0, 0)  # since the last commit
        self._is_closed = self._has_ended = False
        self._changed = threading.Condition()
        self._thread = Background("slot", self._run, is_checked=True)

    def owns(self, topic: str, partition: int) -> bool:
        """Whether the slot writes a partition."""
        return self._slot.owns(topic, partition)

    def write(self, outgoing: Outgoing) -> None:
        """Write the records that the slot's partitions do not have. Waits for room."""
        self._add(outgoing, outgoing.payload.nbytes)

    def commit(self, position: Position, *, is_full: bool) -> None:
        """Commit what was written, or leave it to the next commit; to the position all records are written."""
        self._add(_Commit(position, is_full), 0)

    def __enter__(self) -> Self:
        self._thread.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._end()

    def _end(self) -> None:
        """Wait for the thread, and raise the error that has ended it."""
        self._thread.__exit__(None, None, None)
        self._thread.check()

    def _add(self, step: Outgoing | _Commit, size: int) -> None:
        with self._changed:
            self._changed.wait_for(
                lambda: self._has_ended or self._waiting_bytes < WAITING_BYTES_MAX
            )
            self._steps.append(step)
            self._waiting_bytes += size
            self._changed.notify_all()
        if self._has_ended:
            self._end()

    def _run(self, _stop: threading.Event) -> None:
        try:
            while (step := self._next()) is not None:
                self._do(step)
        finally:
            with self._changed:
                self._has_ended = True
                self._changed.notify_all()

    def _next(self) -> Outgoing | _Commit | None:
        """The next step; None after the last."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or bool(self._steps))
            if not self._steps:
                return None
            step = self._steps.popleft()
            if isinstance(step, Outgoing):
                self._waiting_bytes -= step.payload.nbytes
                self._changed.notify_all()
            return step

    def _do(self, step: Outgoing | _Commit) -> None:
        if isinstance(step, Outgoing):
            rows, size = self._written.rows, self._written.bytes
            self._written = Size(rows + len(step.lines), size + step.payload.nbytes)
            self._slot.write(step)
        elif step.is_full or self._is_due():
            self._slot.commit(step.position)
            self._slot.verify()
            self._written = Size(0, 0)

    def _is_due(self) -> bool:
        is_full = self._written.rows >= FULL.rows or self._written.bytes >= FULL.bytes
        return is_full or not self._steps
