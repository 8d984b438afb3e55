"""Operators' requests for snapshots, as the course sees them, and what the owner does with them in ZooKeeper.

    step                                          a crash after it leaves
    1 the course takes the first request          nothing: the next owner takes it
    2 its state is committed to the topic         the request and the state: the next owner only removes the request
    3 the request is removed                      the state, from which the next owner continues
    4 the course reads chunks

A wish that a snapshot stops is removed once the topic has another state. Then the snapshot is added to the last that
have ended. An owner that dies in the second before it leaves it out of that list. ``look`` runs in the housekeeping
thread, the other methods in the converter's. While ZooKeeper is away, requests wait and a running snapshot continues.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from millrace.errors import MillraceError, Retryable
from millrace.faults import fault_point, register
from millrace.log import get_logger
from millrace.schemas.requests.snapshot_request import EndedSnapshot, SnapshotRequests
from millrace.schemas.snapshot import INITIAL, SnapshotState
from millrace.zk.run.runner import SetSource

LOOK_S = 1.0

BEFORE_REMOVAL = register("snapshot.before_request_removal")
AFTER_REMOVAL = register("snapshot.after_request_removal")

log = get_logger("producer.snapshot")


@dataclass(slots=True)
class TaskWishes:
    """``producer.snapshot.insertion_plan.Wishes`` of one task. ``committed``: the state that the topic has.

    ``ended``: the snapshots that have ended, which are moved to ZooKeeper once the topic has their end.
    """

    sets: SetSource
    task: str
    committed: Callable[[], SnapshotState | None]
    ended: "deque[EndedSnapshot]"
    problem: str = ""
    _known: SnapshotRequests = field(default_factory=SnapshotRequests)
    _cleared: str = INITIAL  # the id that no request has any more

    def next(self) -> SnapshotState | None:
        requests = self._known.requests
        return requests[0].state if requests else None

    def may_run(self, id_: str) -> bool:
        return id_ == self._cleared

    def stops(self, id_: str) -> bool:
        return id_ in self._known.stops

    def look(self) -> None:
        """Read the requests, and remove what is done. Raises nothing: it is tried again."""
        try:
            self._look()
            self.problem = ""
        except Retryable as away:
            log.debug("requests for snapshots are not read", error=str(away))
        except MillraceError as error:
            self.problem = f"{error}. {error.fix}"

    def _look(self) -> None:
        known = self.sets.snapshot_requests(self.task)
        state = self.committed()
        running = state.id if state is not None else ""
        for request in known.requests:
            if request.id == running:
                fault_point(BEFORE_REMOVAL)
                known = self._change(lambda found: found.taken(running))
                fault_point(AFTER_REMOVAL)
        if done := [stop for stop in known.stops if stop != running]:
            known = self._change(lambda found: _without(found, done))
        self._known = known
        self._cleared = running or INITIAL
        while self.ended and self.ended[0].id != running:
            self._change(partial(_with_ended, ended=self.ended[0]))
            self.ended.popleft()

    def _change(self, change: Callable[[SnapshotRequests], SnapshotRequests]) -> SnapshotRequests:
        return self.sets.change_snapshots(self.task, change)


def _with_ended(found: SnapshotRequests, ended: EndedSnapshot) -> SnapshotRequests:
    return found.with_ended(ended)


def _without(found: SnapshotRequests, stops: list[str]) -> SnapshotRequests:
    for stop in stops:
        found = found.stopped(stop)
    return found
