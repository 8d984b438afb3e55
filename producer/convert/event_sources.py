"""Where events come from: the relay log, a compressed payload in it, or the rows of a prepared XA transaction.

A source holds a window of bytes and an offset in it. The kernel walks the window; ``load_next`` moves it forward.

    RelayEvents      spans of the relay log, file after file
    PayloadEvents    TRANSACTION_PAYLOAD: its events, inflated piece by piece, all with the payload's coordinates.
                     A payload larger than a window is also read piece by piece.
    XaEvents         the events between XA START and XA PREPARE, read again at XA COMMIT

Payload body (libs/mysql/binlog/event/control_events.h): (field packed, length packed, value)* 0, then the data.
Fields: 1 size of the data, 2 compression (0 zstd, 255 none), 3 size when inflated.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np

from millrace.errors import Fatal
from millrace.process.shortage import shortage_of
from millrace.producer.binlog.events import CHECKSUM_ALGORITHM_CRC32, CHECKSUM_BYTES, HEADER_BYTES
from millrace.producer.binlog.transactions import ROLLS_BACK, STAYS
from millrace.producer.binlog.walk import find_group_end, find_table_maps
from millrace.producer.binlog.zstd import (
    READ_BYTES,
    InflatedStream,
    MemorySource,
    Source,
    ZstdError,
)
from millrace.producer.convert.arrays import RECORD_BYTES_MAX, Bytes
from millrace.schemas.byte_reader import ByteReader
from millrace.schemas.gtid import Flavour
from millrace.schemas.place import FIRST_POS, Coordinates
from millrace.schemas.server_version import ServerVersion

WINDOW_BYTES = 4 << 20
_PAYLOAD_END, _PAYLOAD_METHOD = 0, 2
_PAYLOAD_HEAD_BYTES_MAX = 4096  # three fields of a few bytes are usual
_ZSTD, _STORED = 0, 255
_MAPS_FOUND_MAX = 1024  # table maps that are found by one call of the kernel
_NO_EVENTS: Bytes = np.zeros(0, np.uint8)


class Span(Protocol):
    """Whole events, or the beginning of one large TRANSACTION_PAYLOAD."""

    @property
    def at(self) -> Coordinates: ...

    @property
    def payload(self) -> memoryview: ...


class Reader(Protocol):
    """The relay log as the converter uses it (``producer.relay``). Tests use a directory of binlog files."""

    def read(self, at: Coordinates, *, bytes_max: int, cuts_payloads: bool = False) -> Span:
        """Whole events from `at` on; empty at the end of a file or of the readable part.

        With ``cuts_payloads``, only the beginning of a TRANSACTION_PAYLOAD larger than ``bytes_max``.
        """
        ...

    def open_event(self, at: Coordinates) -> Source:
        """The bytes of the event at `at`, from its header to its checksum, as a stream."""
        ...

    def wait(self, at: Coordinates, timeout_s: float) -> bool:
        """Wait for data after `at`; whether there is any."""
        ...

    def after_file(self, at: Coordinates) -> Coordinates | None:
        """The start of the next file if `at` is the end of a closed one."""
        ...

    def files_until(self, at: Coordinates) -> Sequence[Coordinates]:
        """The starts of the files up to that of `at`, oldest first, beginning after the last gap."""
        ...

    def hold(self, at: Coordinates) -> Callable[[], None]:
        """Keep the files from `at` on until the result is called (from any thread) or the reader is closed."""
        ...


class EventSource:
    """A window of bytes and an offset in it, which is beyond the window after an event of which it has the beginning.

    ``file_pos`` is the file offset of the window's start. ``fixed_pos`` is -1, or the coordinates of all its events.
    ``checksum_bytes`` is the size of the checksum after each event.
    """

    def __init__(self, *, file_pos: int, fixed_pos: int, checksum_bytes: int) -> None:
        self.window: Bytes = np.zeros(0, np.uint8)
        self.offset = 0
        self.file_pos = file_pos
        self.fixed_pos = fixed_pos
        self.checksum_bytes = checksum_bytes

    def end_pos(self, at: Coordinates, size: int) -> int:
        """The file offset after the event at `at` with `size` bytes, or after the payload that contains it."""
        return at.pos + size

    def following_maps(self) -> Iterator[bytes]:
        """The bodies of the table maps in the window after the event at ``offset``."""
        rows = np.zeros((_MAPS_FOUND_MAX, 2), np.int64)
        at, count = self.offset, len(rows)
        while count == len(rows):
            count, at = find_table_maps(self.window, at, self.window.size, rows)
            for begin, size in rows[:count].tolist():
                end = begin + size - self.checksum_bytes
                if begin > self.offset and end > begin + HEADER_BYTES:
                    yield self.window[begin + HEADER_BYTES : end].tobytes()

    def load_next(self) -> bool:
        """Load the next events after ``offset``; False at the end (for the relay log: at its end for now)."""
        raise NotImplementedError


class RelayEvents(EventSource):
    """The relay log. ``at``: coordinates of the window's start."""

    def __init__(self, reader: Reader, at: Coordinates) -> None:
        super().__init__(file_pos=at.pos, fixed_pos=-1, checksum_bytes=0)
        self._reader = reader
        self.at = at

    def load_next(self) -> bool:
        """Load the next span; at the end of a file, the first of the next file."""
        here = self.here
        self.at, self.file_pos, self.offset = here, here.pos, 0
        # a large event is not kept while the next one is read or waited for
        self.window = _NO_EVENTS
        span = self._reader.read(here, bytes_max=WINDOW_BYTES, cuts_payloads=True)
        if not len(span.payload):
            following = self._reader.after_file(here)
            if following is None:
                return False
            span = self._reader.read(following, bytes_max=WINDOW_BYTES, cuts_payloads=True)
            here = following
        self.at, self.file_pos = here, here.pos
        self.window = writable(span.payload)
        return True

    @property
    def here(self) -> Coordinates:
        return self.at.at(self.at.pos + self.offset)

    def ends_with_rollback(self) -> bool:
        """Whether MariaDB's source transaction with the event at ``offset`` ends with ROLLBACK: reads to its end."""
        window, offset, here = self.window, self.offset, self.here
        while True:
            step, end = find_group_end(window, offset, window.size, self.checksum_bytes)
            if step != STAYS:
                return step == ROLLS_BACK
            here = here.at(here.pos + end - offset)
            span = self._reader.read(here, bytes_max=WINDOW_BYTES)
            if not len(span.payload):
                return False
            window, offset = writable(span.payload), 0

    def read_first_event(self) -> Bytes:
        """The FORMAT_DESCRIPTION of the file, for a start in the middle of it."""
        span = self._reader.read(self.at.at(FIRST_POS), bytes_max=HEADER_BYTES)
        return np.frombuffer(span.payload, np.uint8)


