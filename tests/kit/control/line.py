"""A TCP connection to a server on loopback that can be cut or silenced: between a worker and its ensemble.

open        every byte passes
cut         connections are reset, new ones too
unanswered  requests pass, answers only after ``heal``
swallowed   connections stay open and new ones are accepted, but no byte passes; ``heal`` delivers the bytes late, as
            after a network partition
"""

import socket
import threading

from tests.kit.faults.proxy import CHUNK_BYTES, Proxy


class Line(Proxy):
    """A line, open at first."""

    def __init__(self, to_port: int) -> None:
        self._is_cut = False
        self._passes = threading.Event()
        self._passes.set()
        self._answers = threading.Event()
        self._answers.set()
        super().__init__("127.0.0.1", to_port)

    @property
    def hosts(self) -> str:
        """host:port of the proxy."""
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
        """Pass no byte and reset no connection."""
        self._passes.clear()

    def swallow_answers(self) -> None:
        """Pass requests but no answers."""
        self._answers.clear()

    def heal(self) -> None:
        """Pass everything, including swallowed bytes."""
        self._is_cut = False
        self._passes.set()
        self._answers.set()

    def takes(self) -> bool:
        """Refuse while cut; accept later while swallowing."""
        self._passes.wait()
        return not self._is_cut

    def carry(self, source: socket.socket, target: socket.socket, *, is_answer: bool) -> None:
        """Forward; late while swallowing."""
        try:
            while chunk := source.recv(CHUNK_BYTES):
                self._passes.wait()
                if is_answer:
                    self._answers.wait()
                target.sendall(chunk)
        finally:
            self._passes.wait()  # the end of a connection is delayed too
