"""A dump stream in progress: receives bytes, strips and checks them (compiled), and appends them to the relay log.

One pass of the loop is ``recv_into`` a large buffer, one call of ``strip_packets`` and one ``write``. Events that the
server generates instead of reading them from its file are never written: the artificial ROTATE that names the next
file, the artificial FORMAT_DESCRIPTION of a dump that starts inside a file, and heartbeats.

At the start of a resumed dump, the server sends bytes again that the relay file has (``start`` to ``known_end``). They
are compared. A difference raises Retryable MR-1041, and the receiver starts a new sub-directory.

Guarantees: see ``producer.source.receive.receiver``. Not done here: connecting, deciding where to start.
"""

import socket as sockets
import ssl
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from millrace.drivers.mysql.dump_errors import decode_error_packet
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.log import get_logger
from millrace.producer.binlog import events as t
from millrace.producer.binlog import packets, transactions
from millrace.producer.binlog.compiled import Bytes, Words
from millrace.producer.binlog.crc import TABLES
from millrace.producer.binlog.gtid_runs import new_runs
from millrace.producer.relay import layout
from millrace.schemas.documents.model import Member
from millrace.schemas.gtid import Flavour
from millrace.schemas.place import FIRST_POS

WIRE_BYTES = 4 << 20  # the size of the receive buffer, and of the output buffer
POLL_S = 0.2  # how often ``stop`` and silence are checked while no bytes arrive
TLS_RECORD_BYTES = 16_384  # the maximum; after a full record, more are likely to be available
TLS_BATCH_BYTES = 512 << 10
NO_STOP = -1

_STREAM_ERRORS: dict[int, tuple[type[MillraceError], str, str]] = {
    packets.BAD_SEQUENCE: (Retryable, "MR-2005", "a packet is out of sequence"),
    transactions.BAD_LENGTH: (Retryable, "MR-2005", "a packet or event has an impossible length"),
    transactions.BAD_CHECKSUM: (Retryable, "MR-2006", "an event has a wrong checksum"),
    transactions.BAD_POSITION: (Fatal, "MR-2007", "an event names a wrong position"),
    transactions.GROUP_NOT_ENDED: (
        Fatal,
        "MR-2008",
        "a GTID event came before the last source transaction ended",
    ),
    transactions.ROWS_OUTSIDE: (
        Fatal,
        "MR-2008",
        "rows or a commit came outside a source transaction",
    ),
    transactions.BAD_BODY: (Fatal, "MR-2008", "a control event is malformed"),
    transactions.NO_CHECKSUM: (Fatal, "MR-2009", "the file was started without CRC32"),
}

log = get_logger("producer.source.receive.receiver")


@dataclass(slots=True)
class StreamFigures:
    """Counters since the receiver was created. Only the receiver's thread writes them."""

    received_bytes: int = 0
    events: int = 0
    source_transactions: int = 0
    last_byte_at_s: float = 0.0
    first_byte_at_s: float = 0.0  # 0.0 until the first byte of the member
    connects: int = 0


class Verification(Protocol):
    """Decides when the relay log is known to be what the server has (``producer.source.receive.verification``)."""

    def compared(self) -> None:
        """All bytes that the relay file had are compared; at once if it had none."""
        ...

    def appended(self) -> None: ...


class ByteSink(Protocol):
    """Where the bytes go: a ``RelayLog``, or the part of a binlog that ``producer.trial`` looks at."""

    @property
    def flavour(self) -> Flavour: ...

    def append(self, payload: Bytes, *, end: int, last_group_at: int, runs: Words) -> None:
        """Whole events. To ``end``, source transactions are whole."""
        ...

    def begin_file(self, name: str) -> None: ...

    def read_back(self, start: int, end: int) -> bytes:
        """Bytes of the newest file, for a comparison with those that the server sends again."""
        ...


def _ignore(_event: bytes) -> None: ...


