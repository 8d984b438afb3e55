"""What stands between rows: a ``resolved`` or ``fence`` record repeats the last seq, or rows are missing."""

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
from tests.apply_tables import accounts
from tests.apply_topic import RecordStream

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


@pytest.mark.parametrize("seen", [-1, 3, 9])
def test_a_resolved_behind_what_was_seen_is_passed(seen: int) -> None:
    """After the rows, in a replay, and where a task starts at a GTID set and any seq is its first."""
    stream = _stream()
    stretch = _read(stream.values[-1:], Mark(seen, 0, past_start=seen >= 0))
    assert len(stretch.resolved) == 1


def test_a_resolved_behind_the_rows_of_its_stretch_is_passed() -> None:
    """The usual case: rows and their resolved come together."""
    stretch = _read(_stream().values, Mark(0, 0))
    assert len(stretch.waiting) == 3
    assert stretch.mark_after(5, before=Mark(0, 0)).seq == 3
