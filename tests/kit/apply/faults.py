"""Tools for faults of apply: a failing connection to a target, and a task that is retried as by a supervisor.

``BadLine`` is a TCP proxy. On demand it loses the next request (the server never receives it) or the next answer (the
server has executed the request), and the connection with it. It forwards TLS unread, so the test decides when.
"""

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise

from millrace.consumer.write.incidents import Tally
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.connection import Endpoint
from millrace.errors import MillraceError, Retryable
from millrace.schemas.documents import ApplyTask
from tests.kit.apply.local import LocalApplier, LocalRecords, endpoint_of, ignore, started_at
from tests.kit.apply.topic import RecordStream
from tests.kit.faults.proxy import CHUNK_BYTES, Proxy

TRIES_MAX = 6


class Loss(StrEnum):
    """The message that a ``BadLine`` loses."""

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
        """Lose the next request or answer, and its connection."""
        self._next = what

    def carry(self, source: socket.socket, target: socket.socket, *, is_answer: bool) -> None:
        """Forward until the loss."""
        while chunk := source.recv(CHUNK_BYTES):
            kind = Loss.ANSWER if is_answer else Loss.REQUEST
            if self._next is kind:
                self._next = None
                self.lost.append(kind)
                return
            target.sendall(chunk)


@dataclass
class Supervised:
    """A task whose micro-batches are the parts of a stream between ``cuts``; Retryable errors lead to a new run."""

    endpoint: Endpoint
    task: ApplyTask
    stream: RecordStream
    cuts: Sequence[int] = ()
    failures: list[MillraceError] = field(default_factory=list)
    is_large: Callable[[int], bool] = bool  # the first for one lane, all others for many
    tally: Tally = field(default_factory=Tally)

    def run(self) -> LocalApplier:
        """Run until all records are applied; raises Fenced and Fatal."""
        while True:
            try:
                return self.run_once()
            except Retryable as exc:
                self.failures.append(exc)
                if len(self.failures) == TRIES_MAX:
                    raise

    def run_once(self) -> LocalApplier:
        """One run: from the fence to the end of the stream."""
        applier = started_at(self.endpoint, self.task)
        try:
            bounds = [0, *self.cuts, len(self.stream.values)]
            for number, (first, end) in enumerate(pairwise(bounds)):
                if end > applier.mark.next_offset:
                    values = self.stream.values[first:end]
                    is_large = self.is_large(number)
                    records = LocalRecords(values, first, is_large=is_large, tally=self.tally)
                    applier.process(records, ignore)
        finally:
            applier.close()
        return applier

    @property
    def codes(self) -> list[str]:
        """The codes of the failed runs."""
        return [failure.code for failure in self.failures]