class DumpStream:
    """One dump on one socket, until it ends.

    ``on_format`` gets the FORMAT_DESCRIPTION that the server makes for a dump that starts inside a file.
    """

    def __init__(
        self,
        socket: sockets.socket,
        relay: ByteSink,
        *,
        member: Member,
        silence_s: float,
        figures: StreamFigures,
        verification: Verification,
        on_format: Callable[[bytes], None] = _ignore,
    ) -> None:
        self._socket = socket
        self._on_format = on_format
        self._relay = relay
        self._member = member
        self._silence_s = silence_s
        self._figures = figures
        self._verification = verification
        self._wire = np.empty(WIRE_BYTES, np.uint8)
        self._out = np.empty(WIRE_BYTES, np.uint8)
        self._folded = np.zeros(16, np.uint8)
        self._runs = new_runs()
        self._state = np.zeros(packets.STATE_SLOTS, np.int64)
        self._at = 0  # first byte of the buffer not consumed
        self._fill = 0
        self._file = ""
        self._compare_to = 0  # the relay file has the bytes up to here
        self._compared_at = 0
        self._is_resumed = False

    def run(self, stop: threading.Event, *, file: str, start: int, known_end: int) -> None:
        """Receive ``file`` from ``start`` on. Returns when ``stop`` is set, raises when the stream ends."""
        self._file = file
        self._compared_at, self._compare_to = start, known_end
        self._is_resumed = known_end > FIRST_POS
        self._set_verified_if_compared()
        state = self._state
        state[transactions.POS] = state[transactions.BOUNDARY] = start
        state[packets.PACKET_SEQUENCE] = 1
        self._socket.settimeout(POLL_S)
        self._figures.last_byte_at_s = time.monotonic()  # silence counts from here
        while not stop.is_set():
            if self._receive():
                self._consume()

    def _receive(self) -> bool:
        """Fill the buffer with the available bytes; False if none arrive within ``POLL_S``."""
        if self._at:
            left = self._fill - self._at
            self._wire[:left] = self._wire[self._at : self._fill].copy()
            self._at, self._fill = 0, left
        try:
            count = self._socket.recv_into(self._wire.data[self._fill :])
        except TimeoutError:
            if time.monotonic() - self._figures.last_byte_at_s > self._silence_s:
                raise Retryable(
                    "MR-1046",
                    f"{self._member} sent nothing for {self._silence_s:g} s",
                    member=self._member,
                ) from None
            return False
        except OSError as error:
            raise Retryable("MR-1006", f"{self._member}: {error}", member=self._member) from error
        if count == 0:
            raise Retryable(
                "MR-1006", f"{self._member} closed the dump connection", member=self._member
            )
        self._fill += count
        if count == TLS_RECORD_BYTES:
            count += self._receive_records()
        self._figures.received_bytes += count
        self._figures.last_byte_at_s = time.monotonic()
        if not self._figures.first_byte_at_s:
            self._figures.first_byte_at_s = self._figures.last_byte_at_s
        return True

    def _receive_records(self) -> int:
        """Receive further available records: TLS returns one record per call, too little for an efficient pass."""
        begin = self._fill
        self._socket.settimeout(0)
        try:
            while self._fill < TLS_BATCH_BYTES:
                count = self._socket.recv_into(self._wire.data[self._fill :])
                self._fill += count
                if count != TLS_RECORD_BYTES:
                    break
        except (BlockingIOError, ssl.SSLWantReadError):
            return self._fill - begin
        except OSError as error:
            raise Retryable("MR-1006", f"{self._member}: {error}", member=self._member) from error
        finally:
            self._socket.settimeout(POLL_S)
        return self._fill - begin

    def _consume(self) -> None:
        is_mariadb = self._relay.flavour is Flavour.MARIADB
        while True:
            stop_pos = self._compare_to if self._compared_at < self._compare_to else NO_STOP
            status, self._at, written = packets.strip_packets(
                self._wire, self._at, self._fill, self._out, self._state, self._runs, TABLES, self._folded,
                is_mariadb, stop_pos,
            )  # fmt: skip
            if written:
                self._deliver(written)
            match status:
                case transactions.OK:
                    return
                case transactions.RUNS_FULL | packets.REACHED:
                    pass
                case packets.ARTIFICIAL:
                    self._take_artificial()
                case packets.NOT_AN_EVENT:
                    raise decode_error_packet(self._packet(), self._member)
                case _:
                    raise self._explain(status)

    def _deliver(self, written: int) -> None:
        state, runs = self._state, self._runs
        payload = self._out[:written]
        if self._compared_at < self._compare_to:
            known = self._relay.read_back(
                self._compared_at, min(self._compared_at + written, self._compare_to)
            )
            if known != payload.tobytes():
                raise self._doubt("the server's binlog differs from the relay log")
            self._compared_at += written
            self._set_verified_if_compared()
        else:
            self._relay.append(
                payload,
                end=int(state[transactions.BOUNDARY]),
                last_group_at=int(state[transactions.LAST_GROUP_AT]),
                runs=runs[: state[transactions.RUN_COUNT]],
            )
            self._verification.appended()
            self._figures.events += int(state[transactions.EVENT_COUNT])
            self._figures.source_transactions += int(state[transactions.GROUP_COUNT])
        state[transactions.RUN_COUNT] = state[transactions.EVENT_COUNT] = state[
            transactions.GROUP_COUNT
        ] = 0

    def _set_verified_if_compared(self) -> None:
        if self._compared_at >= self._compare_to:
            self._verification.compared()

    def _take_artificial(self) -> None:
        """Handle the artificial event at ``_at`` and skip its packet."""
        event = self._packet()[1:]
        kind = event[4]
        if kind == t.ROTATE:
            (pos,) = struct.unpack_from("<Q", event, t.HEADER_BYTES)
            self._rotate(
                event[t.HEADER_BYTES + 8 : -t.CHECKSUM_BYTES].decode("utf-8", "replace"), pos
            )
        elif kind == t.FORMAT_DESCRIPTION:
            if event[-t.CHECKSUM_BYTES - 1] != t.CHECKSUM_ALGORITHM_CRC32:
                raise self._explain(transactions.NO_CHECKSUM)
            self._on_format(event)
        elif kind not in (t.MARIADB_GTID_LIST, t.MARIADB_START_ENCRYPTION):
            raise Fatal("MR-2008", f"artificial event of unexpected type {kind}", file=self._file)
        self._at += packets.PACKET_HEAD_BYTES + 1 + len(event)
        self._state[packets.PACKET_SEQUENCE] = (self._state[packets.PACKET_SEQUENCE] + 1) & 255

    def _rotate(self, name: str, pos: int) -> None:
        """Handle a ROTATE: the file and position of the next event."""
        state = self._state
        if name == self._file:
            if pos != state[transactions.POS] & 0xFFFFFFFF and pos != state[transactions.POS]:
                raise self._doubt(f"the server continues at {pos}")
            return
        if self._compared_at < self._compare_to:
            raise self._doubt(f"the server's file is shorter than the relay file; {name} follows")
        if layout.file_number(name) != layout.file_number(self._file) + 1 or pos != FIRST_POS:
            raise self._doubt(f"{name}:{pos} follows")
        if state[transactions.GROUP] != transactions.OUTSIDE:
            log.warning("a file ends inside a source transaction", **self._place())
        self._relay.begin_file(name)
        self._file = name
        self._is_resumed = False
        sequence = state[packets.PACKET_SEQUENCE]
        state[:] = 0
        state[transactions.POS] = state[transactions.BOUNDARY] = FIRST_POS
        state[packets.PACKET_SEQUENCE] = sequence

    def _packet(self) -> bytes:
        """The payload of the packet at ``_at``, which is completely in the buffer."""
        length = int.from_bytes(self._wire[self._at : self._at + 3].tobytes(), "little")
        begin = self._at + packets.PACKET_HEAD_BYTES
        return self._wire[begin : begin + length].tobytes()

    def _explain(self, status: int) -> MillraceError:
        kind, code, message = _STREAM_ERRORS[status]
        if kind is Fatal and self._is_resumed and self._relay_is_untouched():
            return self._doubt(message)
        return kind(code, message, member=self._member, **self._place())

    def _relay_is_untouched(self) -> bool:
        """True until the resumed dump delivers new bytes. An error until then puts the overlap in doubt."""
        return bool(self._state[transactions.POS] <= self._compare_to)

    def _doubt(self, message: str) -> Retryable:
        return Retryable("MR-1041", message, member=self._member, **self._place())

    def _place(self) -> dict[str, str]:
        return {"file": self._file, "pos": str(self._state[transactions.POS])}
