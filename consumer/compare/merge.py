"""Finds the rows that only one side has, of two streams in the order of the digests. Pure, in bounded memory."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from consumer.compare.table import Name

SUSPECTS_MAX = 200_000  # of each side, about 40 MB; the rest is only counted

Hashed = tuple[bytes, Name]  # the digest of a row, and its name


@dataclass(slots=True)
class Unmatched:
    """The rows of one side without a row on the other. ``more``: how many are not in ``rows``."""

    rows: list[Hashed] = field(default_factory=list)
    more: int = 0

    def add(self, row: Hashed) -> None:
        """Keep or count a row."""
        if len(self.rows) < SUSPECTS_MAX:
            self.rows.append(row)
        else:
            self.more += 1

    def add_all(self, other: "Unmatched") -> None:
        """Add those of another range of rows."""
        for row in other.rows:
            self.add(row)
        self.more += other.more


def unmatched_rows(
    source: Iterator[Hashed], target: Iterator[Hashed]
) -> tuple[Unmatched, Unmatched]:
    """Both sides without the rows that they share. Equal rows are matched as often as both sides have them."""
    left, right = Unmatched(), Unmatched()
    one, other = next(source, None), next(target, None)
    while one is not None or other is not None:
        if other is None or (one is not None and one[0] < other[0]):
            assert one is not None
            left.add(one)
            one = next(source, None)
        elif one is None or one[0] > other[0]:
            right.add(other)
            other = next(target, None)
        else:
            one, other = next(source, None), next(target, None)
    return left, right
