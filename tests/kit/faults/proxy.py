"""A TCP proxy on loopback: connections are taken, carried both ways and cut; what passes is the heir's affair.

``Line`` (tests/kit/control/line.py) swallows, ``CuttingProxy`` (tests/kit/relay/relay.py) cuts after so many bytes,
``PacketProxy`` at a packet, ``BadLine`` (tests/kit/apply/faults.py) loses a request or its answer.

Two threads carry a connection, one a direction. At the end of the block every connection is cut and every thread
joined.
"""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self

CHUNK_BYTES = 1 << 16


class Proxy:
    """To a server at ``host``, ``port``, on a port of its own. Everything passes, unless an heir says otherwise."""

    def __init__(self, host: str, port: int) -> None:
        self._to = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.connections = 0
        self._lock = threading.Lock()  # an end is kept and can be cut, or neither
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
        """Reset every connection; how many there have been."""
        with self._lock:
            for end in self._ends:
                shut(end)
            self._ends.clear()
            return self.connections

    # ---- what heirs say --------------------------------------------------------------------------------

    def takes(self) -> bool:
        """Whether a new connection is taken, or reset; may wait."""
        return True

    def carry(self, source: socket.socket, target: socket.socket, *, is_answer: bool) -> None:
        """Pass on one direction of a connection; at the return the connection ends. OSError: it has ended."""
        while chunk := source.recv(CHUNK_BYTES):
            target.sendall(chunk)

    # ---- plumbing --------------------------------------------------------------------------------------

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
    """End both directions; it may be gone already."""
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
