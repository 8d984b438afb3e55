"""A TCP line to a server on loopback that can be cut, or swallow what is sent: between a worker and its ensemble.

open        every byte passes
cut         connections are reset, new ones too
unanswered  as open, but nothing that the server says passes until the line heals
swallowed   connections stand and are taken, nothing passes either way and nothing is reset; what was sent
            meanwhile arrives when the line heals, late, as after a partition of a real network
"""

import socket
import threading

from tests.kit.faults.proxy import CHUNK_BYTES, Proxy


class Line(Proxy):
    """Open at first."""

    def __init__(self, to_port: int) -> None:
        self._is_cut = False
        self._passes = threading.Event()
        self._passes.set()
        self._answers = threading.Event()
        self._answers.set()
        super().__init__("127.0.0.1", to_port)

    @property
    def hosts(self) -> str:
        """host:port, where the server seems to be."""
        return f"127.0.0.1:{self.port}"

    def __exit__(self, *error: object) -> None:
        self._is_cut = True
        self._passes.set()
        self._answers.set()
        super().__exit__(*error)

    def cut(self) -> int:
        """Reset every connection, and every new one."""
        self._is_cut = True
        return super().cut()

    def swallow(self) -> None:
        """Neither pass anything nor reset anything."""
        self._passes.clear()

    def swallow_answers(self) -> None:
        """What is sent arrives; what is answered does not."""
        self._answers.clear()

    def heal(self) -> None:
        """Pass everything, also what was swallowed."""
        self._is_cut = False
        self._passes.set()
        self._answers.set()

    def takes(self) -> bool:
        """Not while it is cut; while it swallows, later."""
        self._passes.wait()
        return not self._is_cut

    def carry(self, source: socket.socket, target: socket.socket, *, is_answer: bool) -> None:
        """Late, if it swallows."""
        try:
            while chunk := source.recv(CHUNK_BYTES):
                self._passes.wait()
                if is_answer:
                    self._answers.wait()
                target.sendall(chunk)
        finally:
            self._passes.wait()  # an end is not told either