class PayloadEvents(EventSource):
    """The events inside the body of a TRANSACTION_PAYLOAD event.

    ``stream``: the body, if it is not all in memory; ``body`` then has only its beginning.
    """

    def __init__(
        self,
        body: bytes | memoryview,
        at: Coordinates,
        *,
        end_pos: int,
        stream: Source | None = None,
    ) -> None:
        super().__init__(file_pos=0, fixed_pos=at.pos, checksum_bytes=0)
        head = bytes(body[:_PAYLOAD_HEAD_BYTES_MAX])
        reader = ByteReader(head, "transaction payload")
        method = _STORED
        while (kind := reader.packed()) != _PAYLOAD_END:
            value = ByteReader(reader.take(reader.packed()), "field of a transaction payload")
            if kind == _PAYLOAD_METHOD:
                method = value.packed()
        data_at = len(head) - reader.left
        if stream is None:
            stream = MemorySource(body[data_at:])
        else:
            stream.read(data_at)
        if method == _ZSTD:
            self._stream: Source = InflatedStream(stream)
        elif method == _STORED:
            self._stream = stream
        else:
            raise Fatal(
                "MR-6502",
                f"a payload is compressed with the unknown method {method}",
                coordinates=at,
            )
        self._coordinates = at
        self._end_pos = end_pos

    def end_pos(self, at: Coordinates, size: int) -> int:  # noqa: ARG002 (the payload's own)
        """The end of the payload."""
        return self._end_pos

    def load_next(self) -> bool:
        """Inflate the next piece and append it to the rest of the last one."""
        rest = self.window[self.offset :]
        wanted = WINDOW_BYTES
        if len(rest) >= HEADER_BYTES:  # the rest of one event may be larger than a window
            wanted = max(wanted, int.from_bytes(rest[9:13].tobytes(), "little") - len(rest))
        if wanted > RECORD_BYTES_MAX:
            raise Fatal(
                "MR-6512",
                f"a payload contains an event of {wanted} bytes",
                coordinates=self._coordinates,
            )
        window = np.empty(len(rest) + wanted, np.uint8)
        window[: len(rest)] = rest
        count = len(rest)
        try:
            while piece := self._stream.read(min(READ_BYTES, len(window) - count)):
                window[count : count + len(piece)] = np.frombuffer(piece, np.uint8)
                count += len(piece)
        except (OSError, MemoryError, ZstdError) as error:
            raise shortage_of(error) or Fatal(
                "MR-6003",
                f"a payload cannot be inflated: {error}",
                coordinates=self._coordinates,
            ) from error
        if count == len(rest):
            if count:
                raise Fatal(
                    "MR-6003",
                    f"a payload ends with {count} bytes of an incomplete event",
                    coordinates=self._coordinates,
                )
            return False
        self.window = window[:count]
        self.offset = 0
        return True

    def events(self) -> Iterator[Bytes]:
        """Every event with its header. Fatal MR-6003 if one is cut."""
        while self.load_next():
            while self.offset + HEADER_BYTES <= len(self.window):
                rest = self.window[self.offset :]
                size = int.from_bytes(rest[9:13].tobytes(), "little")
                if size < HEADER_BYTES:
                    raise Fatal(
                        "MR-6003",
                        f"a payload contains an event of {size} bytes",
                        coordinates=self._coordinates,
                    )
                if size > len(rest):
                    break
                self.offset += size
                yield rest[:size]


