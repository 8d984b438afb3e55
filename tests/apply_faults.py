"""A bad line to a target, and a task that goes on as a supervisor would have it: tools for faults of apply.

``BadLine`` is a TCP proxy. It loses what comes next once: the request (the server never sees it) or the answer (the
server has done what was asked), and the connection with it. It passes TLS on unread, so that a test says when.
"""

import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise

from consumer.apply import take_over
from consumer.batch import BatchApplier
from consumer.target.connection import Endpoint, connect
from deploy.servers import DatabaseServer
from millrace.errors import MillraceError, Retryable
from schemas.documents import ApplyTask
from tests.apply_local import LocalRecords, endpoint_of, ignore
from tests.apply_topic import RecordStream

TRIES_MAX = 6


class Loss(StrEnum):
    """What a bad line loses."""

    REQUEST = "request"
    ANSWER = "answer"


class BadLine:
    """A proxy to a server on loopback."""

    def __init__(self, server: DatabaseServer) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint: Endpoint = replace(endpoint_of(server), port=self._listener.getsockname()[1])
        self.lost = 0
        self._next: Loss | None = None
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def __enter__(self) -> "BadLine":
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self._listener, *self._open):
            _shut(end)
        for thread in self._threads:
            thread.join()

    def lose(self, what: Loss) -> None:
        """The next request, or its answer, and the connection it is on."""
        self._next = what

    def cut(self) -> None:
        """End every connection."""
        for end in self._open:
            _shut(end)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                self._listener.close()
                return
            try:
                server = socket.create_connection((self._server.host, self._server.port))
            except OSError:
                client.close()
                continue
            self._open += [client, server]
            for ends in ((client, server, Loss.REQUEST), (server, client, Loss.ANSWER)):
                pump = threading.Thread(target=self._pump, args=ends)
                self._threads.append(pump)
                pump.start()

    def _pump(self, source: socket.socket, target: socket.socket, carries: Loss) -> None:
        try:
            while chunk := source.recv(1 << 16):
                if self._next is carries:
                    self._next = None
                    self.lost += 1
                    break
                target.sendall(chunk)
        except OSError:
            pass
        finally:
            _shut(source)
            _shut(target)
            source.close()


def _shut(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


@dataclass
class Supervised:
    """A task whose micro-batches are ``values[first:end]`` of a stream; what may be tried again is, by a new run."""

    endpoint: Endpoint
    task: ApplyTask
    stream: RecordStream
    cuts: Sequence[int] = ()
    failures: list[MillraceError] = field(default_factory=list)
    is_large: Callable[[int], bool] = bool  # the first for one lane, all others for many

    def run(self) -> BatchApplier:
        """Until all is applied; Fenced and Fatal come out."""
        while True:
            try:
                return self.run_once()
            except Retryable as exc:
                self.failures.append(exc)
                if len(self.failures) == TRIES_MAX:
                    raise

    def run_once(self) -> BatchApplier:
        """One run: from the fence to the end of the stream."""
        session = connect(self.endpoint)
        try:
            applier = take_over(session, self.endpoint, self.task, epoch=1)
        finally:
            session.close()
        try:
            bounds = [0, *self.cuts, len(self.stream.values)]
            for number, (first, end) in enumerate(pairwise(bounds)):
                if end > applier.mark.next_offset:
                    values = self.stream.values[first:end]
                    records = LocalRecords(values, first, is_large=self.is_large(number))
                    applier.process(records, ignore)
        finally:
            applier.close()
        return applier

    @property
    def codes(self) -> list[str]:
        """What the runs that failed told."""
        return [failure.code for failure in self.failures]
