"""The bytes of a result as they arrive, in a buffer that the kernel reads.

Memory: the buffer, and the largest row. A row of several packets is put together in a separate buffer.
"""

import io
from typing import Protocol

import numpy as np

from millrace.text_protocol.walk import (
    AT,
    HEAD_BYTES,
    PACKET_MAX,
    ROW_END,
    SEQUENCE,
    Bytes,
    Ints,
    little_number,
)


class RowPackets(Protocol):
    """The result of a SELECT as raw bytes, from the first row's packet on. A driver's module makes it.

    ``sequence``: the sequence number of the first packet. Until ``end`` the session takes no other statement.
    """

    sequence: int

    def read(self, room: memoryview) -> int:
        """Read what has arrived into ``room``; waits for the first byte. Returns the number of bytes."""
        ...

    def end(self, packet: bytes) -> None:
        """End the result. ``packet``: the payload of its last packet; it may be the server's error, which is raised."""


class Arriving:
    """``data`` is filled up to ``end``. ``joined``: the bytes of the row if it had several packets, else 0.

    ``bytes`` counts all that have arrived. ``is_done``: the result has ended.
    """

    def __init__(self, packets: RowPackets, bytes_max: int) -> None:
        self._packets = packets
        self._buffer: Bytes = np.empty(bytes_max, np.uint8)
        self.data, self.end, self.joined = self._buffer, 0, 0
        self._after = (0, 0)  # position and end in the buffer, while a joined row is read
        self.bytes = 0
        self.is_done = False

    def more(self, state: Ints) -> None:
        """Read on: the kernel needs bytes after ``state[AT]``, or has finished a joined row."""
        if self.joined:
            self.data, self.joined = self._buffer, 0
            state[AT], self.end = self._after
            return
        at = int(state[AT])
        tail = self._buffer[at : self.end].copy()
        needed = HEAD_BYTES + _length(tail) if len(tail) >= HEAD_BYTES else HEAD_BYTES + 1
        if needed > len(self._buffer):
            self.data = self._buffer = np.empty(needed, np.uint8)
        self._buffer[: len(tail)] = tail
        state[AT], self.end = 0, len(tail)
        self.end += self._read(self._buffer.data[self.end :])

    def join(self, state: Ints) -> None:
        """Put the packets of one row together, the first of which begins at ``state[AT]``."""
        self._after = (int(state[AT]), self.end)
        row: Bytes = np.empty(0, np.uint8)
        length = PACKET_MAX
        while length == PACKET_MAX:
            head = np.empty(HEAD_BYTES, np.uint8)
            self._fill(head)
            length = _length(head)
            begin = len(row)
            row.resize(begin + length, refcheck=False)  # in place, without a second copy
            self._fill(row[begin:])
            state[SEQUENCE] = (state[SEQUENCE] + 1) & 0xFF
        self.data, self.end, self.joined = row, len(row), len(row)
        state[AT] = 0

    def row(self, state: Ints) -> bytes:
        return bytes(self.data[state[AT] : state[ROW_END]])

    def finish(self, state: Ints) -> None:
        """Read the last packet; the server's error is raised."""
        self._after = (int(state[AT]), self.end)
        head = np.empty(HEAD_BYTES, np.uint8)
        self._fill(head)
        packet = np.empty(_length(head), np.uint8)
        self._fill(packet)
        self.is_done = True
        self._packets.end(packet.tobytes())

    def _fill(self, room: Bytes) -> None:
        """Take the next bytes, first from the buffer."""
        at, end = self._after
        known = min(len(room), end - at)
        room[:known] = self._buffer[at : at + known]
        self._after = (at + known, end)
        view = room.data
        while known < len(room):
            known += self._read(view[known:])

    def _read(self, room: memoryview) -> int:
        count = self._packets.read(room)
        self.bytes += count
        return count


def _length(head: Bytes) -> int:
    return int(little_number(head, 0, 3))


class DrainedFile:
    """Reads what a driver's buffer has, then from the socket: ``readinto1`` of the buffer would wait for more."""

    def __init__(self, file: io.BufferedReader) -> None:
        self._file = file
        self._is_drained = False

    def read(self, room: memoryview) -> int:
        """As ``RowPackets.read``; 0 at the end of the connection. OSError is that of the socket."""
        if self._is_drained:
            return self._file.raw.readinto(room) or 0
        held = self._file.read1(len(room))
        room[: len(held)] = held
        self._is_drained = len(held) < len(room)
        return len(held)
