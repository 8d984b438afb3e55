"""The members of a consumer group, asked of its coordinator directly.

librdkafka 2.16 can end the process if the connection breaks during such a request (its issue 4605). Two requests of the
Kafka protocol, version 0 of each; a string has an int16 length, bytes have an int32 length:

    10 FindCoordinator   group      → error 2, node 4, host, port 4
    15 DescribeGroups    [group]    → [error 2, group, state, protocol type, protocol, members]
                                      member: ID, client ID, host, metadata bytes, assignment bytes

An assignment is a version of 2 bytes and a count of topics of 4, then the topics; it is empty during a rebalance.
"""

import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from millrace.drivers.kafka.access import KafkaAccess
from millrace.drivers.kafka.login import string
from millrace.drivers.kafka.wire import addresses, ask, connect
from millrace.errors import Retryable

_FIND_COORDINATOR, _DESCRIBE_GROUPS = 10, 15


@dataclass(frozen=True, slots=True)
class GroupMember:
    """``client_id``: as it names itself. ``has_partitions``: whether it owns any."""

    client_id: str
    has_partitions: bool


@dataclass(frozen=True, slots=True)
class Group:
    """``is_stable``: no rebalance is under way, and there is a member."""

    is_stable: bool
    members: tuple[GroupMember, ...]


def describe_group(brokers: KafkaAccess, group: str, *, code: str, fix: str = "") -> Group:
    """The group as its coordinator knows it. Retryable ``code`` if no broker answers; errors of ``wire.connect``."""
    settings = brokers.settings()
    why = f"{brokers.bootstrap} names no broker"
    for host, port in addresses(brokers):
        try:
            return _describe(settings, *_coordinator(settings, host, port, group), group)
        except (OSError, ValueError, struct.error) as error:
            why = f"{host}:{port}: {error}"
    raise Retryable(code, f"group {group} can't be described: {why}", fix=fix)


def _coordinator(settings: Mapping[str, Any], host: str, port: int, group: str) -> tuple[str, int]:
    with connect(settings, host, port) as connection:
        answer = _Answer(ask(connection, _FIND_COORDINATOR, 0, string(group)))
    answer.check()
    answer.take(4)  # the node's number
    return answer.string(), answer.number(4)


def _describe(settings: Mapping[str, Any], host: str, port: int, group: str) -> Group:
    with connect(settings, host, port) as connection:
        answer = _Answer(_groups(connection, group))
    answer.number(4)  # groups: one was asked for
    answer.check()
    answer.string()
    state = answer.string()
    for _ in range(2):  # the protocol's type and its name
        answer.string()
    members = []
    for _ in range(answer.number(4)):
        answer.string()  # the broker's name of the member
        client_id = answer.string()
        answer.string()  # its host
        answer.octets()
        members.append(GroupMember(client_id, _has_topics(answer.octets())))
    return Group(state == "Stable", tuple(members))


def _groups(connection: socket.socket, group: str) -> bytes:
    return ask(connection, _DESCRIBE_GROUPS, 0, struct.pack(">i", 1) + string(group))


def _has_topics(assignment: bytes) -> bool:
    return len(assignment) >= 6 and int.from_bytes(assignment[2:6], "big") > 0


class _Answer:
    """Reads an answer in order. ValueError if it ends too early."""

    def __init__(self, octets: bytes) -> None:
        self._left = memoryview(octets)

    def take(self, count: int) -> bytes:
        if count > len(self._left):
            raise ValueError(f"an answer without its last {count - len(self._left)} bytes")
        taken, self._left = bytes(self._left[:count]), self._left[count:]
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big", signed=True)

    def string(self) -> str:
        """A nullable string; null is ""."""
        return self.take(max(self.number(2), 0)).decode()

    def octets(self) -> bytes:
        return self.take(max(self.number(4), 0))

    def check(self) -> None:
        """Read an error code. ValueError unless it is 0."""
        if code := self.number(2):
            raise ValueError(f"Kafka's error {code}")
