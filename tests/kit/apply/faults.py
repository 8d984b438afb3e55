"""A bad line to a target, and a task that goes on as a supervisor would have it: tools for faults of apply.

``BadLine`` is a TCP proxy. It loses what comes next once: the request (the server never sees it) or the answer (the
server has done what was asked), and the connection with it. It passes TLS on unread, so that a test says when.
"""

import socket
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
from tests.kit.apply.local import LocalRecords, endpoint_of, ignore
from tests.kit.apply.topic import RecordStream
from tests.kit.faults.proxy import CHUNK_BYTES, Proxy

TRIES_MAX = 6


class Loss(StrEnum):
    """What a bad line loses."""

    REQUEST = "request"
    ANSWER = "answer"


class BadLine(Proxy):
    """A proxy to a server on loopback."""

    def __init__(self, server: DatabaseServer) -> None:
        self.lost: list[Loss] = []
        self._next: Loss | None = None
        super().__init__(server.host, server.port)
        self.endpoint: Endpoint = replace(endpoint_of(server), port=self.port)

    def lose(self, what: Loss) -> None:
        """The next request, or its answer, and the connection it is on."""
        self._next = what

    def carry(self, source: socket.socket, target: socket.socket, *, is_answer: bool) -> None:
        """Until it is lost."""
        while chunk := source.recv(CHUNK_BYTES):
            kind = Loss.ANSWER if is_answer else Loss.REQUEST
            if self._next is kind:
                self._next = None
                self.lost.append(kind)
                return
            target.sendall(chunk)


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
