"""Records that a reader returns for applying, as arrays, and the limits of a request."""

from dataclasses import dataclass
from typing import Protocol

from consumer.row_schemas import Ints
from consumer.rows import Values


@dataclass(frozen=True, slots=True)
class Size:
    """At most this many records and about this many bytes; always one record."""

    rows: int
    bytes: int


@dataclass(frozen=True)
class Taken:
    """Records in topic order. ``is_end``: at that moment the topic had no more."""

    offsets: Ints
    values: Values
    is_end: bool


class Source(Protocol):
    """Records of the topic in order."""

    def seek(self, offset: int) -> None:
        """Continue at ``offset``; negative: the beginning."""

    def take(self, size: Size, *, wait_s: float) -> Taken | None:
        """The next records; None if none came in time."""
