"""A TCP proxy on loopback: it accepts, forwards and cuts connections; subclasses decide which bytes pass.

``Line`` (tests/kit/control/line.py) swallows, ``CuttingProxy`` (tests/kit/relay/relay.py) cuts after a number of bytes,
``PacketProxy`` at a packet, ``BadLine`` (tests/kit/apply/faults.py) loses a request or its answer.

Two threads forward a connection, one per direction. At the end of the block every connection is cut and every thread
joined.
"""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self

CHUNK_BYTES = 1 << 16


class Proxy:
    """A proxy to ``host`` and ``port`` on its own port. Everything passes, unless a subclass decides otherwise."""

    def __init__(self, host: str, port: int) -> None:
        self._to = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.connections = 0
        self._lock = threading.Lock()  # a socket is either registered for the cut or refused
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._is_ended = False
        self._start(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ended = True
        shut(self._listener)
        self.cut()
        for thread in self._threads:
            thread.join()

    def cut(self) -> int:
        """Reset every connection; returns their number."""
        with self._lock:
            for end in self._ends:
                shut(end)
            self._ends.clear()
            return self.connections

    # ---- for subclasses --------------------------------------------------------------------------------

    def takes(self) -> bool:
        """Whether to accept a new connection or reset it; may wait."""
        return True

    def carry(self, source: socket.socket, target: socket.socket, *, is_answer: bool) -> None:
        """Forward one direction of a connection, which ends at the return. OSError: it has ended."""
        while chunk := source.recv(CHUNK_BYTES):
            target.sendall(chunk)

    # ---- threads and sockets --------------------------------------------------------------------------------------

    def _accept(self) -> None:
        with self._listener:
            while True:
                try:
                    client, _ = self._listener.accept()
                except OSError:
                    return
                self._start(self._connect, client)

    def _connect(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            if not self._keep(client) or not self.takes():
                return
            with socket.create_connection(self._to) as server:
                if not self._keep(server):
                    return
                with self._lock:
                    self.connections += 1
                back = threading.Thread(target=self._carry, args=(server, client, True))
                back.start()
                self._carry(client, server, False)
                back.join()

    def _carry(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        try:
            with suppress(OSError):
                self.carry(source, target, is_answer=is_answer)
        finally:
            shut(source)
            shut(target)

    def _keep(self, end: socket.socket) -> bool:
        with self._lock:
            self._ends.append(end)
            return not self._is_ended

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args)
        self._threads.append(thread)
        thread.start()


def shut(end: socket.socket) -> None:
    """End both directions; the connection may be closed already."""
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
