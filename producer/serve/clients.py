"""The clients of a serving process: who registered, and which dump belongs to whom. Thread-safe.

A second dump with the identity of a running one ends that one, as a server does: a client that lost its connection
without noticing would otherwise be served twice.
"""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from millrace.metrics import gauge
from millrace.producer.serve.dump import Dump
from millrace.producer.serve.requests import DUMP_ERROR, STATE, Registration
from millrace.producer.serve.wire import Refusal

LOGINS_MAX = 64  # clients that have not logged in; a thread each
SLOW_S = 1.0  # a login takes a few round trips

_REPLACED = (
    "A replica with the same server_uuid/server_id as this replica has connected to the source;"
    " the dump of this one is ended"
)

CONNECTED = gauge("millrace_serve_clients")


class Clients:
    def __init__(self, connections_max: int) -> None:
        self._connections_max = connections_max
        self._lock = threading.Lock()
        self._threads = 0
        self._arriving: dict[int, tuple[socket.socket, float]] = {}  # oldest first
        self._connected: set[int] = set()
        self._registered: dict[int, Registration] = {}
        self._dumps: dict[str, Dump] = {}

    @contextmanager
    def arriving(self, connection: socket.socket) -> Iterator[int]:
        """The number of a new connection, until it has logged in. Refusal 1040 if too many log in.

        If all places are taken, the oldest client that is slow loses its own, also in the middle of a TLS handshake:
        ``connection`` is detached then, so its copy is kept.
        """
        with connection.dup() as line:
            thread = self._arrive(line)
            try:
                yield thread
            finally:
                with self._lock:
                    self._arriving.pop(thread, None)

    def _arrive(self, line: socket.socket) -> int:
        with self._lock:
            self._threads += 1
            thread, now_s = self._threads, time.monotonic()
            if len(self._arriving) >= LOGINS_MAX:
                oldest, (late, begun_s) = next(iter(self._arriving.items()))
                if now_s - begun_s < SLOW_S:
                    raise Refusal(1040, "08004", "Too many connections")
                del self._arriving[oldest]
                with suppress(OSError):  # it has left
                    late.shutdown(socket.SHUT_RDWR)
            self._arriving[thread] = line, now_s
        return thread

    @contextmanager
    def connected(self, thread: int) -> Iterator[None]:
        """A place for a client that has logged in, until the block ends. Refusal 1040 if there are too many."""
        with self._lock:
            if len(self._connected) >= self._connections_max:
                raise Refusal(1040, "08004", "Too many connections")
            self._connected.add(thread)
        CONNECTED.inc()
        try:
            yield
        finally:
            CONNECTED.dec()
            with self._lock:
                self._connected.discard(thread)
                self._registered.pop(thread, None)

    def register(self, thread: int, registration: Registration) -> None:
        """Note a registration until its connection ends."""
        with self._lock:
            self._registered[thread] = registration

    def registered(self) -> list[Registration]:
        with self._lock:
            return list(self._registered.values())

    @contextmanager
    def dumping(self, identity: str, dump: Dump) -> Iterator[None]:
        """Note a dump until the block ends, and end an older one with its identity."""
        with self._lock:
            older = self._dumps.get(identity) if identity else None
            if identity:
                self._dumps[identity] = dump
        if older is not None:
            older.end(Refusal(DUMP_ERROR, STATE, _REPLACED))
        try:
            yield
        finally:
            with self._lock:
                if self._dumps.get(identity) is dump:
                    del self._dumps[identity]
