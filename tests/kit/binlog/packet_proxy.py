"""A TCP proxy that knows packets: it cuts a dump at a given byte of a given packet after a given event."""

import socket
from collections.abc import Callable
from dataclasses import dataclass

from millrace.producer.source.receive.dump import COM_BINLOG_DUMP
from millrace.schemas.documents.model import Member
from tests.kit.faults.proxy import CHUNK_BYTES, Proxy, shut

HEAD_BYTES = 4  # 3 length, 1 sequence


@dataclass(frozen=True, slots=True)
class Cut:
    """``packet`` counts from 0, the one with the first event; its first ``kept`` bytes, with the head, pass."""

    packet: int
    kept: int


class PacketProxy(Proxy):
    """``cuts`` apply one per connection, in order; then everything is forwarded. ``on_cut`` is called after each.

    ``damaged``: the last bit of this packet is flipped on every connection.
    """

    def __init__(
        self,
        server: Member,
        first_event: bytes,
        cuts: list[Cut],
        on_cut: Callable[[], None] = lambda: None,
        *,
        damaged: int | None = None,
    ) -> None:
        self._first_event = first_event
        self.cuts = cuts
        self._on_cut = on_cut
        self._damaged = damaged
        self._dumps: set[socket.socket] = set()  # connections that carry a dump
        super().__init__(server.host, server.port)

    @property
    def member(self) -> Member:
        """The proxy's address."""
        return Member("127.0.0.1", self.port)

    def carry(self, source: socket.socket, target: socket.socket, *, is_answer: bool) -> None:
        """Forward commands as bytes and answers packet by packet."""
        if is_answer:
            self._carry_packets(source, target)
            return
        while chunk := source.recv(CHUNK_BYTES):
            if len(chunk) > HEAD_BYTES and chunk[3] == 0 and chunk[4] == COM_BINLOG_DUMP:
                self._dumps.add(target)
            target.sendall(chunk)

    def _carry_packets(self, server: socket.socket, client: socket.socket) -> None:
        number: int | None = None
        with server.makefile("rb") as stream:
            while len(head := stream.read(HEAD_BYTES)) == HEAD_BYTES:
                packet = head + stream.read(int.from_bytes(head[:3], "little"))
                if server in self._dumps:
                    if packet[HEAD_BYTES + 1 :] == self._first_event:
                        number = 0
                    if number is not None and self.cuts and number == self.cuts[0].packet:
                        client.sendall(packet[: self.cuts[0].kept])
                        shut(client)
                        del self.cuts[0]
                        self._on_cut()
                        return
                    if number is not None and number == self._damaged:
                        packet = packet[:-1] + bytes([packet[-1] ^ 1])
                    number = None if number is None else number + 1
                client.sendall(packet)
