"""Sets of applied seqs as bitmaps. A lane commits them with its rows; a replay skips them.

    bit ``i`` of byte ``j`` (least significant first): ``first_seq + 8 * j + i`` is applied

Pure. The low-water mark is not part of a bitmap.
"""

from collections.abc import Iterable

import numpy as np

from millrace.consumer.records.numbers import NO_SEQS, Seqs


def to_bitmap(seqs: Seqs) -> tuple[int, bytes]:
    """(first seq, bitmap) of a non-empty set of seqs."""
    first = int(seqs.min())
    bits = np.zeros(int(seqs.max()) - first + 1, np.uint8)
    bits[seqs - first] = 1
    return first, np.packbits(bits, bitorder="little").tobytes()


def from_bitmaps(bitmaps: Iterable[tuple[int, bytes]]) -> Seqs:
    """The seqs of all bitmaps, sorted."""
    parts = [
        np.flatnonzero(np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")) + first
        for first, bits in bitmaps
    ]
    return Seqs(np.unique(np.concatenate(parts))) if parts else NO_SEQS


def not_applied(
    seqs: Seqs, *, mark: int, applied: Seqs
) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """True for each seq above the mark that is not in ``applied`` (sorted)."""
    waiting = seqs > mark
    if len(applied):
        places = np.minimum(np.searchsorted(applied, seqs), len(applied) - 1)
        waiting &= applied[places] != seqs
    return waiting
