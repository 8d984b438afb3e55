"""The part of a binlog that has been received and not been converted yet, in temporary files.

    receiver's thread   append, begin_file, note_format        (``ByteSink`` of ``dump_stream``)
    converter           read, wait, after_file, hold           (``Reader`` of ``event_sources``)

A relay log keeps whole files from their first byte. Here a file begins where the dump began, so a look at the newest
rows needs no older ones. A file is deleted once the converter is in a later one and holds nothing in it.

A server without GTIDs begins each source transaction with ANONYMOUS_GTID, which has the layout of GTID (MySQL
``control_events.h``): header 19 | flags 1 | source 16 | number 8. ``numbers_from`` makes GTIDs of them, with the source
``schemas.gtid.NO_SERVER``. Their numbers count the source transactions of the look.

At most ``WAITING_BYTES_MAX`` bytes of whole source transactions wait: then ``append`` does. So a look at an old binlog
does not fill the disk. The converter sees a source transaction when all of it is here.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from tempfile import TemporaryFile
from typing import IO

import numpy as np

from millrace.errors import Fatal
from millrace.producer.binlog.events import (
    ANONYMOUS_GTID,
    CHECKSUM_BYTES,
    GTID,
    HEADER_BYTES,
    TRANSACTION_PAYLOAD,
)
from millrace.producer.binlog.zstd import MemorySource, Source
from millrace.producer.convert.arrays import Bytes
from millrace.schemas.gtid import Flavour
from millrace.schemas.place import FIRST_POS, Coordinates

SUBDIR = "try.000001"
WAITING_BYTES_MAX = 64 << 20
_SOURCE_AT, _NUMBER_AT, _NUMBER_END = 20, 36, 44
_LOOK_S = 0.2  # how often a waiting ``append`` looks whether it must end


@dataclass(slots=True)
class _File:
    """``first``: the offset of its first byte here. ``end``: after the last byte; ``readable``: after the last whole
    source transaction."""

    name: str
    first: int
    content: IO[bytes]
    format: bytes = b""  # of a file that begins later than its FORMAT_DESCRIPTION
    end: int = field(init=False)
    readable: int = field(init=False)
    event_at: int = field(init=False)  # the next event that ``append`` looks at

    def __post_init__(self) -> None:
        self.end = self.readable = self.event_at = self.first


@dataclass(frozen=True, slots=True)
class Span:
    """Whole events, or the beginning of one large payload."""

    at: Coordinates
    payload: memoryview


class PassingBinlog:
    """See the module. ``close`` it, which also ends a waiting ``append``.

    ``numbers_from``: the first number for a transaction without a GTID; 0 for a server with GTIDs.
    """

    def __init__(self, flavour: Flavour, *, file: str, pos: int, numbers_from: int = 0) -> None:
        self.flavour = flavour
        self._number = numbers_from
        self._files = [self._new_file(file, pos)]
        self._at = Coordinates(SUBDIR, file, pos)  # where the converter is
        self._holds: dict[int, Coordinates] = {}
        self._numbers = count()
        self._changed = threading.Condition()
        self._is_closed = False

    def has_format(self, *, within_s: float) -> bool:
        """Wait until a converter can start: it needs the FORMAT_DESCRIPTION of the first file."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._files[0].first == FIRST_POS or bool(self._files[0].format), within_s
            )

    # ---- the receiver's thread -------------------------------------------------------------------------

    def note_format(self, event: bytes) -> None:
        """The FORMAT_DESCRIPTION of the file, which the server sends at the start of a dump from its middle."""
        with self._changed:
            self._files[-1].format = event
            self._changed.notify_all()

    def append(self, payload: Bytes, *, end: int, last_group_at: int, runs: object) -> None:  # noqa: ARG002
        """Add bytes to the newest file. To ``end``, its source transactions are whole."""
        with self._changed:
            file = self._files[-1]
            if self._number:
                payload = self._numbered(file, payload)
            file.content.seek(file.end - file.first)
            file.content.write(payload.data)
            file.end += len(payload)
            file.readable = max(file.readable, end)
            self._changed.notify_all()
            while not self._is_closed and self._waiting_bytes() > WAITING_BYTES_MAX:
                self._changed.wait(_LOOK_S)

    def _numbered(self, file: _File, payload: Bytes) -> Bytes:
        """The bytes with GTIDs for anonymous transactions. An event may continue in the next bytes."""
        numbered = payload.copy()
        at = file.event_at - file.end
        while at + HEADER_BYTES <= len(numbered):
            if numbered[at + 4] == ANONYMOUS_GTID:
                numbered[at + 4] = GTID
                numbered[at + _SOURCE_AT : at + _NUMBER_AT] = 0
                number = np.array([self._number], "<u8").view(np.uint8)
                numbered[at + _NUMBER_AT : at + _NUMBER_END] = number
                self._number += 1
            at += int(numbered[at + 9 : at + 13].view("<u4")[0])
        file.event_at = file.end + at
        return numbered

    def begin_file(self, name: str) -> None:
        """The server continues in this file."""
        with self._changed:
            self._files[-1].readable = self._files[-1].end
            self._files.append(self._new_file(name, FIRST_POS))
            self._changed.notify_all()

    def read_back(self, start: int, end: int) -> bytes:
        """A dump never sends again what is here."""
        raise Fatal("MR-9001", f"the bytes from {start} to {end} were read back")

    @staticmethod
    def _new_file(name: str, pos: int) -> _File:
        return _File(name, pos, TemporaryFile(prefix="millrace-try-"))

    def _waiting_bytes(self) -> int:
        here = self._file(self._at)
        later = self._files[self._files.index(here) + 1 :]
        return here.readable - self._at.pos + sum(file.readable - file.first for file in later)

    # ---- the converter ---------------------------------------------------------------------------------

    def read(self, at: Coordinates, *, bytes_max: int, cuts_payloads: bool = False) -> Span:
        """As many whole events as fit, at least one; or the beginning of a payload that is larger. Empty: none yet."""
        with self._changed:
            file = self._file(at)
            if at.pos < file.first:
                return Span(at, memoryview(file.format))
            self._move(at)
            head = self._bytes(file, at.pos, HEADER_BYTES)
            if len(head) < HEADER_BYTES:
                return Span(at, memoryview(b""))
            size = int.from_bytes(head[9:13], "little")
            if cuts_payloads and size > bytes_max and head[4] == TRANSACTION_PAYLOAD:
                return Span(at, memoryview(self._bytes(file, at.pos, bytes_max)))
            content = self._bytes(file, at.pos, max(size, bytes_max))
        return Span(at, memoryview(content)[: _end_of_last(content)])

    def open_event(self, at: Coordinates) -> Source:
        """The event without its checksum."""
        with self._changed:
            file = self._file(at)
            size = int.from_bytes(self._bytes(file, at.pos, HEADER_BYTES)[9:13], "little")
            return MemorySource(self._bytes(file, at.pos, size - CHECKSUM_BYTES))

    def wait(self, at: Coordinates, timeout_s: float) -> bool:
        """Wait for events after ``at``."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._is_closed or self._has_more(at), timeout_s
            ) and self._has_more(at)

    def after_file(self, at: Coordinates) -> Coordinates | None:
        """The start of the next file if ``at`` is the end of a file."""
        with self._changed:
            index = self._files.index(self._file(at))
            if at.pos < self._files[index].end or index + 1 == len(self._files):
                return None
            return Coordinates(SUBDIR, self._files[index + 1].name, FIRST_POS)

    def files_until(self, at: Coordinates) -> Sequence[Coordinates]:
        """The starts of the files up to that of ``at``."""
        with self._changed:
            starts = [Coordinates(SUBDIR, file.name, file.first) for file in self._files]
        return [start for start in starts if start <= at]

    def hold(self, at: Coordinates) -> Callable[[], None]:
        """Keep the files from ``at`` on until the result is called."""
        number = next(self._numbers)
        with self._changed:
            self._holds[number] = at

        def release() -> None:
            with self._changed:
                self._holds.pop(number, None)

        return release

    def whole(self, at: Coordinates) -> Coordinates:
        """``at``, or the first byte here if the file begins later."""
        with self._changed:
            return at.at(max(at.pos, self._file(at).first))

    def close(self) -> None:
        """Delete the files. Repeated calls do nothing."""
        with self._changed:
            self._is_closed = True
            for file in self._files:
                file.content.close()
            self._changed.notify_all()

    def _file(self, at: Coordinates) -> _File:
        for file in self._files:
            if file.name == at.file:
                return file
        raise Fatal("MR-9001", f"{at} is no longer here")

    def _bytes(self, file: _File, pos: int, size: int) -> bytes:
        file.content.seek(pos - file.first)
        return file.content.read(max(min(size, file.readable - pos), 0))

    def _has_more(self, at: Coordinates) -> bool:
        file = self._file(at)
        return at.pos < file.readable or (at.pos == file.end and file is not self._files[-1])

    def _move(self, at: Coordinates) -> None:
        """The converter is here: delete what it has left behind."""
        self._at = max(self._at, at)
        oldest = min([self._at, *self._holds.values()])
        while self._files[0].name != oldest.file and len(self._files) > 1:
            self._files.pop(0).content.close()
        self._changed.notify_all()


def _end_of_last(content: bytes) -> int:
    """The end of the last whole event."""
    end = 0
    while end + HEADER_BYTES <= len(content):
        size = int.from_bytes(content[end + 9 : end + 13], "little")
        if size < HEADER_BYTES or end + size > len(content):
            break
        end += size
    return end
