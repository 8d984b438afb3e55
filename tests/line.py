"""A TCP line to a server on loopback that can be cut, or swallow what is sent: between a worker and its ensemble.

open        every byte passes
cut         connections are reset, new ones too
swallowed   connections stand and are taken, nothing passes either way and nothing is reset; what was sent
            meanwhile arrives when the line heals, late, as after a partition of a real network
"""

import socket
import threading
from contextlib import suppress


class Line:
    """A proxy on a port of its own; open at first."""

    def __init__(self, to_port: int) -> None:
        self._to = ("127.0.0.1", to_port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._is_cut = False
        self._passes = threading.Event()
        self._passes.set()
        self._lock = threading.Lock()  # around the ends: one is kept and can be cut, or neither
        self._ends: list[socket.socket] = []
        self._carrying: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    @property
    def hosts(self) -> str:
        """host:port, where the server seems to be."""
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> "Line":
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        self._passes.set()
        _shut(self._listener)
        self._accepting.join()
        self._listener.close()
        for thread in self._carrying:
            thread.join()

    def cut(self) -> None:
        """Reset every connection, and every new one."""
        with self._lock:
            self._is_cut = True
            for end in self._ends:
                _shut(end)
            self._ends.clear()

    def swallow(self) -> None:
        """Neither pass anything nor reset anything."""
        self._passes.clear()

    def heal(self) -> None:
        """Pass everything, also what was swallowed."""
        self._is_cut = False
        self._passes.set()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._keep(client):
                thread = threading.Thread(target=self._carry, args=(client,))
                thread.start()
                self._carrying.append(thread)

    def _carry(self, client: socket.socket) -> None:
        """One connection, both ways, until either side ends it."""
        self._passes.wait()
        with client, suppress(OSError), socket.create_connection(self._to) as server:
            if self._keep(server):
                back = threading.Thread(target=self._pump, args=(server, client))
                back.start()
                self._pump(client, server)
                back.join()

    def _keep(self, end: socket.socket) -> bool:
        with self._lock:
            if self._is_cut:
                end.close()
                return False
            self._ends.append(end)
            return True

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while chunk := source.recv(1 << 16):
                self._passes.wait()
                target.sendall(chunk)
        self._passes.wait()
        _shut(source)
        _shut(target)


def _shut(end: socket.socket) -> None:
    """End both directions; it may be gone already."""
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
