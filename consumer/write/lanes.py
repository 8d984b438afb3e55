"""Lanes: threads that apply parts in the order in which they were submitted, each over its own session.

    submit      adds a part to a lane
    take        the parts that have ended since, in any order; with ``wait`` at least one, if one is under way

An error of a part is raised by ``take``, then and by every later call. Parts that were submitted to that lane before
the error was noticed are dropped; parts of other lanes may still commit, which their bitmaps show.
Not done here: deciding which lane a row belongs to.
"""

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from millrace.errors import Retryable

Work = Callable[[], int]


@dataclass(frozen=True, slots=True)
class Done:
    """A part of a flight that was applied, with its number of statements."""

    flight: int
    statements: int


class Lanes(Protocol):
    """Where parts are applied."""

    def submit(self, lane: int, flight: int, work: Work) -> None:
        """Apply ``work`` after the lane's earlier parts."""

    def take(self, *, wait: bool) -> list[Done]:
        """The ended parts; raises the first error."""

    def close(self) -> None:
        """Wait until no part is under way. Parts that have not begun are dropped."""


class ThreadLanes:
    """Lanes as threads. A thread starts with its lane's first part."""

    def __init__(self) -> None:
        self._lanes: dict[int, _Lane] = {}
        self._done: queue.SimpleQueue[Done | BaseException] = queue.SimpleQueue()
        self._open = 0  # parts whose end ``take`` has not returned
        self._failure: BaseException | None = None

    def submit(self, lane: int, flight: int, work: Work) -> None:
        """See ``Lanes``. Retryable MR-5050 if the system has no thread left."""
        if lane not in self._lanes:
            made = _Lane(lane, self._done)
            try:
                made.start()
            except RuntimeError as exc:
                raise Retryable("MR-5050", f"lane {lane} has no thread: {exc}") from exc
            self._lanes[lane] = made
        self._open += 1
        self._lanes[lane].waiting.put((flight, work))

    def take(self, *, wait: bool) -> list[Done]:
        """See ``Lanes``."""
        found: list[Done] = []
        if self._failure is not None:  # the lane has dropped parts, whose end would never come
            raise self._failure
        while self._open:
            try:
                ended = self._done.get(block=wait and not found)
            except queue.Empty:
                break
            self._open -= 1
            if isinstance(ended, BaseException):
                self._failure = ended
                raise ended
            found.append(ended)
        return found

    def close(self) -> None:
        """See ``Lanes``."""
        for lane in self._lanes.values():
            lane.is_over = True
            lane.waiting.put(None)
        for lane in self._lanes.values():
            lane.join()
        self._lanes.clear()


@dataclass(eq=False)
class _Lane(threading.Thread):
    number: int
    done: "queue.SimpleQueue[Done | BaseException]"
    waiting: "queue.SimpleQueue[tuple[int, Work] | None]" = field(default_factory=queue.SimpleQueue)
    is_over: bool = False

    def __post_init__(self) -> None:
        super().__init__(name=f"lane-{self.number}", daemon=True)

    def run(self) -> None:
        while (given := self.waiting.get()) is not None and not self.is_over:
            flight, work = given
            try:
                self.done.put(Done(flight, work()))
            except BaseException as exc:  # noqa: BLE001 - ``take`` raises it in the thread that plans
                self.is_over = True
                self.done.put(exc)