class EventRange(Protocol):
    """Events of one file."""

    @property
    def start(self) -> Coordinates: ...

    @property
    def end_pos(self) -> int: ...

    @property
    def checksum_bytes(self) -> int: ...


class XaEvents(EventSource):
    """The events of a range, read again."""

    def __init__(self, reader: Reader, group: EventRange) -> None:
        super().__init__(
            file_pos=group.start.pos, fixed_pos=-1, checksum_bytes=group.checksum_bytes
        )
        self._reader = reader
        self._at = group.start
        self._end_pos = group.end_pos

    def load_next(self) -> bool:
        """Load the next span, up to the end of the range."""
        here = self._at.at(self._at.pos + self.offset)
        if here.pos >= self._end_pos:
            return False
        span = self._reader.read(here, bytes_max=WINDOW_BYTES, cuts_payloads=True)
        length = min(len(span.payload), self._end_pos - here.pos)
        if not length:
            raise Fatal(
                "MR-6511",
                "the events of a prepared XA transaction are no longer in the relay log",
                coordinates=here,
            )
        self.window = writable(span.payload)[:length]
        self._at, self.file_pos, self.offset = here, here.pos, 0
        return True


def open_payload(
    event: memoryview, checksum_bytes: int, at: Coordinates, reader: Reader
) -> PayloadEvents:
    """The events of the TRANSACTION_PAYLOAD at ``at``, of which ``event`` is the whole or the beginning."""
    size = int.from_bytes(event[9:13], "little")
    end_pos = at.pos + size
    if len(event) == size:  # it may be large, so it is not copied
        return PayloadEvents(event[HEADER_BYTES : size - checksum_bytes], at, end_pos=end_pos)
    stream = reader.open_event(at)
    stream.read(HEADER_BYTES)
    return PayloadEvents(event[HEADER_BYTES:], at, end_pos=end_pos, stream=stream)


def checksum_bytes_of(format_description: bytes | memoryview) -> int:
    """Size of the checksum after each event of a file. The byte before the event's own CRC is the algorithm."""
    is_whole = len(format_description) > HEADER_BYTES + 5
    return CHECKSUM_BYTES if is_whole and format_description[-5] == CHECKSUM_ALGORITHM_CRC32 else 0


def server_of(format_description: bytes | memoryview, flavour: Flavour) -> ServerVersion:
    """The version of the server that wrote a file: 50 bytes after the format's number."""
    text = bytes(format_description[HEADER_BYTES + 2 : HEADER_BYTES + 52]).partition(b"\0")[0]
    return ServerVersion(flavour, ServerVersion.parse(text.decode("latin-1")).numbers)


def writable(content: memoryview | bytearray) -> Bytes:
    """An array of these bytes with the one type that the kernel is compiled for (the kernel never writes to it)."""
    window = np.frombuffer(content, np.uint8)
    return window if window.flags.writeable else window.copy()
