"""The reader of whole source transactions, without a broker."""

from collections.abc import Sequence

import numpy as np
import pytest

from millrace.consumer.records.numbers import Units
from millrace.consumer.records.pieces import Size, Taken
from millrace.consumer.records.source_transactions import WholeReader, first_end, last_end
from millrace.consumer.window.units import cut, numbered
from millrace.errors import Retryable
from tests.kit.apply.local import ListSource
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import RecordStream
from tests.kit.apply.values import values_of

BAG = table("bank", "bag", integer("n"), key=())
SIZE = Size(6, 1 << 20)


def _stream(*sizes: int) -> RecordStream:
    """Source transactions with this many rows, each followed by a ``resolved``."""
    stream = RecordStream()
    stream.introduce(BAG)
    for size in sizes:
        for number in range(size):
            stream.insert(BAG, {"n": number})
        stream.commit()
    return stream


def _taken(reader: WholeReader, size: Size = SIZE) -> list[tuple[int, int]]:
    """The ranges of the pieces until no record comes; a large transaction is read as one."""
    found: list[tuple[int, int]] = []
    while (taken := reader.take(size, wait_s=0.0)) is not None:
        if len(taken.offsets):
            found.append(_range([taken]))
        if reader.large is not None:
            pieces = list(reader.read_large(size, wait_s=0.0, is_over=lambda: False))
            assert all(len(piece.offsets) <= size.rows for piece in pieces)
            found.append(_range(pieces))
    return found


def _range(pieces: Sequence[Taken]) -> tuple[int, int]:
    offsets = np.concatenate([piece.offsets for piece in pieces])
    assert list(np.diff(offsets)) == [1] * (len(offsets) - 1)
    return int(offsets[0]), int(offsets[-1]) + 1


@pytest.mark.parametrize("rows", [1, 2, 5, 6, 100])
def test_pieces_end_where_source_transactions_end(rows: int) -> None:
    """However few records come at once. One transaction is larger than a window."""
    stream = _stream(2, 1, 3, 9, 1)
    # schema, 2 rows, resolved, 1 row, resolved, 3 rows, resolved, 9 rows, resolved, 1 row, resolved
    ends = {1, 3, 4, 5, 6, 9, 10, 19, 20, 21, 22}
    found = _taken(WholeReader(ListSource(stream.values, 0, rows)))
    assert [first for first, _ in found] == [0, *(end for _, end in found[:-1])]
    assert found[-1][1] == len(stream.values)
    assert {end for _, end in found} <= ends
    assert (10, 19) in found


def test_open_transaction_is_kept_until_its_last_row() -> None:
    """A ``resolved`` inside it is no end."""
    stream = RecordStream()
    stream.insert(BAG, {"n": 1})
    stream.pause()
    source = ListSource(list(stream.values), 0, 10)
    reader = WholeReader(source)
    assert _taken(reader) == [(0, 1)], "the schema record alone"
    stream.insert(BAG, {"n": 2})
    stream.commit()
    source.values = list(stream.values)
    assert _taken(reader) == [(1, 5)]


def test_resolved_record_without_an_open_transaction_is_an_end() -> None:
    """The rest of the transaction may be left out by the capture task's filter."""
    stream = RecordStream()
    stream.insert(BAG, {"n": 1})
    stream.fence()
    assert _taken(WholeReader(ListSource(stream.values, 0, 10))) == [(0, 3)]


def test_statement_ends_the_rows_before_it() -> None:
    """Rows of CREATE TABLE … SELECT follow their statement."""
    stream = RecordStream()
    stream.insert(BAG, {"n": 1})
    rows = len(stream.values)
    stream.ddl("CREATE TABLE t (n INT)")
    values = values_of(stream.values[1:])
    assert last_end(values) == len(values)
    assert first_end(values) == rows - 1


@pytest.mark.parametrize("damaged", [b"", b"\0\0\0\0\1", b"\0\0\0\0\1\x0cschem"])
def test_damaged_record_is_passed_on_at_once(damaged: bytes) -> None:
    """The window reports it with its offset; a reader that waited for its end would hide it."""
    assert last_end(values_of([damaged])) == 1
    stream = _stream(9)
    assert last_end(values_of([*stream.values[:3], damaged])) == 4
    assert first_end(values_of([*stream.values[1:3], damaged])) == 3


def test_reader_of_a_large_transaction_waits_for_its_end() -> None:
    """Without its last row, ``large`` is not set. Another ``seek`` begins again."""
    stream = _stream(9)
    source = ListSource(stream.values[:8], 0, 10)
    reader = WholeReader(source)
    assert _taken(reader) == [(0, 1)]
    assert reader.is_scanning
    assert reader.large is None
    source.values = stream.values
    assert _taken(reader) == [(1, 10), (10, 11)]
    reader.seek(0)
    assert _taken(reader) == [(0, 1), (1, 10), (10, 11)]


@pytest.mark.parametrize(("is_over", "code"), [(True, "MR-5050"), (False, "MR-5052")])
def test_large_transaction_without_its_records_is_an_error(is_over: bool, code: str) -> None:
    """Its reader must not take the missing records for its end."""
    stream = _stream(9)
    source = ListSource(stream.values, 0, 10)
    reader = WholeReader(source)
    while reader.large is None:
        reader.take(SIZE, wait_s=0.0)
    source.values = stream.values[:5]
    with pytest.raises(Retryable) as caught:
        list(reader.read_large(SIZE, wait_s=0.0, is_over=lambda: is_over))
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("units", "ranges"),
    [
        ([0, 1, 2, 3], [(0, 2), (2, 4)]),
        ([0, 0, 0, 1, 2], [(0, 3), (3, 5)]),
        ([0, 1, 1, 2, 2], [(0, 1), (1, 3), (3, 5)]),
        ([0, 1, 1, 1], [(0, 1), (1, 4)]),
        ([7], [(0, 1)]),
        ([], []),
    ],
)
def test_parts_end_where_units_end(units: list[int], ranges: list[tuple[int, int]]) -> None:
    """A part has two records, or one unit that is larger."""
    of_records = Units(np.array(units, np.int64))
    assert list(cut(of_records, rows_max=2)) == ranges
    assert list(cut(numbered(of_records), rows_max=2)) == ranges
