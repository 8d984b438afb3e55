"""A late duplicate of an EndTxn request, as a network may deliver it.

Kafka's newer protocol (KIP-890) prevents the harm. librdkafka uses the older one, in which a request names a producer
id and epoch but no transaction.
"""

import logging
import re
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from millrace.drivers.kafka.access import GivenAccess
from millrace.drivers.kafka.producer import TransactionalProducer
from millrace.drivers.kafka.reader import TopicReader
from millrace.errors import MillraceError, Retryable
from millrace.producer.publish.publisher import MID_PRODUCE
from millrace.schemas.documents import Brokers
from tests.kit.publisher.rig import Rig, once_at
from tests.kit.waiting import eventually

Patch = pytest.MonkeyPatch

_END_TXN = 26


class Identity(logging.Handler):
    """The producer id and epoch of the newest instance, read from librdkafka's debug log."""

    def __init__(self) -> None:
        super().__init__()
        self.found = (0, 0)

    def emit(self, record: logging.LogRecord) -> None:
        """Look for both in a line of the log."""
        if match := re.search(r"PID\{Id:(\d+),Epoch:(\d+)\}", record.getMessage()):
            self.found = (int(match[1]), int(match[2]))


@contextmanager
def listening(rig: Rig) -> Iterator[Identity]:
    """Reads the client's log of every publisher that ``rig`` opens."""
    rig.brokers = GivenAccess(rig.bootstrap, {"debug": "eos"})
    handler = Identity()
    with debug_log(handler):
        yield handler


@contextmanager
def debug_log(handler: logging.Handler) -> Iterator[None]:
    """``handler`` gets the log of every client in the block that has `debug` set."""
    logger = logging.getLogger("librdkafka")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)


def late_end(rig: Rig, instance: tuple[int, int], *, commit: bool) -> int:
    """Send EndTxn for the open transaction of a publisher's ``instance``; returns the broker's error code."""
    return end_late(rig.bootstrap, rig.config(7).transactional_id, instance, commit=commit)


def end_late(
    bootstrap: str, transactional_id: str, instance: tuple[int, int], *, commit: bool
) -> int:
    """Send EndTxn (version 1) for the open transaction of ``instance``; returns the broker's error code."""
    name = transactional_id.encode()
    header = struct.pack(">hhih", _END_TXN, 1, 7, 4) + b"late"
    body = struct.pack(">h", len(name)) + name + struct.pack(">qh?", *instance, commit)
    code: int = struct.unpack(">h", _answer(bootstrap, header + body)[8:10])[0]
    return code


def _answer(bootstrap: str, request: bytes) -> bytes:
    host, port = bootstrap.split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = connection.makefile("rb")
        size = struct.unpack(">i", answer.read(4))[0]
        return answer.read(size)


def slow_commit(patch: Patch) -> None:
    """Commits report 100 s more than they took: an EndTxn may have been sent twice."""
    commit = TransactionalProducer.commit
    patch.setattr(TransactionalProducer, "commit", lambda self: commit(self) + 100.0)


def lost_commit_answer(patch: Patch) -> None:
    """The next commit takes effect, but its answer is lost. A repeated request may arrive late."""
    commit = TransactionalProducer.commit
    lost = [True]

    def lose_answer(self: TransactionalProducer) -> float:
        took_s = commit(self)
        if lost:
            lost.pop()
            raise Retryable("MR-3002", "no answer")
        return took_s

    patch.setattr(TransactionalProducer, "commit", lose_answer)


def check_late_request(
    trouble: Callable[[Patch], None], *, commit: bool
) -> Callable[[Rig, Patch], None]:
    """After ``trouble`` with a commit, a duplicate of its EndTxn arrives when half of the next batch is sent."""

    def shows(rig: Rig, patch: Patch) -> None:
        with listening(rig) as identity:
            publisher = rig.open(7)
            stream = rig.stream(publisher)
            instance = identity.found
            with patch.context() as troubled:
                trouble(troubled)
                publisher.publish(stream.next_batch(9))
            publisher.drain()  # its marker is in the log: the next transaction begins at the stable end
            ended: list[bool] = []
            seen: list[int | None] = []

            def intrude() -> None:
                rig.instance.flush()
                ended.append(_late_end_takes_effect(rig, instance, commit=commit))
                seen.append(rig.verdict().last_seq)

            once_at(patch, MID_PRODUCE, intrude)
            with suppress(MillraceError):
                publisher.publish(stream.next_batch(20))
            publisher.discard()
        assert seen == [9], "a subscriber sees a part of a batch before its commit"
        assert ended == [False], "a late abort ended the Kafka transaction under way"
        assert publisher.progress.seq == 29

    return shows


def _late_end_takes_effect(rig: Rig, instance: tuple[int, int], *, commit: bool) -> bool:
    """Whether the broker accepts it; returns after its marker is in the log."""
    reader = TopicReader(Brokers(rig.bootstrap), rig.topic)
    begun = reader.ends().stable
    is_accepted = late_end(rig, instance, commit=commit) == 0
    if is_accepted:
        eventually(lambda: reader.ends().stable > begun, what="the marker of a late request")
    reader.close()
    return is_accepted
