"""Where source transactions begin and end in a stream of events: a compiled state machine for both flavours.

MySQL   GTID, then one of:  BEGIN … XID | BEGIN … COMMIT | BEGIN … ROLLBACK | XA START … XA END, XA_PREPARE
                            | TRANSACTION_PAYLOAD | one statement (DDL, XA COMMIT, XA ROLLBACK)
MariaDB GTID (which is also the BEGIN) … XID | COMMIT | ROLLBACK | XA_PREPARE | XA COMMIT | XA ROLLBACK,
        or, with FL_STANDALONE, up to one statement
Between transactions: format description, previous GTIDs, checkpoints, rotate, stop, MariaDB's incident (MySQL's has a
GTID): each is whole by itself.

State is one int64 array (slots below) that lives as long as a file is written or walked. ``begin_event`` is called
when an event's head is there, ``finish_event`` when its last byte is. GTIDs of finished transactions are gathered in
``runs`` (rows of 8: two words of identity, four of tag, first and last number), consecutive ones in one row.

Guarantees: BOUNDARY never lies inside a source transaction; what this machine doesn't understand is an error, not a
boundary. Not done here: reading rows, checksums.
"""

from typing import Any

import numpy as np

from producer.relay import event_types as t
from producer.relay.compiled import compiled, int64

# Slots of the state.
POS = 0  # file offset behind the last finished event
BOUNDARY = 1  # file offset behind the last whole source transaction
GROUP = 2  # OUTSIDE, AFTER_GTID, INSIDE
GROUP_AT = 3  # file offset of the event that opened the group
LAST_GROUP_AT = 4  # … of the last whole group (0: none yet)
ENDS_GROUP = 5  # the event under way ends the group
GTID_FORM = 6  # of the open group: 0 none, 1 in the slots below
GTID_HIGH = 7  # uuid, first 8 bytes big-endian; MariaDB: domain
GTID_LOW = 8  # uuid, last 8; MariaDB: server
GTID_TAG = 9  # … 12: tag, zero-padded, 32 bytes
GTID_NUMBER = 13
RUN_COUNT = 14
GROUP_COUNT = 15  # whole groups seen
EVENT_COUNT = 16
TIMESTAMP_S = 17  # of the last event that has one
SLOTS = 18
# from 18 on: producer.packets

OUTSIDE = 0
AFTER_GTID = 1
INSIDE = 2

RUN_WORDS = 8

# What the kernels answer. The first two are no errors.
OK = 0
RUNS_FULL = 1  # drain ``runs`` and call again
GROUP_NOT_ENDED = 10  # a GTID came before the last transaction ended
ROWS_OUTSIDE = 11  # rows or a commit outside a source transaction
BAD_BODY = 12  # a control event's body is not of its form
NO_CHECKSUM = 13  # the file was begun without CRC32
BAD_LENGTH = 14
BAD_CHECKSUM = 15
BAD_POSITION = 16  # next_pos is not our file offset

QUERY_HEAD_BYTES_MAX = 13 + 65_535 + 256 + 64 + t.HEADER_BYTES  # up to the start of the statement
CONTROL_BYTES_MAX = 1024  # GTID and format description events are far smaller

_FL_STANDALONE = 1  # MariaDB GTID flags2


@compiled
def u16(buf: Any, at: int) -> int:
    """Little-endian."""
    return int64(buf[at]) | int64(buf[at + 1]) << 8


@compiled
def u32(buf: Any, at: int) -> int:
    """Little-endian."""
    return u16(buf, at) | u16(buf, at + 2) << 16


@compiled
def u64(buf: Any, at: int) -> int:
    """Little-endian, as the int64 of the same bits."""
    return u32(buf, at) | u32(buf, at + 4) << 32


@compiled
def _u64_big(buf: Any, at: int) -> int:
    value = int64(0)
    for k in range(8):
        value = value << 8 | int64(buf[at + k])
    return value


@compiled
def head_bytes(kind: int, size: int) -> int:
    """How many bytes of an event must be in one piece for ``begin_event``."""
    if kind == t.QUERY:
        return min(size, QUERY_HEAD_BYTES_MAX)
    if kind in (t.GTID, t.GTID_TAGGED, t.MARIADB_GTID, t.FORMAT_DESCRIPTION):
        return min(size, CONTROL_BYTES_MAX)
    return t.HEADER_BYTES


