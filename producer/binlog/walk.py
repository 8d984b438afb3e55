"""Walks over event bytes in memory and checks checksums, lengths, positions and source transactions. Compiled; no I/O.

- ``walk_events`` serves recovery: it finds the end of the last whole transaction of a relay file.
- ``scan_events`` serves readers: their span ends with a whole transaction, so only the events are checked.
- ``find_prepared`` finds XA PREPARE in events that have been checked.

``walk_events`` and ``scan_events`` stop at the first bad event and return the reason. An event cut by the end of the
bytes is not an error.
"""

from typing import Any

import numpy as np

from producer.binlog import events as t
from producer.binlog.compiled import compiled, int64
from producer.binlog.crc import crc32
from producer.binlog.loads import u32
from producer.binlog.transactions import (
    BAD_CHECKSUM,
    BAD_LENGTH,
    BAD_POSITION,
    OK,
    POS,
    begin_event,
    finish_event,
)


@compiled
def check_event(
    buf: Any, at: int, end: int, pos: int, tables: Any, folded: Any, mariadb: bool, verify: bool
) -> tuple[int, int]:
    """(status, size) of the event at ``buf[at]``, file offset ``pos``; size 0 if ``end`` cuts the event.

    MariaDB 11.4 and later write next_pos 0 in the events inside a transaction.
    """
    if end - at < t.HEADER_BYTES:
        return OK, 0
    size = u32(buf, at + 9)
    if size < t.EVENT_BYTES_MIN:
        return BAD_LENGTH, 0
    if at + size > end:
        return OK, 0
    next_pos = u32(buf, at + 13)
    if next_pos != (pos + size) & 0xFFFFFFFF and not (mariadb and next_pos == 0):
        return BAD_POSITION, 0
    if verify:
        length = size - t.CHECKSUM_BYTES
        found = crc32(buf.ctypes.data + at, length, np.uint32(0), tables, folded)
        if int64(found) != u32(buf, at + length):
            return BAD_CHECKSUM, 0
    return OK, size


@compiled
def walk_events(
    buf: Any,
    at: int,
    end: int,
    state: Any,
    runs: Any,
    tables: Any,
    folded: Any,
    mariadb: bool,
    verify: bool,
) -> tuple[int, int]:
    """(status, offset of the first event not walked). ``buf[at]`` is at the file offset state[POS]."""
    while True:
        status, size = check_event(buf, at, end, state[POS], tables, folded, mariadb, verify)
        if status != OK or size == 0:
            return status, at
        status = begin_event(state, runs, buf, at, size, mariadb)
        if status != OK:
            return status, at
        finish_event(state, runs, size)
        at += size


@compiled
def scan_events(
    buf: Any, end: int, pos: int, tables: Any, folded: Any, mariadb: bool
) -> tuple[int, int]:
    """(status, bytes of whole events) from ``buf[0]``, which is at the file offset ``pos``."""
    at = 0
    while True:
        status, size = check_event(buf, at, end, pos + at, tables, folded, mariadb, True)
        if status != OK or size == 0:
            return status, at
        at += size


@compiled
def find_prepared(buf: Any, at: int, end: int, group_at: int) -> tuple[bool, int, int]:
    """Find the next XA_PREPARE, TRANSACTION_PAYLOAD or FORMAT_DESCRIPTION event: (found, offset, group).

    The first two may hold an XA PREPARE; the third names the checksum algorithm. If none is found, the offset is that
    of the first incomplete event. The group is the offset after the preceding GTID event, or ``group_at``.
    """
    while at + t.HEADER_BYTES <= end:
        kind = int64(buf[at + 4])
        size = u32(buf, at + 9)
        if size < t.HEADER_BYTES or at + size > end:
            break
        if kind in (t.XA_PREPARE, t.TRANSACTION_PAYLOAD, t.FORMAT_DESCRIPTION):
            return True, at, group_at
        at += size
        if kind in (t.GTID, t.GTID_TAGGED, t.MARIADB_GTID):
            group_at = at
    return False, at, group_at
