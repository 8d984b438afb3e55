"""A source that ends before an offset, whatever the topic has after it."""

from dataclasses import dataclass

import numpy as np

from consumer.records.pieces import Size, Source, Taken


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
