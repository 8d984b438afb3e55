"""A TCP proxy that knows packets: it cuts a dump at a given packet behind a given event, at a given byte of it."""

import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from producer.source.dump import COM_BINLOG_DUMP
from schemas.documents.model import Member

HEAD_BYTES = 4  # 3 length, 1 sequence


@dataclass(frozen=True, slots=True)
class Cut:
    """``packet``: counted from the one with the first event, which is 0; ``kept`` bytes of it, head included, pass."""

    packet: int
    kept: int


@dataclass
class PacketProxy:
    """``cuts`` are taken one a connection, in order; then everything passes. ``on_cut`` is called behind each.

    ``spoilt``: this packet has its last bit flipped on every connection.
    """

    behind: Member
    first_event: bytes
    cuts: list[Cut]
    on_cut: Callable[[], None] = lambda: None
    spoilt: int | None = None
    member: Member = field(init=False)
    _open: list[socket.socket] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> "PacketProxy":
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.member = Member("127.0.0.1", self._listener.getsockname()[1])
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        _shut(self._listener)
        for end in self._open:
            _shut(end)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection((self.behind.host, self.behind.port))
            self._open += [client, server]
            is_dump = threading.Event()
            self._start(self._pass_commands, client, server, is_dump)
            self._start(self._pass_packets, server, client, is_dump)

    def _pass_commands(
        self, client: socket.socket, server: socket.socket, is_dump: threading.Event
    ) -> None:
        try:
            while chunk := client.recv(1 << 16):
                if len(chunk) > HEAD_BYTES and chunk[3] == 0 and chunk[4] == COM_BINLOG_DUMP:
                    is_dump.set()
                server.sendall(chunk)
        except OSError:
            return
        finally:
            _shut(server)
            client.close()

    def _pass_packets(
        self, server: socket.socket, client: socket.socket, is_dump: threading.Event
    ) -> None:
        try:
            number: int | None = None
            with server.makefile("rb") as stream:
                while len(head := stream.read(HEAD_BYTES)) == HEAD_BYTES:
                    packet = head + stream.read(int.from_bytes(head[:3], "little"))
                    if is_dump.is_set():
                        if packet[HEAD_BYTES + 1 :] == self.first_event:
                            number = 0
                        if number is not None and self.cuts and number == self.cuts[0].packet:
                            client.sendall(packet[: self.cuts[0].kept])
                            return
                        if number is not None and number == self.spoilt:
                            packet = packet[:-1] + bytes([packet[-1] ^ 1])
                        number = None if number is None else number + 1
                    client.sendall(packet)
        except OSError:
            return
        finally:
            _shut(client)
            server.close()
            if number is not None and self.cuts and number == self.cuts[0].packet:
                del self.cuts[0]
                self.on_cut()


def _shut(end: socket.socket) -> None:
    """Reset one side; it may be gone already."""
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
