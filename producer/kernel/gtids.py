"""GTID events: what they name, whether it is behind us, and how the position moves on.

    GTID (33)           flags 1 | uuid 16 | number 8 | kind 1 (2) | last committed 8 | sequence 8 | immediate 7; its
                        top bit: the original commit, 7, follows                (MySQL 5.7 ends behind the sequence)
    GTID_TAGGED (42)    version, size, last required field, then (field id, value)*; all integers of variable length:
                        the count of low 1-bits of the first byte says how many more bytes follow
                        0 flags, 1 uuid (16 numbers), 2 number (signed), 3 tag, 4, 5 (signed), 6 immediate, 7 original
    MariaDB GTID (162)  sequence 8 | domain 4 | flags 1 (1: standalone, 2: commit id, 64: XA, prepared, 128: XA, ended)
                        | commit id 8 if so | xid if XA: format 4, lengths 1 and 1, bytes | further flags 1 if there
                        are any (2, 4, 8: START, COMMIT, ROLLBACK of an ALTER in two phases) …

Sources: mysql-server libs/mysql/binlog/event/control_events.h, libs/mysql/serialization; MariaDB sql/log_event.h.
A position is rows of numbers (``state``): for MySQL intervals of a uuid with tag, for MariaDB the last sequence of a
domain.
"""

import numpy as np
from numpy.typing import NDArray

from producer.kernel import state as s
from producer.kernel.avro import write_long
from producer.kernel.compiled import compiled
from producer.kernel.json_binary import write_integer
from producer.kernel.memory import (
    Bytes,
    copy,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    move,
    signed,
    store_u8,
)

Numbers = NDArray[np.int64]
Table = NDArray[np.int64]

_HEX = np.frombuffer(b"0123456789abcdef", np.uint8).copy()
TAG_BYTES_MAX = 32


@compiled
def load_micros(buf: Bytes, pos: int) -> int:
    """7 bytes, little-endian."""
    return load_u32(buf, pos) | (load_u16(buf, pos + 4) << 32) | (load_u8(buf, pos + 6) << 48)


@compiled
def read_gtid(buf: Bytes, pos: int, end: int, st: Numbers, sids: Bytes, work: Bytes) -> int:
    """A GTID event's body: SID, NUMBER and COMMIT_MS of the state; NEED_EVENTS, POSITION_FULL or ERROR."""
    if pos + 25 > end:
        st[s.ERROR_CODE] = s.TRUNCATED
        return s.ERROR
    copy(work, 0, buf, pos + 1, 16)
    store_u8(work, 16, 0)
    st[s.NUMBER] = load_i64(buf, pos + 17)
    if st[s.NUMBER] <= 0:
        st[s.ERROR_CODE] = s.GTID_BROKEN
        return s.ERROR
    st[s.COMMIT_MS] = st[s.EVENT_TIME_S] * 1000
    at = pos + 42
    if at + 7 <= end:
        immediate = load_micros(buf, at)
        original = immediate
        if (immediate >> 55) & 1:
            if at + 14 > end:
                st[s.ERROR_CODE] = s.TRUNCATED
                return s.ERROR
            original = load_micros(buf, at + 7)
        if original > 0:
            st[s.COMMIT_MS] = original // 1000
    return _find_sid(st, sids, work)


@compiled
def _variable(buf: Bytes, at: int, end: int) -> tuple[int, int]:
    """An unsigned integer of variable length and the offset behind it; -1 as the offset when it is cut."""
    if at >= end:
        return 0, -1
    first = load_u8(buf, at)
    more = 0
    while more < 8 and (first >> more) & 1:
        more += 1
    if at + 1 + more > end:
        return 0, -1
    value = 0
    for place in range(more):
        value |= load_u8(buf, at + 1 + place) << (8 * place)
    if more < 7:
        value = (value << (7 - more)) | (first >> (more + 1))
    return value, at + 1 + more


