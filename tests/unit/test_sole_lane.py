"""The sole lane: what a Spark task brings along from behind a barrier is applied by the driver, the rest by Spark."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from consumer import held, sole
from consumer.batch import Assignment, BatchApplier
from consumer.book import Book, Ints
from consumer.executor import Order, Outcome, guarded, records_from, unpack
from consumer.held import Held, hold
from consumer.registry import look_up_at
from consumer.rows import Values
from consumer.sole import SoleLane
from consumer.target.connection import Endpoint
from consumer.target.inventory import Inventory
from consumer.target.progress import Mark, Owner, SavedProgress
from consumer.window import Barrier
from consumer.workshop import Catalogue
from millrace.errors import Retryable
from schemas.documents import ConflictPolicy

_NOTHING: Ints = np.empty(0, np.int64)


def _values(*contents: bytes) -> Values:
    bounds = np.cumsum([0, *map(len, contents)])
    return Values(np.frombuffer(b"".join(contents), np.uint8), bounds)


def _contents(found: Held, offset: int = 0) -> list[tuple[int, bytes]]:
    told = []
    for offsets, values in records_from(Mark(1, offset), [found.batch]):
        told += [(int(at), values.value(number)) for number, at in enumerate(offsets)]
    return told


def _parts(*sizes: int, count: int = 3) -> Iterator[tuple[Ints, Values]]:
    """Batches of records of one size each, offsets from 10 on; each the tail of a longer one."""
    for number, size in enumerate(sizes):
        first = 10 + number * count
        values = _values(b"passed", *(bytes([at]) * size for at in range(first, first + count)))
        yield np.arange(first, first + count), values.part(1, count + 1)


def test_read_ahead_records_are_those_received() -> None:
    """Over several batches, on the way through an executor's answer, from any offset on."""
    outcome = Outcome(Mark(1, 10), barrier=Barrier(9, b"ddl"), held=hold(_parts(2, 0, 5)))
    found = unpack(guarded(lambda: outcome))
    assert isinstance(found, Outcome)
    assert found.held is not None
    assert found.held.is_all
    wanted = [
        (at, bytes([at]) * size)
        for at, size in zip(range(10, 19), [2] * 3 + [0] * 3 + [5] * 3, strict=True)
    ]
    assert _contents(found.held) == wanted
    assert _contents(found.held, 14) == wanted[4:]
    assert _contents(found.held, 19) == []


@pytest.mark.parametrize(("limit", "value", "kept"), [("RECORDS_MAX", 4, 4), ("BYTES_MAX", 11, 5)])
def test_read_ahead_is_bounded(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: int, kept: int
) -> None:
    """The first records, and all input is read."""
    monkeypatch.setattr(held, limit, value)
    parts = _parts(2, 2, 0)
    found = hold(parts)
    assert [offset for offset, _ in _contents(found)] == list(range(10, 10 + kept))
    assert not found.is_all
    assert next(parts, None) is None


def _order(next_offset: int) -> Order:
    owner = Owner("task", 1, 1)
    return Order(owner, Endpoint("", 0, "", ""), ConflictPolicy.STOP, Mark(0, next_offset), 1)


class _Lane:
    """A sole lane whose every record is a barrier, and what was applied where."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, found: Held) -> None:
        self.asked: list[str] = []
        self._found = found
        monkeypatch.setattr(sole, "apply_sole", self._here)
        self.call = SoleLane(self._in_spark, look_up_at)

    def _in_spark(self, order: Order, _: Catalogue, __: Ints) -> Outcome:
        self.asked.append(f"Spark {order.mark.next_offset}")
        return Outcome(order.mark, barrier=Barrier(9, b""), held=self._found)

    def _here(self, batches: Iterator[pa.RecordBatch], *, order: Order, **_: object) -> Outcome:
        self.asked.append(f"here {order.mark.next_offset}")
        is_met = any(records_from(order.mark, batches))
        return Outcome(order.mark, barrier=Barrier(order.mark.next_offset, b"") if is_met else None)

    def at(self, *offsets: int) -> list[bool]:
        """Ask from each of these offsets on; whether records are left behind what was done."""
        return [self.call(_order(offset), Catalogue("none"), _NOTHING).is_cut for offset in offsets]


def test_after_a_barrier_the_driver_applies_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """One Spark task, whatever the number of barriers."""
    lane = _Lane(monkeypatch, hold(_parts(1)))
    assert lane.at(9, 10, 11, 12, 13) == [False] * 5
    assert lane.asked == ["Spark 9", "here 10", "here 11", "here 12", "here 13"]


def test_records_beyond_the_read_ahead_are_left_to_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the last one held, and wherever the mark is past it."""
    monkeypatch.setattr(held, "RECORDS_MAX", 2)
    lane = _Lane(monkeypatch, hold(_parts(1)))
    assert lane.at(9, 10, 11, 12) == [False] * 4
    assert lane.asked == ["Spark 9", "here 10", "here 11", "Spark 12"]


def test_read_ahead_ending_without_a_barrier_is_not_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The micro-batch goes on behind them: said so, or its rows would be passed over."""
    monkeypatch.setattr(held, "RECORDS_MAX", 2)
    lane = _Lane(monkeypatch, hold(_parts(1)))
    lane.at(9)
    monkeypatch.setattr(sole, "apply_sole", lambda _, order, **__: Outcome(order.mark))
    assert lane.at(10) == [True]
    assert lane.at(12) == [False]
    assert lane.asked == ["Spark 9", "Spark 12"]


def test_transient_error_is_retried_in_driver_and_executor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In an executor it ends the Spark task, MR-5050; in the driver it must not block the task."""
    lane = _Lane(monkeypatch, hold(_parts(1)))
    lane.at(9)

    def fails(*_: object, **__: object) -> Outcome:
        raise MemoryError("no room")

    monkeypatch.setattr(sole, "apply_sole", fails)
    with pytest.raises(Retryable, match="MemoryError") as caught:
        lane.at(10)
    assert caught.value.code == "MR-5050"


def test_new_start_forgets_catalogues_of_the_last() -> None:
    """A task that is given another target, or a target that was wiped, begins again with run 1."""
    given = Assignment(Owner("task", 1, 1), Endpoint("", 0, "", ""), ConflictPolicy.STOP, 1)
    saved = SavedProgress(Mark(0, 0), _NOTHING, Book({}))
    first, second = (BatchApplier.at(given, saved, Inventory(), Mark(0, 0)) for _ in range(2))
    assert first.catalogue.version != second.catalogue.version
