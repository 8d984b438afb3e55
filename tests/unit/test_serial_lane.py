"""The serial lane: the driver applies the records that a Spark task read ahead, Spark applies the others."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from consumer.apply import read_ahead, serial
from consumer.apply.batch import Assignment, BatchApplier
from consumer.apply.executor import Order, Outcome, guarded, records_from, unpack
from consumer.apply.read_ahead import ReadAhead, collect_read_ahead
from consumer.apply.serial import SerialLane
from consumer.registry import look_up_at
from consumer.row_schemas import Ints, RowSchemas
from consumer.rows import Values
from consumer.sql.table_plans import Catalogue
from consumer.target.connection import Endpoint
from consumer.target.inventory import Inventory
from consumer.target.progress import Mark, Owner, SavedProgress
from consumer.window import Barrier
from millrace.errors import Retryable
from schemas.documents import ConflictPolicy

_NOTHING: Ints = np.empty(0, np.int64)


def _values(*contents: bytes) -> Values:
    bounds = np.cumsum([0, *map(len, contents)])
    return Values(np.frombuffer(b"".join(contents), np.uint8), bounds)


def _contents(found: ReadAhead, offset: int = 0) -> list[tuple[int, bytes]]:
    records = []
    for offsets, values in records_from(Mark(1, offset), [found.batch]):
        records += [(int(at), values.value(number)) for number, at in enumerate(offsets)]
    return records


def _parts(*sizes: int, count: int = 3) -> Iterator[tuple[Ints, Values]]:
    """Return batches of records of one size, with offsets from 10; each is the tail of a longer batch."""
    for number, size in enumerate(sizes):
        first = 10 + number * count
        values = _values(b"passed", *(bytes([at]) * size for at in range(first, first + count)))
        yield np.arange(first, first + count), values.part(1, count + 1)


def test_read_ahead_records_are_those_received() -> None:
    """Over several batches, through an executor's packed result, from any offset."""
    outcome = Outcome(
        Mark(1, 10), barrier=Barrier(9, b"ddl"), ahead=collect_read_ahead(_parts(2, 0, 5))
    )
    found = unpack(guarded(lambda: outcome))
    assert isinstance(found, Outcome)
    assert found.ahead is not None
    assert found.ahead.is_all
    wanted = [
        (at, bytes([at]) * size)
        for at, size in zip(range(10, 19), [2] * 3 + [0] * 3 + [5] * 3, strict=True)
    ]
    assert _contents(found.ahead) == wanted
    assert _contents(found.ahead, 14) == wanted[4:]
    assert _contents(found.ahead, 19) == []


@pytest.mark.parametrize(("limit", "value", "kept"), [("RECORDS_MAX", 4, 4), ("BYTES_MAX", 11, 5)])
def test_read_ahead_is_bounded(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: int, kept: int
) -> None:
    """Only the first records are kept, but all input is read."""
    monkeypatch.setattr(read_ahead, limit, value)
    parts = _parts(2, 2, 0)
    found = collect_read_ahead(parts)
    assert [offset for offset, _ in _contents(found)] == list(range(10, 10 + kept))
    assert not found.is_all
    assert next(parts, None) is None


def _order(next_offset: int) -> Order:
    owner = Owner("task", 1, 1)
    return Order(owner, Endpoint("", 0, "", ""), ConflictPolicy.STOP, Mark(0, next_offset), 1)


class _Lane:
    """A serial lane in which every record is a barrier. ``asked`` lists where each was applied."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, found: ReadAhead) -> None:
        self.asked: list[str] = []
        self._found = found
        monkeypatch.setattr(serial, "apply_serial", self._here)
        self.call = SerialLane(self._in_spark, look_up_at)

    def _in_spark(self, order: Order, _: Catalogue, __: Ints) -> Outcome:
        self.asked.append(f"Spark {order.mark.next_offset}")
        return Outcome(order.mark, barrier=Barrier(9, b""), ahead=self._found)

    def _here(self, batches: Iterator[pa.RecordBatch], *, order: Order, **_: object) -> Outcome:
        self.asked.append(f"here {order.mark.next_offset}")
        is_met = any(records_from(order.mark, batches))
        return Outcome(order.mark, barrier=Barrier(order.mark.next_offset, b"") if is_met else None)

    def at(self, *offsets: int) -> list[bool]:
        """Call it once per offset; return ``is_cut`` of each call."""
        return [self.call(_order(offset), Catalogue("none"), _NOTHING).is_cut for offset in offsets]


def test_after_a_barrier_the_driver_applies_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """One Spark task is enough for any number of barriers."""
    lane = _Lane(monkeypatch, collect_read_ahead(_parts(1)))
    assert lane.at(9, 10, 11, 12, 13) == [False] * 5
    assert lane.asked == ["Spark 9", "here 10", "here 11", "here 12", "here 13"]


def test_records_beyond_the_read_ahead_are_left_to_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark continues after the last record of the read-ahead."""
    monkeypatch.setattr(read_ahead, "RECORDS_MAX", 2)
    lane = _Lane(monkeypatch, collect_read_ahead(_parts(1)))
    assert lane.at(9, 10, 11, 12) == [False] * 4
    assert lane.asked == ["Spark 9", "here 10", "here 11", "Spark 12"]


def test_read_ahead_ending_without_a_barrier_is_not_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The call reports ``is_cut``; otherwise the rest of the micro-batch would be skipped."""
    monkeypatch.setattr(read_ahead, "RECORDS_MAX", 2)
    lane = _Lane(monkeypatch, collect_read_ahead(_parts(1)))
    lane.at(9)
    monkeypatch.setattr(serial, "apply_serial", lambda _, order, **__: Outcome(order.mark))
    assert lane.at(10) == [True]
    assert lane.at(12) == [False]
    assert lane.asked == ["Spark 9", "Spark 12"]


def test_transient_error_is_retried_in_driver_and_executor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In an executor it ends the Spark task with MR-5050. In the driver it must not block the task either."""
    lane = _Lane(monkeypatch, collect_read_ahead(_parts(1)))
    lane.at(9)

    def fails(*_: object, **__: object) -> Outcome:
        raise MemoryError("no room")

    monkeypatch.setattr(serial, "apply_serial", fails)
    with pytest.raises(Retryable, match="MemoryError") as caught:
        lane.at(10)
    assert caught.value.code == "MR-5050"


def test_new_start_forgets_catalogues_of_the_last() -> None:
    """With another target, or a wiped one, a task begins again with run 1, and old catalogues must not be used."""
    given = Assignment(Owner("task", 1, 1), Endpoint("", 0, "", ""), ConflictPolicy.STOP, 1)
    saved = SavedProgress(Mark(0, 0), _NOTHING, RowSchemas({}))
    first, second = (BatchApplier.at(given, saved, Inventory(), Mark(0, 0)) for _ in range(2))
    assert first.catalogue.version != second.catalogue.version
