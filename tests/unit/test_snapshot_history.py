"""The snapshots that have ended: their rows and times, and how many of them are kept."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from millrace.producer.snapshot.ended_snapshots import History
from millrace.producer.snapshot.insertion_plan import Insertion
from millrace.producer.snapshot.requests import TaskWishes
from millrace.schemas.documents import ApplyTask, CaptureTask, SetDocument
from millrace.schemas.plain import from_plain, to_plain
from millrace.schemas.requests.snapshot_request import (
    ENDED_MAX,
    EndedSnapshot,
    SnapshotRequest,
    SnapshotRequests,
    Span,
)
from millrace.schemas.snapshot import SnapshotState, TablePlace
from tests.kit.alone import Alone

STATE = SnapshotState("s1", ("shop.*",), "a > 1")
OPEN = STATE.moved(TablePlace(("shop", "t"), is_open=True))


def rows(count: int, after: SnapshotState | None, *, is_stopped: bool = False) -> Insertion:
    """Insertion of so many rows."""
    kept = np.array([True] * count + [False])
    return Insertion(after, kept=kept, is_stopped=is_stopped)


def history() -> History:
    """Each note is a second after the one before it."""
    times = iter(range(1000, 99_000, 1000))
    return History(lambda: next(times))


def test_ended_snapshot_has_its_rows_and_times() -> None:
    """Only rows that are inserted count, and only its own."""
    noted = history()
    noted.note(None, Insertion(STATE))
    noted.note(STATE, rows(3, OPEN))
    noted.note(OPEN, rows(2, None))
    noted.note(None, Insertion(replace(STATE, id="s2")))
    noted.note(replace(OPEN, id="s2"), rows(0, None, is_stopped=True))
    first, second = noted.ended
    assert first == EndedSnapshot("s1", ("shop.*",), "a > 1", Span(1000, 2000), 5)
    assert (second.id, second.rows, second.is_stopped) == ("s2", 0, True)
    assert noted.rows == 5


def test_snapshot_of_another_owner_has_unknown_rows() -> None:
    """This owner has seen its end alone."""
    noted = history()
    noted.note(OPEN, rows(2, None))
    (found,) = noted.ended
    assert (found.span, found.rows) == (Span(None, 1000), None)


def test_last_ended_snapshots_are_kept() -> None:
    """The newest is the last; one that ended twice counts once. The node's fields restore them."""
    found = SnapshotRequests((SnapshotRequest("w", ("a.b",)),), ("x",))
    for number in range(ENDED_MAX + 5):
        found = found.with_ended(EndedSnapshot(f"s{number}", ("a.b",), "", Span(None, 7), None))
    found = found.with_ended(EndedSnapshot("s9", ("a.b",), "", Span(1, 9), 4))
    assert len(found.ended) == ENDED_MAX
    assert [one.id for one in found.ended[-2:]] == [f"s{ENDED_MAX + 4}", "s9"]
    assert from_plain(SnapshotRequests, to_plain(found)) == found
    assert from_plain(SnapshotRequests, {"requests": [], "stops": []}) == SnapshotRequests()


def test_end_is_stored_once_the_topic_has_it() -> None:
    """While the topic's state has the snapshot, its owner may still die and publish the end again."""
    committed: list[SnapshotState | None] = [STATE]
    ended = deque([EndedSnapshot("s1", ("shop.*",), "", Span(1, 2), 3)])
    stored: list[SnapshotRequests] = []

    class Sets(Alone):
        def set_document(self, name: str) -> SetDocument:
            raise AssertionError(name)

        def capture_task_of(self, task: ApplyTask) -> CaptureTask:
            raise AssertionError(task)

        def change_snapshots(
            self, task: str, change: Callable[[SnapshotRequests], SnapshotRequests]
        ) -> SnapshotRequests:
            stored.append(change(SnapshotRequests()))
            return stored[-1]

    wishes = TaskWishes(Sets(), "t", lambda: committed[0], ended)
    wishes.look()
    assert (stored, len(ended)) == ([], 1)
    committed[0] = None
    wishes.look()
    assert [one.id for one in stored[-1].ended] == ["s1"]
    assert not ended