@compiled
def read_tagged_gtid(buf: Bytes, pos: int, end: int, st: Numbers, sids: Bytes, work: Bytes) -> int:
    """The same for a GTID_TAGGED event's body."""
    st[s.COMMIT_MS] = st[s.EVENT_TIME_S] * 1000
    st[s.NUMBER] = 0
    store_u8(work, 16, 0)
    seen_uuid = False
    immediate = original = 0
    at = pos
    for _ in range(3):
        _value, at = _variable(buf, at, end)
        if at < 0:
            st[s.ERROR_CODE] = s.GTID_BROKEN
            return s.ERROR
    while at < end:
        field, at = _variable(buf, at, end)
        if at < 0:
            break
        if field == 1:
            for place in range(16):
                value, at = _variable(buf, at, end)
                if at < 0 or not 0 <= value <= 255:
                    st[s.ERROR_CODE] = s.GTID_BROKEN
                    return s.ERROR
                store_u8(work, place, value)
            seen_uuid = True
        elif field == 3:
            length, at = _variable(buf, at, end)
            if at < 0 or not 0 <= length <= TAG_BYTES_MAX or at + length > end:
                st[s.ERROR_CODE] = s.GTID_BROKEN
                return s.ERROR
            store_u8(work, 16, length)
            for place in range(length):
                letter = load_u8(buf, at + place)
                if (
                    letter != 95
                    and not 97 <= letter <= 122
                    and (place == 0 or not 48 <= letter <= 57)
                ):
                    st[s.ERROR_CODE] = s.GTID_BROKEN  # a tag is [a-z_][a-z0-9_]*
                    return s.ERROR
            copy(work, 17, buf, at, length)
            at += length
        else:
            value, at = _variable(buf, at, end)
            if at < 0:
                break
            if field == 2:
                st[s.NUMBER] = (value >> 1) ^ -(value & 1)
            elif field == 6:
                immediate = value
            elif field == 7:
                original = value
            elif field > 7:
                break
    if at < 0 or not seen_uuid or st[s.NUMBER] <= 0:
        st[s.ERROR_CODE] = s.GTID_BROKEN
        return s.ERROR
    if original == 0:
        original = immediate
    if original > 0:
        st[s.COMMIT_MS] = original // 1000
    return _find_sid(st, sids, work)


@compiled
def _same_sid(sids: Bytes, base: int, work: Bytes) -> bool:
    for place in range(17 + load_u8(work, 16)):  # noqa: SIM110 (numba has no generators)
        if load_u8(sids, base + place) != load_u8(work, place):
            return False
    return True


@compiled
def _find_sid(st: Numbers, sids: Bytes, work: Bytes) -> int:
    """SID of the uuid and tag in `work` (16 bytes, length, tag); a new one gets the next index and its text."""
    count = st[s.SID_COUNT]
    last = st[s.SID]
    if 0 <= last < count and _same_sid(sids, last * s.SID_STRIDE, work):
        return s.NEED_EVENTS
    for sid in range(count):
        if _same_sid(sids, sid * s.SID_STRIDE, work):
            st[s.SID] = sid
            return s.NEED_EVENTS
    if (count + 1) * s.SID_STRIDE > sids.size:
        return s.POSITION_FULL
    base = count * s.SID_STRIDE
    tag = load_u8(work, 16)
    copy(sids, base, work, 0, 17 + tag)
    at = base + s.SID_TEXT + 1
    for place in range(16):
        if place == 4 or place == 6 or place == 8 or place == 10:
            store_u8(sids, at, 45)
            at += 1
        byte = load_u8(work, place)
        store_u8(sids, at, signed(_HEX[byte >> 4]))
        store_u8(sids, at + 1, signed(_HEX[byte & 15]))
        at += 2
    store_u8(sids, at, 58)
    at += 1
    if tag > 0:
        copy(sids, at, work, 17, tag)
        store_u8(sids, at + tag, 58)
        at += tag + 1
    store_u8(sids, base + s.SID_TEXT, at - base - s.SID_TEXT - 1)
    st[s.SID] = count
    st[s.SID_COUNT] = count + 1
    return s.NEED_EVENTS


@compiled
def _alter_phase(buf: Bytes, pos: int, end: int, flags: int) -> int:
    """The flags of an ALTER in two phases, 0 for everything else."""
    at = pos + 13
    if flags & 2:
        at += 8
    if flags & 192:
        if at + 6 > end:
            return 0
        at += 6 + load_u8(buf, at + 4) + load_u8(buf, at + 5)
    if at >= end:
        return 0
    return load_u8(buf, at) & 14


@compiled
def read_mariadb_gtid(
    buf: Bytes, pos: int, end: int, server_id: int, st: Numbers, intervals: Table
) -> int:
    """A MariaDB GTID event's body; the domain's row is found or made. NEED_EVENTS, POSITION_FULL or ERROR."""
    if pos + 13 > end:
        st[s.ERROR_CODE] = s.TRUNCATED
        return s.ERROR
    st[s.NUMBER] = load_i64(buf, pos)
    if st[s.NUMBER] <= 0:
        st[s.ERROR_CODE] = s.GTID_BROKEN
        return s.ERROR
    domain = load_u32(buf, pos + 8)
    flags = load_u8(buf, pos + 12)
    st[s.IS_STANDALONE] = flags & 1
    st[s.IS_XA] = 1 if flags & 64 else 0
    st[s.ALTER_PHASE] = _alter_phase(buf, pos, end, flags)
    st[s.SERVER] = server_id
    st[s.COMMIT_MS] = st[s.EVENT_TIME_S] * 1000
    count = st[s.INTERVAL_COUNT]
    for row in range(count):
        if intervals[row, s.I_DOMAIN] == domain:
            st[s.SID] = row
            return s.NEED_EVENTS
    if count >= intervals.shape[0]:
        return s.POSITION_FULL
    intervals[count, s.I_DOMAIN] = domain
    intervals[count, s.I_SERVER] = 0
    intervals[count, s.I_SEQUENCE] = 0
    intervals[count, s.I_CHANGED] = 0
    intervals[count, s.I_SEEN] = 0
    st[s.SID] = count
    st[s.INTERVAL_COUNT] = count + 1
    return s.NEED_EVENTS


