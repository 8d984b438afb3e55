"""Walks over event bytes in memory and checks checksums, lengths, positions and source transactions. Compiled; no I/O.

- ``walk_events`` serves recovery: it finds the end of the last whole transaction of a relay file.
- ``scan_events`` serves readers: their span ends with a whole transaction, so only the events are checked.
- ``find_prepared`` finds XA PREPARE in events that have been checked.
- ``find_table_maps`` finds the structures of tables in events that have been checked.
- ``find_group_end`` finds how a source transaction ends whose events have been checked.
- ``extend_sum`` serves both for an event that is read in pieces (``producer.relay.large_event``).

``walk_events`` and ``scan_events`` stop at the first bad event and return the reason. An event cut by the end of the
bytes is not an error.
"""

import numpy as np

from millrace.producer.binlog import events as t
from millrace.producer.binlog.compiled import Bytes, Sums, Words, compiled, int64
from millrace.producer.binlog.crc import crc32
from millrace.producer.binlog.loads import u16, u32, u64
from millrace.producer.binlog.transactions import (
    BAD_CHECKSUM,
    BAD_LENGTH,
    BAD_POSITION,
    INSIDE,
    OK,
    POS,
    STAYS,
    begin_event,
    finish_event,
    transaction_step,
)

# Columns of a row that ``find_prepared`` fills. Of a payload, the last two are from its head.
FOUND_AT, FOUND_BYTES, FOUND_GROUP, FOUND_METHOD, FOUND_DATA_AT = range(5)
FOUND_WORDS = 5
_PAYLOAD_METHOD = 2


@compiled
def check_event(
    buf: Bytes,
    at: int,
    end: int,
    pos: int,
    tables: Sums,
    folded: Bytes,
    mariadb: bool,
    verify: bool,
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
    buf: Bytes,
    at: int,
    end: int,
    state: Words,
    runs: Words,
    tables: Sums,
    folded: Bytes,
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
    buf: Bytes, end: int, pos: int, tables: Sums, folded: Bytes, mariadb: bool
) -> tuple[int, int]:
    """(status, bytes of whole events) from ``buf[0]``, which is at the file offset ``pos``."""
    at = 0
    while True:
        status, size = check_event(buf, at, end, pos + at, tables, folded, mariadb, True)
        if status != OK or size == 0:
            return status, at
        at += size


@compiled
def extend_sum(running: int, buf: Bytes, length: int, tables: Sums, folded: Bytes) -> int:
    """The CRC-32 ``running`` (0 at the start) extended over the first ``length`` bytes of ``buf``."""
    return int64(crc32(buf.ctypes.data, length, np.uint32(running), tables, folded))


@compiled
def find_prepared(
    buf: Bytes, at: int, end: int, group_at: int, found: Words, has_cut: bool
) -> tuple[int, int, int]:
    """Collect the XA_PREPARE, TRANSACTION_PAYLOAD and FORMAT_DESCRIPTION events: (count, offset, group).

    The first two may hold an XA PREPARE; the third names the checksum algorithm. ``found`` gets a row for each, in the
    columns ``FOUND_AT`` and following. The walk ends when ``found`` is full or the next event is incomplete; the
    offset is that of the next event. The group is the offset after the preceding GTID event, or ``group_at``. With
    ``has_cut``, a TRANSACTION_PAYLOAD of which only the beginning is in ``buf`` counts as complete.
    """
    count = 0
    while at + t.HEADER_BYTES <= end and count < len(found):
        kind = int64(buf[at + 4])
        size = u32(buf, at + 9)
        is_cut = at + size > end
        if size < t.HEADER_BYTES or (is_cut and not (has_cut and kind == t.TRANSACTION_PAYLOAD)):
            break
        if kind in (t.XA_PREPARE, t.TRANSACTION_PAYLOAD, t.FORMAT_DESCRIPTION):
            row = found[count]
            row[FOUND_AT], row[FOUND_BYTES], row[FOUND_GROUP] = at, size, group_at
            row[FOUND_METHOD], row[FOUND_DATA_AT] = -1, -1
            if kind == t.TRANSACTION_PAYLOAD:
                _read_payload_head(row, buf, at + t.HEADER_BYTES, min(end, at + size))
            count += 1
        at += size
        if kind in (t.GTID, t.GTID_TAGGED, t.MARIADB_GTID):
            group_at = at
    return count, at, group_at


@compiled
def find_table_maps(buf: Bytes, at: int, end: int, found: Words) -> tuple[int, int]:
    """Collect the offsets and sizes of the TABLE_MAP events: (count, offset of the next event not seen).

    The walk ends when ``found`` is full, at an incomplete event or at an impossible length.
    """
    count = 0
    while at + t.HEADER_BYTES <= end and count < len(found):
        size = u32(buf, at + 9)
        if size < t.HEADER_BYTES or at + size > end:
            break
        if int64(buf[at + 4]) == t.TABLE_MAP:
            found[count, 0], found[count, 1] = at, size
            count += 1
        at += size
    return count, at


@compiled
def find_group_end(buf: Bytes, at: int, end: int, checksum_bytes: int) -> tuple[int, int]:
    """The step that ends MariaDB's source transaction around the event at ``at``, and the offset of its event.

    STAYS with the offset of the next event not seen, if the bytes end first.
    """
    while at + t.HEADER_BYTES <= end:
        size = u32(buf, at + 9)
        if size < t.HEADER_BYTES + checksum_bytes or at + size > end:
            break
        step = transaction_step(INSIDE, buf, at, at + size - checksum_bytes, True)
        if step != STAYS:
            return step, at
        at += size
    return STAYS, at


@compiled
def _read_payload_head(row: Words, buf: Bytes, at: int, end: int) -> None:
    """Method and offset of the data; -1 where the head does not name them or is malformed."""
    method = int64(-1)
    while at + 18 <= end:  # a field has at most two packed numbers of 9 bytes before its value
        kind, at = _packed(buf, at)
        if kind == 0:
            row[FOUND_METHOD], row[FOUND_DATA_AT] = method, at
            return
        length, at = _packed(buf, at)
        if kind < 0 or length < 0 or length > end - at - 18:
            return
        if kind == _PAYLOAD_METHOD:
            method, _ = _packed(buf, at)
        at += length


@compiled
def _packed(buf: Bytes, at: int) -> tuple[int, int]:
    """(a length-encoded integer, the offset after it); -1 if it is malformed."""
    first = int64(buf[at])
    if first < 0xFB:
        return first, at + 1
    if first == 0xFC:
        return u16(buf, at + 1), at + 3
    if first == 0xFD:
        return u32(buf, at) >> 8, at + 4
    if first == 0xFE:
        return u64(buf, at + 1), at + 9
    return -1, at + 1
