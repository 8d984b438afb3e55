"""A large event of a relay file, read in pieces of ``PIECE_BYTES``: its checksum, or its bytes as a stream.

A source transaction of MySQL may be one event of up to 1 GB (TRANSACTION_PAYLOAD). It is read twice: once for the
CRC-32, so that damage never becomes rows, and once for its content. The second time the CRC-32 is computed again, and
the last piece is returned only if it is right.

Guarantees: one piece is in memory at a time. Not done here: opening files, the event's length and position.
"""

from collections.abc import Callable, Iterator

import numpy as np

from millrace.producer.binlog.compiled import Bytes
from millrace.producer.binlog.crc import TABLES
from millrace.producer.binlog.events import CHECKSUM_BYTES
from millrace.producer.binlog.walk import extend_sum

PIECE_BYTES = 4 << 20  # four or five frames of a compressed relay file

# (file offset, count) to bytes, fewer only at the end of the file
Fetch = Callable[[int, int], Bytes]


def has_right_sum(fetch: Fetch, pos: int, size: int) -> bool:
    """Whether the event of ``size`` bytes at ``pos`` is whole and has the CRC-32 that it ends with."""
    return all(is_right for _, is_right in _pieces(fetch, pos, size))


class EventStream:
    """The bytes of an event without its checksum, as a readable file."""

    def __init__(
        self, fetch: Fetch, pos: int, size: int, *, damage: Callable[[], Exception]
    ) -> None:
        """``damage`` makes the error that is raised instead of returning the last piece of a damaged event."""
        self._pieces = _pieces(fetch, pos, size)
        self._damage = damage
        self._piece: Bytes = np.zeros(0, np.uint8)
        self._left = size - CHECKSUM_BYTES

    def read(self, count: int, /) -> bytes:
        """The next ``count`` bytes, fewer only at the end."""
        found = bytearray()
        wanted = min(count, self._left)
        while len(found) < wanted:
            if not self._piece.size:
                self._piece, is_right = next(self._pieces)
                if not is_right:
                    raise self._damage()
            taken, self._piece = np.split(self._piece, [wanted - len(found)])
            found += taken.data
        self._left -= len(found)
        return bytes(found)


def _pieces(fetch: Fetch, pos: int, size: int) -> Iterator[tuple[Bytes, bool]]:
    """The pieces, each with False if the event is known to be damaged. The last one has the checksum."""
    done = sum_ = 0
    folded = np.zeros(16, np.uint8)
    while done < size:
        # The last piece has the whole checksum.
        left = size - done
        count = left if left <= PIECE_BYTES else min(PIECE_BYTES, left - CHECKSUM_BYTES)
        piece = fetch(pos + done, count)
        done += count
        if len(piece) < count:
            yield piece, False
            return
        if done < size:
            sum_ = extend_sum(sum_, piece, count, TABLES, folded)
            yield piece, True
        else:
            sum_ = extend_sum(sum_, piece, count - CHECKSUM_BYTES, TABLES, folded)
            stored = int.from_bytes(piece[-CHECKSUM_BYTES:].tobytes(), "little")
            yield piece, sum_ == stored
