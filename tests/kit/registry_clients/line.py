"""A proxy to a registry that notes the requests. It forwards bytes: clients meet the registry's own HTTP."""

import re
import socket
from urllib.parse import urlsplit

from tests.kit.faults.proxy import CHUNK_BYTES, Proxy

_REQUEST = re.compile(rb"^(GET|HEAD|POST|PUT|DELETE) (\S+) HTTP/1\.1\r$", re.MULTILINE)


class NotingProxy(Proxy):
    """``requests``: method and path of each, in order of arrival."""

    def __init__(self, registry: str) -> None:
        parts = urlsplit(registry)
        assert parts.hostname is not None
        assert parts.port is not None
        self.requests: list[str] = []
        super().__init__(parts.hostname, parts.port)

    @property
    def address(self) -> str:
        """The registry's address for a client."""
        return f"http://127.0.0.1:{self.port}"

    def carry(self, source: socket.socket, target: socket.socket, *, is_answer: bool) -> None:
        """Forward, and note each request before the registry gets it."""
        while chunk := source.recv(CHUNK_BYTES):
            if not is_answer:
                self.requests += [
                    f"{method.decode()} {path.decode()}" for method, path in _REQUEST.findall(chunk)
                ]
            target.sendall(chunk)
