"""Windows depend on the records alone, however a reader returns them."""

import random
from dataclasses import dataclass, field

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from millrace.consumer.records.pieces import Size, Taken, joined
from millrace.consumer.records.transaction_cut import Cutter
from tests.kit.apply.values import values_of


@dataclass
class _Pieces:
    """Records of any sizes with gaps between their offsets, in pieces of any size, larger than asked for, too."""

    records: list[tuple[int, bytes]]
    chance: random.Random = field(default_factory=random.Random)
    at: int = 0

    def take(self, size: Size, *, wait_s: float) -> Taken | None:
        """See ``Pieces``."""
        count = self.chance.choice([0, 1, 2, size.rows, size.rows + 3])
        part = self.records[self.at : self.at + count]
        self.at += len(part)
        if not part:
            return None
        offsets = np.array([offset for offset, _ in part], np.int64)
        return Taken(offsets, values_of([value for _, value in part]), self.is_read())

    def is_read(self) -> bool:
        """Whether all were returned."""
        return self.at == len(self.records)


Windows = list[list[tuple[int, bytes]]]


def _windows(
    records: list[tuple[int, bytes]], size: Size, begin: int, end: int, seed: int
) -> Windows:
    pieces = _Pieces(records, random.Random(seed))
    cutter, found = Cutter(pieces, size, begin, end, pieces.is_read), Windows()
    while not cutter.is_at_end:
        taken = cutter.take(wait_s=0.0)
        if taken is not None:
            values = [taken.values.value(number) for number in range(len(taken.values))]
            found.append(list(zip(map(int, taken.offsets), values, strict=True)))
    return found


def _expected(records: list[tuple[int, bytes]], size: Size, begin: int, end: int) -> Windows:
    found, window = Windows(), list[tuple[int, bytes]]()
    for offset, value in records:
        if begin <= offset < end:
            window.append((offset, value))
            total = sum(len(value) for _, value in window)
            if len(window) == size.rows or total >= size.bytes:
                found.append(window)
                window = []
    return [*found, window] if window else found


@given(
    st.lists(st.tuples(st.integers(1, 3), st.binary(min_size=1, max_size=9)), max_size=40),
    st.integers(1, 8),
    st.integers(1, 30),
    st.integers(0, 2**32),
)
def test_windows_do_not_depend_on_the_pieces(
    steps: list[tuple[int, bytes]], rows: int, room: int, seed: int
) -> None:
    """Rows, bytes and both ends decide; a second reader of the same range gets the same windows."""
    offsets = np.cumsum([step for step, _ in steps]).tolist()
    records = [(offset, value) for offset, (_, value) in zip(offsets, steps, strict=True)]
    chance, size = random.Random(seed), Size(rows, room)
    begin, end = chance.randint(0, 10), chance.randint(0, 90)
    wanted = _expected(records, size, begin, end)
    assert _windows(records, size, begin, end, seed) == wanted
    assert _windows(records, size, begin, end, seed + 1) == wanted


def test_joined_pieces_need_no_other_machine_code() -> None:
    """A kernel is compiled for each type of arrays, and one that can be written is another."""
    piece = Taken(np.array([1, 2], np.int64), values_of([b"a", b"b"]), is_end=False)
    found = joined([piece, piece]).values
    for one, other in (
        (found.payload, piece.values.payload),
        (found.offsets, piece.values.offsets),
    ):
        assert (one.dtype, one.flags.writeable) == (other.dtype, other.flags.writeable)
