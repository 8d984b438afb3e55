"""Sets of applied seqs as bitmaps. A lane commits them with its rows; a replay skips them.

    bit ``i`` of byte ``j`` (least significant first): ``first_seq + 8 * j + i`` is applied

Pure. The low-water mark is not part of a bitmap.
"""

from collections.abc import Iterable

import numpy as np

from consumer.records.row_schemas import Ints


def to_bitmap(seqs: Ints) -> tuple[int, bytes]:
    """(first seq, bitmap) of a non-empty set of seqs."""
    first = int(seqs.min())
    bits = np.zeros(int(seqs.max()) - first + 1, np.uint8)
    bits[seqs - first] = 1
    return first, np.packbits(bits, bitorder="little").tobytes()


def from_bitmaps(bitmaps: Iterable[tuple[int, bytes]]) -> Ints:
    """The seqs of all bitmaps, sorted."""
    found = [
        np.flatnonzero(np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")) + first
        for first, bits in bitmaps
    ]
    return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)


def not_applied(
    seqs: Ints, *, mark: int, applied: Ints
) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """True for each seq above the mark that is not in ``applied`` (sorted)."""
    waiting = seqs > mark
    if len(applied):
        places = np.minimum(np.searchsorted(applied, seqs), len(applied) - 1)
        waiting &= applied[places] != seqs
    return waiting
