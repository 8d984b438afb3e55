"""The owner of a capture task takes requests for snapshots: each once, wherever an owner dies."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from millrace.errors import Retryable
from millrace.producer.snapshot.requests import TaskWishes
from millrace.schemas.documents import ApplyTask, CaptureTask, SetDocument
from millrace.schemas.requests.snapshot_request import SnapshotRequest, SnapshotRequests
from millrace.schemas.snapshot import SnapshotState
from tests.kit.alone import Alone

REQUEST = SnapshotRequest("s1", ("shop.t",))
LATER = SnapshotRequest("s2", ("shop.u",))


@dataclass
class Owner(Alone):
    """An owner's view of ZooKeeper and of its topic's state."""

    waiting: SnapshotRequests
    committed: SnapshotState | None = None
    is_away: bool = False
    wishes: TaskWishes = field(init=False)

    def __post_init__(self) -> None:
        self.wishes = TaskWishes(self, "t", lambda: self.committed, deque())

    def set_document(self, name: str) -> SetDocument:
        raise AssertionError(name)

    def capture_task_of(self, task: ApplyTask) -> CaptureTask:
        raise AssertionError(task)

    def snapshot_requests(self, task: str) -> SnapshotRequests:
        return self.waiting

    def change_snapshots(
        self, task: str, change: Callable[[SnapshotRequests], SnapshotRequests]
    ) -> SnapshotRequests:
        if self.is_away:
            raise Retryable("MR-4001", "ZooKeeper is away")
        self.waiting = change(self.waiting)
        return self.waiting


def test_snapshot_reads_rows_only_once_its_request_is_removed() -> None:
    """Otherwise the snapshot could end before, and the next owner would run it again."""
    owner = Owner(SnapshotRequests((REQUEST, LATER)))
    owner.wishes.look()
    assert owner.wishes.next() == REQUEST.state
    assert not owner.wishes.may_run("s1")
    owner.committed, owner.is_away = REQUEST.state, True
    owner.wishes.look()
    assert not owner.wishes.may_run("s1")
    owner.is_away = False
    owner.wishes.look()
    assert owner.wishes.may_run("s1")
    assert owner.waiting.requests == (LATER,)


@pytest.mark.parametrize(
    ("waiting", "committed", "following"),
    [
        ((REQUEST, LATER), None, REQUEST),
        ((REQUEST, LATER), REQUEST.state, LATER),
        ((LATER,), REQUEST.state, LATER),
        ((LATER,), None, LATER),
    ],
    ids=["before its state", "before its removal", "after its removal", "after its end"],
)
def test_next_owner_takes_each_request_exactly_once(
    waiting: tuple[SnapshotRequest, ...],
    committed: SnapshotState | None,
    following: SnapshotRequest,
) -> None:
    """Wherever the one before it died."""
    owner = Owner(SnapshotRequests(waiting), committed)
    owner.wishes.look()
    assert owner.wishes.next() == following.state
    assert owner.wishes.may_run("s1") == (committed is not None)
    assert owner.waiting.requests[0] == following
