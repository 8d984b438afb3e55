"""Cuts the records of a topic into windows by a rule that depends only on the records.

A window ends after ``size.rows`` records, or with the record that makes it ``size.bytes`` large, or at the end offset.
A reader returns what has arrived, so its pieces differ from process to process. Processes that cut the same range from
the same offset get the same windows.
Not done here: reading, and what a record means.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from millrace.consumer.records.pieces import Size, Taken, joined


class Pieces(Protocol):
    """A reader of the topic."""

    def take(self, size: Size, *, wait_s: float) -> Taken | None:
        """The next records; None if none came in time."""


@dataclass(slots=True)
class Cutter:
    """Windows of the records from ``begin`` up to ``end``. ``is_read``: the reader has come to ``end``."""

    pieces: Pieces
    size: Size
    begin: int
    end: int
    is_read: Callable[[], bool]
    _kept: list[Taken] = field(default_factory=list)
    _is_complete: bool = False

    @property
    def is_at_end(self) -> bool:
        """Whether all records up to ``end`` were returned."""
        return self._is_complete and not self._kept

    def take(self, *, wait_s: float) -> Taken | None:
        """The next window. None at the end, or if its records did not come in time: call it again."""
        while (missing := self._missing()) is not None:
            piece = self.pieces.take(missing, wait_s=wait_s)
            if piece is not None:
                self._keep(piece)
            elif not self.is_read():
                return None
            self._is_complete = self._is_complete or self.is_read()
        return self._cut() if self._kept else None

    def _missing(self) -> Size | None:
        """The size that the next window may still need; None if it is complete."""
        return None if self._is_complete else self.size.without(self._kept)

    def _keep(self, piece: Taken) -> None:
        first, last = np.searchsorted(piece.offsets, (self.begin, self.end))
        self._is_complete = self._is_complete or last < len(piece.offsets)
        if last > first:
            self._kept.append(piece.part(int(first), int(last)))

    def _cut(self) -> Taken:
        whole = joined(self._kept)
        ends = np.cumsum(whole.values.sizes())
        count = int(np.searchsorted(ends, self.size.bytes)) + 1
        count = min(count, self.size.rows, len(ends))
        self._kept = [whole.part(count, len(ends))] if count < len(ends) else []
        return whole.part(0, count)
