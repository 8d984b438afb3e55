"""Adds the GTIDs that kernels collect to GTID positions.

A run is a range of consecutive GTIDs. A row of ``runs`` has 8 words (see ``gtid_events``): two of identity (MySQL:
uuid; MariaDB: domain and server id), four of tag, the first number and the last number.
"""

from uuid import UUID

import numpy as np

from millrace.producer.binlog import events as t
from millrace.producer.binlog.compiled import Bytes, Words
from millrace.producer.binlog.gtid_events import GTID_WORDS, NUMBER, read_gtid_event
from millrace.producer.binlog.transactions import RUN_WORDS
from millrace.schemas.gtid import Flavour, Gtid, GtidPosition, GtidSet, MariadbGtid, MariadbGtidSet

RUNS_MAX = 4096  # rows of 64 bytes: 256 KiB; drained after each chunk or when full
_MASK = (1 << 64) - 1


def new_runs() -> Words:
    """An empty array that a kernel fills."""
    return np.zeros((RUNS_MAX, RUN_WORDS), np.int64)


def empty_position(flavour: Flavour) -> GtidPosition:
    """The position before the first transaction."""
    return GtidSet() if flavour is Flavour.MYSQL else MariadbGtidSet()


def read_gtid(event: Bytes) -> Gtid | MariadbGtid | None:
    """The GTID of a GTID event without its checksum; None if it is malformed."""
    words: Words = np.zeros(GTID_WORDS, np.int64)
    if not read_gtid_event(words, 0, event, 0, len(event)):
        return None
    low, high, *tag = words[:NUMBER].tolist()
    number = int(words[NUMBER])
    if event[4] == t.MARIADB_GTID:
        return MariadbGtid(low, high, number & _MASK)
    return Gtid(_uuid(low, high), number, _tag(tag))


def advance_position(position: GtidPosition, runs: Words) -> GtidPosition:
    """``position`` plus the transactions of ``runs``; Fatal MR-6002 if a MariaDB sequence decreases."""
    rows = runs.tolist()
    if isinstance(position, GtidSet):
        return _advance_mysql(position, rows)
    for domain, server, *_tag, _first, last in rows:
        position = position.advanced(MariadbGtid(domain, server, last & _MASK))
    return position


def _advance_mysql(position: GtidSet, rows: list[list[int]]) -> GtidSet:
    if len(rows) == 1:
        low, high, *tag, first, last = rows[0]
        return position.advanced_through(Gtid(_uuid(low, high), first, _tag(tag)), last)
    return position | GtidSet.of_intervals(
        ((_uuid(low, high), _tag(tag)), (first, last + 1)) for low, high, *tag, first, last in rows
    )


def _uuid(low: int, high: int) -> UUID:
    return UUID(bytes=((high & _MASK) << 64 | low & _MASK).to_bytes(16, "little"))


def _tag(words: list[int]) -> str:
    return (
        b"".join((word & _MASK).to_bytes(8, "little") for word in words)
        .rstrip(b"\0")
        .decode("ascii")
    )