@compiled
def begin_event(state: Any, runs: Any, buf: Any, at: int, size: int, mariadb: bool) -> int:
    """An event of ``size`` bytes begins at ``buf[at]`` and at the file offset state[POS]."""
    kind = int64(buf[at + 4])
    group = state[GROUP]
    state[ENDS_GROUP] = 0
    if 19 <= kind <= 25 or 30 <= kind <= 32 or kind == 39 or 166 <= kind <= 171:
        return OK if group == INSIDE else ROWS_OUTSIDE
    if kind == t.XID or kind == t.XA_PREPARE:
        if group == OUTSIDE:
            return ROWS_OUTSIDE
        state[ENDS_GROUP] = 1
        return OK
    if kind in (t.GTID, t.ANONYMOUS_GTID, t.GTID_TAGGED, t.MARIADB_GTID):
        return _begin_group(state, runs, buf, at, size)
    if kind == t.QUERY:
        return _begin_query(state, buf, at, size, mariadb)
    if kind == t.TRANSACTION_PAYLOAD:
        if group != AFTER_GTID:
            return ROWS_OUTSIDE
        state[ENDS_GROUP] = 1
        return OK
    if kind in (t.MARIADB_QUERY_COMPRESSED, t.EXECUTE_LOAD_QUERY):
        state[ENDS_GROUP] = 1 if group == AFTER_GTID else 0
        return OK
    if kind == t.INCIDENT:
        state[ENDS_GROUP] = 1 if group != OUTSIDE else 0
        return OK
    if kind == t.FORMAT_DESCRIPTION:
        # The first event of a file: a group left open in the file before has died with its server.
        if size < 19 + 57 + 5 or size > CONTROL_BYTES_MAX:
            return BAD_BODY
        if buf[at + size - 5] != t.CHECKSUM_ALGORITHM_CRC32:
            return NO_CHECKSUM
        state[GROUP] = OUTSIDE
    return OK


@compiled
def finish_event(state: Any, runs: Any, size: int, timestamp_s: int) -> None:
    """The event begun last is complete."""
    state[POS] += size
    state[EVENT_COUNT] += 1
    if timestamp_s:
        state[TIMESTAMP_S] = timestamp_s
    if state[ENDS_GROUP]:
        state[GROUP] = OUTSIDE
        state[LAST_GROUP_AT] = state[GROUP_AT]
        state[GROUP_COUNT] += 1
        if state[GTID_FORM]:
            _gather(state, runs)
    if state[GROUP] == OUTSIDE:
        state[BOUNDARY] = state[POS]


@compiled
def _begin_group(state: Any, runs: Any, buf: Any, at: int, size: int) -> int:
    if state[GROUP] != OUTSIDE:
        return GROUP_NOT_ENDED
    if state[RUN_COUNT] == runs.shape[0]:
        return RUNS_FULL
    kind = buf[at + 4]
    body = at + t.HEADER_BYTES
    state[GTID_FORM] = 1
    state[GTID_TAG : GTID_TAG + 4] = 0
    group = AFTER_GTID
    if kind == t.ANONYMOUS_GTID:
        state[GTID_FORM] = 0
    elif kind == t.GTID:
        if size < 19 + 25 + 4 or size > CONTROL_BYTES_MAX:
            return BAD_BODY
        state[GTID_HIGH] = _u64_big(buf, body + 1)
        state[GTID_LOW] = _u64_big(buf, body + 9)
        state[GTID_NUMBER] = u64(buf, body + 17)
    elif kind == t.MARIADB_GTID:
        if size < 19 + 13 + 4 or size > CONTROL_BYTES_MAX:
            return BAD_BODY
        state[GTID_NUMBER] = u64(buf, body)
        state[GTID_HIGH] = u32(buf, body + 8)
        state[GTID_LOW] = u32(buf, at + 5)
        group = AFTER_GTID if buf[body + 12] & _FL_STANDALONE else INSIDE
    else:
        if size > CONTROL_BYTES_MAX or not _read_tagged(state, buf, body, at + size - 4):
            return BAD_BODY
    state[GROUP] = group
    state[GROUP_AT] = state[POS]
    return OK


