"""Finds the owner of an open Kafka transaction. It asks the broker directly, because the client library cannot.

It sends two requests of the Kafka protocol, version 0 of each (KIP-664), in compact encoding. There a length is an
unsigned varint of length + 1, and each struct ends with a count of tagged fields, 0:

    61 DescribeProducers   [topic [partition]]            → producers: id, epoch, …, start offset of their transaction
    66 ListTransactions    [state filter] [producer id]   → transactional ids

After any error the result is "" (unknown). The owner's name is for the message of an error, and it saves an abort that
would end nothing. No recovery depends on it (``opening``). The connection has librdkafka's settings, like all others.
The partition's leader knows the producer, and the transaction's coordinator its transactional ID: each is looked for
among all addresses. Not done here: brokers outside `bootstrap.servers`.
"""

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TypeVar

from millrace.drivers.kafka.access import KafkaAccess
from millrace.drivers.kafka.wire import addresses, connect, receive
from millrace.errors import MillraceError

T = TypeVar("T")
_DESCRIBE_PRODUCERS, _LIST_TRANSACTIONS = 61, 66


def find_open_writer(brokers: KafkaAccess, topic: str, *, offset: int, partition: int = 0) -> str:
    """The transactional ID whose transaction begins at ``offset`` of a partition; "" if it is unknown."""

    def producer_at(connection: socket.socket) -> list[int]:
        return [one for one, start in _producers(connection, topic, partition) if start == offset]

    producer_ids = _first_answer(brokers, producer_at)
    if not producer_ids:
        return ""
    return _first_answer(brokers, partial(_transactional_id, producer_id=producer_ids[0])) or ""


def _first_answer(brokers: KafkaAccess, ask: Callable[[socket.socket], T]) -> T | None:
    """The first answer of a broker that is not empty."""
    settings = brokers.settings()
    for host, port in addresses(brokers):
        with (
            suppress(OSError, ValueError, struct.error, IndexError, MillraceError),
            connect(settings, host, port) as connection,
        ):
            if answer := ask(connection):
                return answer
    return None


def _producers(connection: socket.socket, topic: str, partition: int) -> Iterator[tuple[int, int]]:
    """Producer IDs of a partition, each with the start offset of its open transaction (-1: none)."""
    body = b"\2" + _compact(topic.encode()) + b"\2" + struct.pack(">i", partition) + b"\0\0"
    answer = _Answer(_ask(connection, _DESCRIBE_PRODUCERS, body))
    answer.skip(4)  # throttle time
    for _ in range(answer.count()):
        answer.text()  # topic
        for _ in range(answer.count()):
            answer.skip(4 + 2)  # index, error
            answer.text()  # error message
            for _ in range(answer.count()):
                # producer epoch, last sequence, last timestamp and coordinator epoch lie between
                producer_id, _, _, _, _, start = answer.unpack(">qiiqiq")
                answer.skip(1)
                yield producer_id, start
            answer.skip(1)
        answer.skip(1)


def _transactional_id(connection: socket.socket, producer_id: int) -> str:
    body = b"\1\2" + struct.pack(">q", producer_id) + b"\0"
    answer = _Answer(_ask(connection, _LIST_TRANSACTIONS, body))
    answer.skip(4 + 2)  # throttle time, error
    for _ in range(answer.count()):
        answer.text()  # unknown filter
    return answer.text() if answer.count() > 0 else ""


def _ask(connection: socket.socket, api: int, body: bytes) -> bytes:
    """Send a request and return the body of the answer. Request header version 2, answer header version 1."""
    client = b"millrace"
    header = struct.pack(">hhih", api, 0, 1, len(client)) + client + b"\0"
    connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
    return receive(connection)[5:]  # correlation id, no tagged fields


def _compact(text: bytes) -> bytes:
    return _length(len(text) + 1) + text


def _length(number: int) -> bytes:
    return bytes((number,)) if number < 0x80 else bytes((number & 0x7F | 0x80, number >> 7))


class _Answer:
    def __init__(self, octets: bytes) -> None:
        self._octets = octets
        self._at = 0

    def skip(self, count: int) -> None:
        self._at += count

    def unpack(self, layout: str) -> tuple[int, ...]:
        fields: tuple[int, ...] = struct.unpack_from(layout, self._octets, self._at)
        self._at += struct.calcsize(layout)
        return fields

    def text(self) -> str:
        """Read a compact, nullable string; null is ""."""
        length = max(self.count(), 0)
        self._at += length
        return self._octets[self._at - length : self._at].decode()

    def count(self) -> int:
        """Read a length; -1 for null."""
        number = shift = 0
        while True:
            octet = self._octets[self._at]
            self._at += 1
            number |= (octet & 0x7F) << shift
            if octet < 0x80:
                return number - 1
            shift += 7
