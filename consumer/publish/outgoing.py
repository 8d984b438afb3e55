"""Records for output topics, and how their partitions are chosen. Apart: the turn fills it, a slot writes it."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from millrace.consumer.kernel.compiled import Bytes, Ints
from millrace.consumer.kernel.partitions import murmur2

# The first six are those of ``drivers.kafka.headers``. Keys: start -1 for none. Values: end -1 for a tombstone.
TOPIC, PARTITION, KEY_START, KEY_END, VALUE_START, VALUE_END, SEQ, PART = range(8)
OTHER, OTHER_START, OTHER_END = range(
    8, 11
)  # the number in OTHERS of a header, and its value; -1 for none
WIDTH = 11
COUNTERS = ("seq", "part", "n")  # headers that differ from record to record
OTHERS = (
    "__debezium.newkey",
    "__debezium.oldkey",
)  # headers of changed keys, as Debezium names them


class RecordHeaders(NamedTuple):
    """The headers of a record; docs/subscribers.md describes them."""

    task: bytes
    epoch: int
    seq: int
    part: int
    n: int


def headers_of(headers: Mapping[str, bytes]) -> RecordHeaders | None:
    """None if no publish task wrote the record."""
    try:
        epoch, seq, part, n = (int(headers[name]) for name in ("epoch", *COUNTERS))
        return RecordHeaders(headers["task"], epoch, seq, part, n)
    except (KeyError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class Outgoing:
    """``lines``, int64: ascending (SEQ, PART) in each partition. TOPIC is a number in ``topics``.

    ``headers``: more headers of each record. ``texts``: names of headers that differ; a line has start and end of each
    after its first WIDTH numbers, -1 for none.
    """

    topics: tuple[str, ...]
    payload: Bytes
    lines: Ints
    headers: tuple[tuple[str, bytes], ...] = ()
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Message:
    """One record, which no kernel writes."""

    topic: str
    partition: int
    key: bytes
    value: bytes
    seq: int
    part: int


def outgoing_of(
    message: Message,
    headers: tuple[tuple[str, bytes], ...] = (),
    texts: Mapping[str, str | None] = MappingProxyType({}),
) -> Outgoing:
    """One record with these headers; ``texts`` are headers that others may have, None for none."""
    octets = bytearray()
    places: list[int] = []
    values = (None if text is None else text.encode() for text in texts.values())
    for part in (message.key, message.value, *values):
        start = len(octets)
        octets += part or b""
        places += (-1, -1) if part is None else (start, len(octets))
    line = [0, message.partition, *places[:4], message.seq, message.part, -1, -1, -1, *places[4:]]
    payload = np.frombuffer(bytes(octets), np.uint8)
    lines = np.array([line], np.int64)
    return Outgoing((message.topic,), payload, lines, headers, tuple(texts))


def partition_by_table(table: str, count: int) -> int:
    """The one partition of all records of a table. ``table``: the name in the view, ``database.table``."""
    octets = np.frombuffer(table.encode(), np.uint8)
    return int(murmur2(octets, 0, len(octets)) & 0x7FFFFFFF) % count
