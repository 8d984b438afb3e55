"""Lanes as threads: order, errors and the end of a turn."""

import threading
from collections.abc import Callable, Iterator

import pytest

from millrace.consumer.write.lanes import Done, ThreadLanes
from millrace.errors import Retryable
from tests.kit.faults.starved import no_thread_left

DEADLINE_S = 30.0


@pytest.fixture
def lanes() -> Iterator[ThreadLanes]:
    """Lanes that are closed after the test."""
    made = ThreadLanes()
    yield made
    made.close()


def _all(lanes: ThreadLanes, count: int) -> list[Done]:
    """Return this number of ended parts."""
    done: list[Done] = []
    while len(done) < count:
        done += lanes.take(wait=True)
    return done


def _noted(ran: list[int], number: int) -> int:
    ran.append(number)
    return 1


def _waits(until: threading.Event) -> Callable[[], int]:
    def work() -> int:
        assert until.wait(DEADLINE_S)
        return 1

    return work


def test_parts_of_a_lane_run_in_order(lanes: ThreadLanes) -> None:
    """A later flight's rows may need rows of an earlier one; both are in one lane."""
    ran: list[int] = []

    def part(number: int) -> Callable[[], int]:
        def work() -> int:
            ran.append(number)
            return number

        return work

    for number in range(100):
        lanes.submit(0, number, part(number))
    assert _all(lanes, 100) == [Done(number, number) for number in range(100)]
    assert ran == list(range(100))


def test_lanes_run_at_the_same_time(lanes: ThreadLanes) -> None:
    """A lane that waits for the target delays no other."""
    release = threading.Event()

    def other() -> int:
        release.set()
        return 2

    lanes.submit(0, 1, _waits(release))
    lanes.submit(1, 1, other)
    assert sorted(done.statements for done in _all(lanes, 2)) == [1, 2]


def test_take_waits_only_for_parts_under_way(lanes: ThreadLanes) -> None:
    """Without any there is nothing to wait for; without ``wait`` it returns at once."""
    assert lanes.take(wait=True) == []
    release = threading.Event()
    lanes.submit(0, 1, _waits(release))
    assert lanes.take(wait=False) == []
    release.set()
    assert lanes.take(wait=True) == [Done(1, 1)]
    assert lanes.take(wait=True) == []


@pytest.mark.parametrize("error", [Retryable("MR-5001", "it broke"), ZeroDivisionError("a bug")])
def test_error_is_raised_and_ends_its_lane(lanes: ThreadLanes, error: Exception) -> None:
    """Later parts of the lane may depend on the failed one. Other lanes continue."""
    begun, ran = threading.Event(), list[int]()

    def fails() -> int:
        assert begun.wait(DEADLINE_S)
        raise error

    def part(number: int) -> Callable[[], int]:
        return lambda: _noted(ran, number)

    lanes.submit(0, 1, fails)
    lanes.submit(0, 1, part(1))
    lanes.submit(0, 2, part(2))
    lanes.submit(1, 2, part(3))
    assert lanes.take(wait=True) == [Done(2, 1)]
    begun.set()
    with pytest.raises(type(error)) as caught:
        lanes.take(wait=True)
    assert caught.value is error
    lanes.submit(0, 3, part(4))
    lanes.close()
    assert ran == [3]


def test_every_take_after_an_error_raises_it(lanes: ThreadLanes) -> None:
    """The failed lane has dropped its later parts: a wait for their end would last forever."""

    def fails() -> int:
        raise Retryable("MR-5001", "it broke")

    lanes.submit(0, 1, fails)
    lanes.submit(0, 2, lambda: 1)
    for wait in (True, True, False):
        with pytest.raises(Retryable):
            lanes.take(wait=wait)


def test_close_waits_for_parts_under_way() -> None:
    """The next turn raises the fence; a part that ends later would be refused, and its error lost."""
    lanes, begun, release = ThreadLanes(), threading.Event(), threading.Event()
    ran: list[int] = []

    def part() -> int:
        begun.set()
        assert release.wait(DEADLINE_S)
        return _noted(ran, 1)

    lanes.submit(0, 1, part)
    lanes.submit(0, 1, lambda: _noted(ran, 2))
    assert begun.wait(DEADLINE_S)
    closing = threading.Thread(target=lanes.close)
    closing.start()
    assert ran == []
    assert closing.is_alive()
    release.set()
    closing.join(DEADLINE_S)
    assert not closing.is_alive()
    assert ran == [1]


def test_lane_without_a_thread_is_retried(lanes: ThreadLanes) -> None:
    """The system has no thread left: the turn ends, and a later one may have more."""
    lanes.submit(0, 1, lambda: 1)
    with no_thread_left(), pytest.raises(Retryable, match="lane 1 has no thread") as caught:
        lanes.submit(1, 1, lambda: 2)
    assert caught.value.code == "MR-5050"
    assert _all(lanes, 1) == [Done(1, 1)]
    assert lanes.take(wait=True) == []
