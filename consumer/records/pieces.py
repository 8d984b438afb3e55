"""Records that a reader returns for applying, as arrays, and the limits of a request."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from millrace.consumer.records.numbers import Ints
from millrace.consumer.records.rows import Values


@dataclass(frozen=True, slots=True)
class Size:
    """At most this many records and about this many bytes; always one record."""

    rows: int
    bytes: int

    def without(self, pieces: "Sequence[Taken]") -> "Size | None":
        """The room that these records leave; None if they fill it."""
        rows = self.rows - sum(len(piece.values) for piece in pieces)
        room = self.bytes - sum(piece.values.byte_count for piece in pieces)
        return Size(rows, room) if rows > 0 and room > 0 else None


@dataclass(frozen=True)
class Taken:
    """Records in topic order. ``is_end``: at that moment the topic had no more."""

    offsets: Ints
    values: Values
    is_end: bool

    def part(self, first: int, end: int) -> "Taken":
        """Its records ``first`` to ``end - 1``."""
        is_end = self.is_end and end == len(self.offsets)
        return Taken(self.offsets[first:end], self.values.part(first, end), is_end)


def joined(pieces: Sequence[Taken]) -> Taken:
    """Pieces that follow each other as one."""
    if len(pieces) == 1:
        return pieces[0]
    values = [piece.values for piece in pieces]
    payload = np.concatenate([v.payload[v.offsets[0] : v.offsets[-1]] for v in values])
    payload.flags.writeable = False  # as a reader returns it: kernels are compiled for one type
    bounds: npt.NDArray[np.integer[npt.NBitBase]] = np.zeros(sum(map(len, values)) + 1, np.int64)
    np.cumsum(np.concatenate([v.sizes() for v in values]), out=bounds[1:])
    offsets = np.concatenate([piece.offsets for piece in pieces])
    return Taken(offsets, Values(payload, bounds), pieces[-1].is_end)


class Source(Protocol):
    """Records of the topic in order."""

    def seek(self, offset: int) -> None:
        """Continue at ``offset``; negative: the beginning."""

    def take(self, size: Size, *, wait_s: float) -> Taken | None:
        """The next records; None if none came in time."""


@dataclass(slots=True)
class BoundedSource:
    """The records of ``source`` below the offset ``until``."""

    source: Source
    until: int
    _at: int = 0

    def seek(self, offset: int) -> None:
        """See ``Source``."""
        self._at = max(offset, 0)
        self.source.seek(offset)

    def take(self, size: Size, *, wait_s: float) -> Taken | None:
        """See ``Source``; None at the end."""
        left = self.until - self._at
        if left <= 0:
            return None
        # markers have offsets, too: there may be fewer records
        taken = self.source.take(Size(min(size.rows, left), size.bytes), wait_s=wait_s)
        if taken is None:
            return None
        self._at = int(taken.offsets[-1]) + 1
        end = int(np.searchsorted(taken.offsets, self.until))
        return taken.part(0, end) if end else None
