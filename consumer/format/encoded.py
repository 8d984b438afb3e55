"""The records of one table in a format: keys and values as bytes, in the order in which a partition gets them.

A line is one record. ``PART`` numbers the records of one change: a delete with its tombstone, a change of the key as
delete, tombstone and create. Lines ascend by (``SEQ``, ``PART``).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millrace.consumer.kernel.record_parts import (
    KEY_END,
    KEY_START,
    LINE_WIDTH,
    NEW_KEY,
    OLD_KEY,
    OTHER,
    OTHER_END,
    OTHER_START,
    PART,
    RECORD,
    SEQ,
    VALUE_END,
    VALUE_START,
)
from millrace.consumer.records.numbers import Ints

__all__ = [
    "KEY_END",
    "KEY_START",
    "LINE_WIDTH",
    "NEW_KEY",
    "OLD_KEY",
    "OTHER",
    "OTHER_END",
    "OTHER_START",
    "PART",
    "RECORD",
    "RECORDS_OF_A_CHANGE_MAX",
    "SEQ",
    "VALUE_END",
    "VALUE_START",
    "Encoded",
]


RECORDS_OF_A_CHANGE_MAX = 3  # a change of the key: delete, tombstone, create


@dataclass(frozen=True, slots=True)
class Encoded:
    """``lines`` has one line for each record, with the places of its key and value in ``payload``.

    ``KEY_START`` to ``KEY_END``, both -1 without a key; ``VALUE_START`` to ``VALUE_END``, both -1 for a tombstone;
    ``SEQ`` of the set topic, ``PART``, and ``RECORD``, its number in the batch. If a change of the key made the record:
    ``OTHER`` is ``NEW_KEY`` or ``OLD_KEY``, which is at ``OTHER_START`` to ``OTHER_END``; else all three are -1.
    """

    payload: npt.NDArray[np.uint8]
    lines: Ints

    def __len__(self) -> int:
        return len(self.lines)

    def key(self, number: int) -> bytes | None:
        """The key of one record."""
        return self._part(number, KEY_START)

    def value(self, number: int) -> bytes | None:
        """The value of one record; None for a tombstone."""
        return self._part(number, VALUE_START)

    def other_key(self, number: int) -> tuple[int, bytes | None]:
        """``OTHER`` of one record, and that key."""
        other = int(self.lines[number, OTHER])
        return other, self._part(number, OTHER_START) if other >= 0 else None

    def _part(self, number: int, start: int) -> bytes | None:
        first, end = int(self.lines[number, start]), int(self.lines[number, start + 1])
        return self.payload[first:end].tobytes() if first >= 0 else None