@compiled
def _read_tagged(state: Any, buf: Any, at: int, end: int) -> bool:
    """GTID_TAGGED_LOG_EVENT, in MySQL's serialization format (libs/mysql/serialization).

    version, size, last non-ignorable field; then (field id, value): 0 flags, 1 uuid (16 numbers), 2 number, 3 tag.
    A number takes 1 to 9 bytes: as many as the first byte has trailing ones, plus one; the rest is little-endian.
    """
    for _ in range(3):
        at, _value = _varlen(buf, at, end)
    for field in range(4):
        at, found = _varlen(buf, at, end)
        if at < 0 or found != field:
            return False
        if field == 0:
            at, _value = _varlen(buf, at, end)
        elif field == 1:
            for half in (GTID_HIGH, GTID_LOW):
                value = int64(0)
                for _ in range(8):
                    at, byte = _varlen(buf, at, end)
                    value = value << 8 | byte & 255
                state[half] = value
        elif field == 2:
            at, value = _varlen(buf, at, end)
            state[GTID_NUMBER] = value >> 1  # the sign is the lowest bit
        else:
            at, length = _varlen(buf, at, end)
            if at < 0 or not 0 <= length <= 32 or at + length > end:
                return False
            for k in range(length):
                state[GTID_TAG + (k >> 3)] |= int64(buf[at + k]) << (8 * (k & 7))
        if at < 0:
            return False
    return True


@compiled
def _varlen(buf: Any, at: int, end: int) -> tuple[int, int]:
    """(offset behind, value); the offset is -1 when the bytes end before the number."""
    if at < 0 or at >= end:
        return -1, 0
    more = 0
    while more < 8 and buf[at] >> more & 1:
        more += 1
    if at + more + 1 > end:
        return -1, 0
    value = int64(0)
    if more == 8:
        return at + 9, u64(buf, at + 1)
    for k in range(more + 1):
        value |= int64(buf[at + k]) << (8 * k)
    if more == 7:  # the sign bit of 64 bits may be set: shift it out as unsigned
        return at + 8, int64(np.uint64(value) >> np.uint64(8))
    return at + more + 1, value >> (more + 1)


@compiled
def _begin_query(state: Any, buf: Any, at: int, size: int, mariadb: bool) -> int:
    body = at + t.HEADER_BYTES
    if size < t.HEADER_BYTES + 13 + 1 + t.CHECKSUM_BYTES:
        return BAD_BODY
    sql = body + 13 + u16(buf, body + 11) + int64(buf[body + 8]) + 1
    length = at + size - t.CHECKSUM_BYTES - sql
    if length < 0:
        return BAD_BODY
    group = state[GROUP]
    if group == AFTER_GTID:
        if not mariadb and (_says(buf, sql, length, b"BEGIN", True) or _opens_xa(buf, sql, length)):
            state[GROUP] = INSIDE
        else:
            state[ENDS_GROUP] = 1
    elif group == INSIDE:
        if (
            _says(buf, sql, length, b"COMMIT", True)
            or _says(buf, sql, length, b"ROLLBACK", True)
            or _says(buf, sql, length, b"XA COMMIT", False)
            or _says(buf, sql, length, b"XA ROLLBACK", False)
        ):
            state[ENDS_GROUP] = 1
    elif _says(buf, sql, length, b"BEGIN", True):
        return ROWS_OUTSIDE
    return OK


@compiled
def _opens_xa(buf: Any, sql: int, length: int) -> bool:
    return _says(buf, sql, length, b"XA START", False) or _says(
        buf, sql, length, b"XA BEGIN", False
    )


@compiled
def _says(buf: Any, sql: int, length: int, word: bytes, is_all: bool) -> bool:
    """The statement is (or, unless ``is_all``, begins with) ``word``, in any letter case."""
    if length < len(word) or (is_all and length != len(word)):
        return False
    for k in range(len(word)):
        byte = buf[sql + k]
        if 97 <= byte <= 122:
            byte -= 32
        if byte != word[k]:
            return False
    return True


@compiled
def _gather(state: Any, runs: Any) -> None:
    """Append the finished group's GTID to the last run, or open a new one (there is room: see _begin_group)."""
    count = state[RUN_COUNT]
    number = state[GTID_NUMBER]
    if count:
        last = runs[count - 1]
        same = last[7] + 1 == number
        for k in range(6):
            same = same and last[k] == state[GTID_HIGH + k]
        if same:
            last[7] = number
            return
    for k in range(6):
        runs[count, k] = state[GTID_HIGH + k]
    runs[count, 6] = number
    runs[count, 7] = number
    state[RUN_COUNT] = count + 1
