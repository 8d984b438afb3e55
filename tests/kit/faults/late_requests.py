"""A late duplicate of an EndTxn request, as a network may deliver it: what Kafka's repaired protocol is there for.

librdkafka speaks the older one, in which a request names a producer id and epoch, but not a transaction.
"""

import logging
import re
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from consumer.topic.kafka import TopicReader
from millrace.errors import MillraceError, Retryable
from producer.publish.kafka import KafkaTransactions
from producer.publish.publisher import MID_PRODUCE
from tests.kit.publisher.rig import Rig, once_at
from tests.kit.waiting import eventually

Patch = pytest.MonkeyPatch

_END_TXN = 26


class Identity(logging.Handler):
    """The producer id and epoch of the instance that was made last, as librdkafka's debug log tells them."""

    def __init__(self) -> None:
        super().__init__()
        self.found = (0, 0)

    def emit(self, record: logging.LogRecord) -> None:
        """Every line of the log."""
        if match := re.search(r"PID\{Id:(\d+),Epoch:(\d+)\}", record.getMessage()):
            self.found = (int(match[1]), int(match[2]))


@contextmanager
def listening(rig: Rig) -> Iterator[Identity]:
    """Listens to the client's log of every publisher that ``rig`` opens."""
    rig.client = {"debug": "eos"}
    logger, handler = logging.getLogger("librdkafka"), Identity()
    logger.setLevel(logging.DEBUG)
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def late_end(rig: Rig, instance: tuple[int, int], *, commit: bool) -> int:
    """Send EndTxn (version 1) for what ``instance`` has open now; the broker's error code."""
    name = rig.config(7).transactional_id.encode()
    header = struct.pack(">hhih", _END_TXN, 1, 7, 4) + b"late"
    body = struct.pack(">h", len(name)) + name + struct.pack(">qh?", *instance, commit)
    code: int = struct.unpack(">h", _answer(rig, header + body)[8:10])[0]
    return code


def _answer(rig: Rig, request: bytes) -> bytes:
    host, port = rig.bootstrap.split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = connection.makefile("rb")
        size = struct.unpack(">i", answer.read(4))[0]
        return answer.read(size)


def a_commit_is_slow(patch: Patch) -> None:
    """Its EndTxn may have been sent twice."""
    commit = KafkaTransactions.commit
    patch.setattr(KafkaTransactions, "commit", lambda self: commit(self) + 100.0)


def a_commit_is_not_heard_of(patch: Patch) -> None:
    """The next one takes effect; its answer never comes. What was asked again meanwhile may come late."""
    commit = KafkaTransactions.commit
    lost = [True]

    def unheard(self: KafkaTransactions) -> float:
        took_s = commit(self)
        if lost:
            lost.pop()
            raise Retryable("MR-3002", "no answer")
        return took_s

    patch.setattr(KafkaTransactions, "commit", unheard)


def no_late_request_ends_what_is_under_way(
    trouble: Callable[[Patch], None], *, commit: bool
) -> Callable[[Rig, Patch], None]:
    """After ``trouble`` with a commit, a duplicate of its EndTxn comes when half of the next batch is in."""

    def shows(rig: Rig, patch: Patch) -> None:
        with listening(rig) as identity:
            publisher = rig.open(7)
            stream = rig.stream(publisher)
            instance = identity.found
            with patch.context() as troubled:
                trouble(troubled)
                publisher.publish(stream.next_batch(9))
            publisher.drain()  # its marker has landed: the stable end is where the next begins
            ended: list[bool] = []
            seen: list[int | None] = []

            def intrude() -> None:
                publisher._live.flush()
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
    """Whether it is taken; then its marker has landed, too."""
    reader = TopicReader(rig.bootstrap, rig.topic)
    begun = reader.ends().stable
    is_taken = late_end(rig, instance, commit=commit) == 0
    if is_taken:
        eventually(lambda: reader.ends().stable > begun, what="the marker of a late request")
    reader.close()
    return is_taken