@compiled
def is_covered(st: Numbers, intervals: Table) -> bool:
    """True if the transaction just named is behind us."""
    if st[s.FLAVOUR] == s.MARIADB:
        behind: bool = st[s.NUMBER] <= intervals[st[s.SID], s.I_SEQUENCE]
        return behind
    sid, number = st[s.SID], st[s.NUMBER]
    for row in range(st[s.INTERVAL_COUNT]):
        if (
            intervals[row, s.I_SID] == sid
            and intervals[row, s.I_FIRST] <= number < intervals[row, s.I_END]
        ):
            return True
    return False


@compiled
def write_transaction_head(st: Numbers, intervals: Table, sids: Bytes, heads: Bytes) -> None:
    """``ts_ms`` and ``id`` of the transaction just named, encoded, at HEAD_TRANSACTION."""
    at = write_long(heads, s.HEAD_TRANSACTION, st[s.COMMIT_MS])
    begin = at
    at += 1  # the text's length: one byte below 64, two from there on
    if st[s.FLAVOUR] == s.MARIADB:
        at = write_integer(heads, at, intervals[st[s.SID], s.I_DOMAIN])
        store_u8(heads, at, 45)
        at = write_integer(heads, at + 1, st[s.SERVER])
        store_u8(heads, at, 45)
        at += 1
    else:
        base = st[s.SID] * s.SID_STRIDE + s.SID_TEXT
        copy(heads, at, sids, base + 1, load_u8(sids, base))
        at += load_u8(sids, base)
    at = write_integer(heads, at, st[s.NUMBER])
    size = at - begin - 1
    behind = write_long(heads, HEAD_WORK, size) - HEAD_WORK
    if behind > 1:
        move(heads, begin + behind, begin + 1, size)
        at += behind - 1
    write_long(heads, begin, size)
    st[s.GTID_SIZE] = at - begin
    st[s.TRANSACTION_HEAD_SIZE] = at - s.HEAD_TRANSACTION


HEAD_WORK = s.HEAD_FILE - 16


@compiled
def is_expected(st: Numbers, heads: Bytes, expected: Bytes) -> bool:
    """True if the id just written is the text in `expected`."""
    size = st[s.EXPECTED_SIZE]
    end = s.HEAD_TRANSACTION + st[s.TRANSACTION_HEAD_SIZE]
    if st[s.GTID_SIZE] != size + (1 if size < 64 else 2):
        return False
    for place in range(size):  # noqa: SIM110 (numba has no generators)
        if load_u8(heads, end - size + place) != load_u8(expected, place):
            return False
    return True


@compiled
def advance(st: Numbers, intervals: Table) -> bool:
    """The transaction is behind us now; False when there is no room to note it."""
    if st[s.FLAVOUR] == s.MARIADB:
        row = st[s.SID]
        intervals[row, s.I_SERVER] = st[s.SERVER]
        intervals[row, s.I_SEQUENCE] = st[s.NUMBER]
        intervals[row, s.I_CHANGED] = 1
        return True
    sid, number = st[s.SID], st[s.NUMBER]
    count = st[s.INTERVAL_COUNT]
    hint = st[s.INTERVAL_HINT]
    if hint < count and intervals[hint, s.I_SID] == sid and intervals[hint, s.I_END] == number:
        intervals[hint, s.I_END] = number + 1
        intervals[hint, s.I_CHANGED] = 1
        return True
    for row in range(count):
        if intervals[row, s.I_SID] == sid and intervals[row, s.I_END] == number:
            intervals[row, s.I_END] = number + 1
            intervals[row, s.I_CHANGED] = 1
            st[s.INTERVAL_HINT] = row
            return True
    if count >= intervals.shape[0]:
        return False
    intervals[count, s.I_SID] = sid
    intervals[count, s.I_FIRST] = number
    intervals[count, s.I_END] = number + 1
    intervals[count, s.I_CHANGED] = 1
    st[s.INTERVAL_HINT] = count
    st[s.INTERVAL_COUNT] = count + 1
    return True
