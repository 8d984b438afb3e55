"""Packets of the MySQL protocol, as a server sends and receives them.

    packet     3 length | 1 sequence | payload            0xFFFFFF: the payload continues in the next packet
    OK         0x00 | affected rows 0 | insert id 0 | 2 status | 2 warnings
    error      0xFF | 2 number | # | 5 SQL state | text
    EOF        0xFE | 2 warnings | 2 status               (CLIENT_DEPRECATE_EOF is not offered)
    result     column count | column* | EOF | row* | EOF
    column     6 texts: def, database, table, table, name, name | 0x0C | 2 charset | 4 length | 1 type | 2 flags
               | 1 decimals | 2 zero
    row        one text for each column; 0xFB is NULL

Guarantees: a packet longer than the caller's limit is refused before it is read. Not done here: which packet follows
which (``session``), events (``dump``).
"""

import select
import socket
import struct
import time
from collections.abc import Iterable, Sequence
from typing import TypeAlias

Value: TypeAlias = str | int | None

PAYLOAD_MAX = 0xFFFFFF
HEAD_BYTES = 4
AUTOCOMMIT = 2  # the status that every OK and EOF shows
_UTF8MB4, _BINARY = 255, 63
_LONGLONG, _VAR_STRING = 8, 253
_NUMBER_SIZES = {0xFC: 2, 0xFD: 3, 0xFE: 8}
_TEXT_BYTES = 4096  # the length that a column claims


class Refusal(Exception):
    """A statement or command that the client gets an error for: ``number`` and SQL state as a server has them."""

    def __init__(self, number: int, state: str, text: str) -> None:
        super().__init__(text)
        self.number, self.state, self.text = number, state, text


class Disconnected(Exception):
    """The client is gone, silent, or does not speak the protocol."""


class Wire:
    """The packets of one connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.sequence = 0  # of the next packet
        self.until_s = 0.0  # when all that follows has to be over, on the monotonic clock; 0: each call has its timeout

    def read(self, *, bytes_max: int) -> bytes:
        parts: list[bytes] = []
        while True:
            head = self._exactly(HEAD_BYTES)
            length = int.from_bytes(head[:3], "little")
            self.sequence = (head[3] + 1) & 255
            if length > bytes_max - sum(map(len, parts)):
                raise Disconnected(f"a packet has more than {bytes_max} bytes")
            parts.append(self._exactly(length))
            if length < PAYLOAD_MAX:
                return b"".join(parts)

    def write(self, *payloads: bytes) -> None:
        """Send packets, each shorter than ``PAYLOAD_MAX``. Disconnected."""
        out = bytearray()
        for payload in payloads:
            out += len(payload).to_bytes(3, "little") + bytes([self.sequence]) + payload
            self.sequence = (self.sequence + 1) & 255
        self.send(out)

    def send(self, framed: bytes | bytearray | memoryview) -> None:
        """Send packets that have their heads. Disconnected."""
        try:
            self.socket.sendall(framed)
        except OSError as error:
            raise Disconnected(str(error)) from error

    def check_open(self) -> None:
        poll = select.poll()
        poll.register(self.socket.fileno(), select.POLLRDHUP)
        if poll.poll(0):
            raise Disconnected("the client closed the connection")

    def keep_deadline(self) -> None:
        """Limit the next call to what is left of the time. Disconnected."""
        if self.until_s:
            rest_s = self.until_s - time.monotonic()
            if rest_s <= 0:
                raise Disconnected("the client took too long")
            self.socket.settimeout(rest_s)

    def _exactly(self, length: int) -> bytes:
        parts = bytearray()
        while len(parts) < length:
            self.keep_deadline()
            try:
                part = self.socket.recv(length - len(parts))
            except OSError as error:
                raise Disconnected(str(error)) from error
            if not part:
                raise Disconnected("the client closed the connection")
            parts += part
        return bytes(parts)


def ok_packet() -> bytes:
    return b"\0\0\0" + struct.pack("<HH", AUTOCOMMIT, 0)


def eof_packet() -> bytes:
    return b"\xfe" + struct.pack("<HH", 0, AUTOCOMMIT)


def error_packet(refusal: Refusal) -> bytes:
    head = b"\xff" + struct.pack("<H", refusal.number) + b"#" + refusal.state.encode()
    return head + refusal.text.encode()


def result_packets(columns: Sequence[str], rows: Iterable[Sequence[Value]]) -> list[bytes]:
    """A result set. A column is a number if its first value is."""
    found = [tuple(row) for row in rows]
    first: Sequence[Value] = found[0] if found else [""] * len(columns)
    heads = [
        _column(name, is_number=isinstance(value, int))
        for name, value in zip(columns, first, strict=True)
    ]
    body = [b"".join(map(_cell, row)) for row in found]
    return [packed_number(len(columns)), *heads, eof_packet(), *body, eof_packet()]


def packed_number(number: int) -> bytes:
    if number < 0xFB:
        return bytes([number])
    mark, size = next(
        (mark, size) for mark, size in _NUMBER_SIZES.items() if number < 1 << 8 * size
    )
    return bytes([mark]) + number.to_bytes(size, "little")


def packed_text(text: bytes) -> bytes:
    return packed_number(len(text)) + text


def take_packed_number(payload: bytes, at: int) -> tuple[int, int]:
    """(a length-encoded number at ``at``, the offset after it). Disconnected if it is malformed."""
    first = payload[at] if at < len(payload) else 0xFF
    size = _NUMBER_SIZES.get(first, 0)
    if first in (0xFB, 0xFF) or at + 1 + size > len(payload):
        raise Disconnected("a malformed packet")
    if not size:
        return first, at + 1
    return int.from_bytes(payload[at + 1 : at + 1 + size], "little"), at + 1 + size


def _column(name: str, *, is_number: bool) -> bytes:
    texts = (b"def", b"", b"", b"", name.encode(), name.encode())
    charset = _BINARY if is_number else _UTF8MB4
    kind = _LONGLONG if is_number else _VAR_STRING
    end = struct.pack("<BHIBHBH", 0x0C, charset, _TEXT_BYTES, kind, 0, 0, 0)
    return b"".join(map(packed_text, texts)) + end


def _cell(value: Value) -> bytes:
    return b"\xfb" if value is None else packed_text(str(value).encode())
