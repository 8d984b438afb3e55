"""What stands between rows: a ``resolved`` or ``fence`` record repeats the last seq, or rows are missing."""

from contextlib import nullcontext

import numpy as np
import pyarrow as pa
import pytest

from consumer.book import Ints
from consumer.executor import arrow_values
from consumer.registry import look_up_at
from consumer.stretch import Stretch, read_stretch
from consumer.target.progress import Mark
from consumer.workshop import Catalogue, Workshop
from millrace.errors import Fatal
from schemas.control import ResolvedRecord
from schemas.gtid import Flavour, parse_gtid_set
from schemas.progress import OpenTransaction, Progress
from tests.apply_tables import accounts
from tests.apply_topic import UUID, RecordStream

_NOTHING: Ints = np.empty(0, np.int64)


def _read(values: list[bytes], seen: Mark) -> Stretch:
    batch = pa.RecordBatch.from_arrays(
        [pa.array(range(len(values)), pa.int64()), pa.array(values, pa.binary())],
        names=["offset", "value"],
    )
    offsets, found = arrow_values(batch)
    return read_stretch(
        found,
        offsets,
        workshop=Workshop(Catalogue("stretch")),
        seen=seen,
        applied=_NOTHING,
        look_up=look_up_at(""),
    )


def _stream() -> RecordStream:
    """A schema, three rows, their resolved."""
    stream = RecordStream()
    for number in range(3):
        stream.insert(accounts("bank"), {"id": number, "amount": 0})
    stream.commit()
    return stream


@pytest.mark.parametrize(("seen", "code"), [(0, "MR-5031"), (1, "MR-5030"), (2, "MR-5030")])
def test_a_resolved_behind_missing_rows_stops_the_task(seen: int, code: str) -> None:
    """Retention took rows that were not applied: the mark must not be carried over them by what stands behind."""
    stream = _stream()
    with pytest.raises(Fatal) as caught:
        _read(stream.values[-1:], Mark(seen, 0))
    assert caught.value.code == code


@pytest.mark.parametrize(("missing", "code"), [(1, "MR-5031"), (2, "MR-5030")])
def test_a_missing_row_stops_the_task_before_a_resolved_tells(missing: int, code: str) -> None:
    """In front of the rows and between two of them, while their source transaction is still open."""
    values = _stream().values[:-1]
    with pytest.raises(Fatal) as caught:
        _read(values[:missing] + values[missing + 1 :], Mark(0, 0))
    assert caught.value.code == code


@pytest.mark.parametrize("seen", [3, 9])
def test_a_resolved_behind_what_was_seen_is_passed(seen: int) -> None:
    """After the rows, and in a replay."""
    assert len(_read(_stream().values[-1:], Mark(seen, 0)).resolved) == 1


def _transactions(count: int) -> list[bytes]:
    """A schema, then (row, resolved) of each."""
    stream = RecordStream()
    for number in range(count):
        stream.insert(accounts("bank"), {"id": number, "amount": 0})
        stream.commit()
    return stream.values


def _start(last: int) -> Mark:
    """Of a task that starts at a GTID set and has read nothing."""
    return Mark(-1, -2, f"{UUID}:1-{last}", Flavour.MYSQL, past_start=False)


def test_a_start_at_a_gtid_goes_on_where_the_topic_shows_that_nothing_is_missing() -> None:
    """Rows that it covers prove nothing by themselves: the mark has no seq before a control record was passed."""
    schema, *values = _transactions(4)
    stretch = _read([schema, *values], _start(2))
    assert list(stretch.waiting) == [5, 7]
    assert [stretch.mark_after(end, before=_start(2)).seq for end in (2, 3, 9)] == [-1, 1, 4]
    behind = _read([schema, *values[3:]], _start(2))  # the resolved of 2, and what follows
    assert list(behind.waiting) == [2, 4]


@pytest.mark.parametrize(
    ("first", "missing", "last", "what"),
    [
        (2, (), 1, "comes first"),  # the row of 2 is there; who says that 1 was all before it?
        (4, (), 1, "comes first"),
        (3, (), 1, "begins behind"),  # the resolved of 2: its row is gone
        (5, (), 2, "begins behind"),
        (0, (2,), 1, "follows"),  # behind the proof a hole is a hole
    ],
)
def test_a_start_at_a_gtid_that_the_topic_does_not_reach_back_to_stops_the_task(
    first: int, missing: tuple[int, ...], last: int, what: str
) -> None:
    """Retention, or a capture task that began later: nothing says what stood in front."""
    schema, *values = _transactions(4)
    left = [
        value for number, value in enumerate(values) if number >= first and number not in missing
    ]
    with pytest.raises(Fatal, match=what) as caught:
        _read([schema, *left], _start(last))
    assert caught.value.code in ("MR-5030", "MR-5031")


def test_a_topic_that_begins_inside_a_source_transaction_is_not_the_start_of_it() -> None:
    """Its first rows are gone, though all whole transactions in front are covered."""
    schema, *_ = _transactions(1)
    position = parse_gtid_set(Flavour.MYSQL, f"{UUID}:1")
    for number, is_refused in ((1, False), (2, True)):
        stream = RecordStream()
        inside = OpenTransaction(f"{UUID}:{number}", 1)
        stream._control(ResolvedRecord(Progress(position, inside, 2), "shop", 1, 0))
        with pytest.raises(Fatal, match="begins behind") if is_refused else nullcontext():
            _read([schema, *stream.values], _start(1))


def test_a_resolved_behind_the_rows_of_its_stretch_is_passed() -> None:
    """The usual case: rows and their resolved come together."""
    stretch = _read(_stream().values, Mark(0, 0))
    assert len(stretch.waiting) == 3
    assert stretch.mark_after(5, before=Mark(0, 0)).seq == 3
