"""The converter's position: reads GTID events, says whether the position has a transaction, and adds it.

A position is rows of numbers (``state``): for MySQL intervals of a UUID with its tag, for MariaDB the last sequence
number of a domain. ``producer.binlog.gtid_events`` decodes the events.
"""

import numpy as np
from numpy.typing import NDArray

from millrace.characters import COLON, MINUS
from millrace.producer.binlog.gtid_events import (
    COMMITTED_US,
    FLAGS,
    TAG_BYTES_MAX,
    TAG_WORDS,
    XA_PREPARED_FLAG,
    read_gtid_event,
)
from millrace.producer.convert.kernel import state as s
from millrace.producer.convert.kernel.avro import write_long
from millrace.producer.convert.kernel.compiled import compiled
from millrace.producer.convert.kernel.json_binary import write_integer
from millrace.producer.convert.kernel.memory import (
    Bytes,
    copy,
    load_i64,
    load_u8,
    move,
    signed,
    store_i64,
    store_u8,
)

Numbers = NDArray[np.int64]
Table = NDArray[np.int64]

_HEX = np.frombuffer(b"0123456789abcdef", np.uint8).copy()


@compiled
def read_gtid(buf: Bytes, pos: int, end: int, st: Numbers, sids: Bytes, intervals: Table) -> int:
    """Read the GTID event ``buf[pos:end]`` into GTID, SID, COMMIT_MS and IS_XA of the state.

    SID is the row of the source: MySQL's UUID and tag, or MariaDB's domain. A new source gets the next row. Returns
    NEED_EVENTS, POSITION_FULL or ERROR.
    """
    if not read_gtid_event(st, s.GTID, buf, pos, end):
        st[s.ERROR_CODE] = s.GTID_BROKEN
        return s.ERROR
    committed_us = st[s.GTID + COMMITTED_US]
    st[s.COMMIT_MS] = committed_us // 1000 if committed_us > 0 else st[s.EVENT_TIME_S] * 1000
    if st[s.FLAVOUR] == s.MARIADB:
        st[s.IS_XA] = 1 if st[s.GTID + FLAGS] & XA_PREPARED_FLAG else 0
        return _find_domain(st, intervals)
    st[s.IS_XA] = 0
    return _find_sid(st, sids)


@compiled
def _same_sid(sids: Bytes, base: int, st: Numbers) -> bool:
    for word in range(2 + TAG_WORDS):  # noqa: SIM110 (numba has no generators)
        if load_i64(sids, base + 8 * word) != st[s.GTID + word]:
            return False
    return True


@compiled
def _find_sid(st: Numbers, sids: Bytes) -> int:
    """Set SID to the UUID and tag just read. A new one gets the next index, and its text is written."""
    count = st[s.SID_COUNT]
    last = st[s.SID]
    if 0 <= last < count and _same_sid(sids, last * s.SID_STRIDE, st):
        return s.NEED_EVENTS
    for sid in range(count):
        if _same_sid(sids, sid * s.SID_STRIDE, st):
            st[s.SID] = sid
            return s.NEED_EVENTS
    if (count + 1) * s.SID_STRIDE > sids.size:
        return s.POSITION_FULL
    base = count * s.SID_STRIDE
    for word in range(2 + TAG_WORDS):
        store_i64(sids, base + 8 * word, st[s.GTID + word])
    at = base + s.SID_TEXT + 1
    for place in range(16):
        if place == 4 or place == 6 or place == 8 or place == 10:
            store_u8(sids, at, MINUS)
            at += 1
        byte = load_u8(sids, base + place)
        store_u8(sids, at, signed(_HEX[byte >> 4]))
        store_u8(sids, at + 1, signed(_HEX[byte & 15]))
        at += 2
    store_u8(sids, at, COLON)
    at += 1
    if load_u8(sids, base + s.SID_TAG) != 0:
        for place in range(TAG_BYTES_MAX):
            letter = load_u8(sids, base + s.SID_TAG + place)
            if letter == 0:
                break
            store_u8(sids, at, letter)
            at += 1
        store_u8(sids, at, COLON)
        at += 1
    store_u8(sids, base + s.SID_TEXT, at - base - s.SID_TEXT - 1)
    st[s.SID] = count
    st[s.SID_COUNT] = count + 1
    return s.NEED_EVENTS


@compiled
def _find_domain(st: Numbers, intervals: Table) -> int:
    """Set SID to the domain just read. A new one gets the next row."""
    count = st[s.INTERVAL_COUNT]
    for row in range(count):
        if intervals[row, s.I_DOMAIN] == st[s.DOMAIN]:
            st[s.SID] = row
            return s.NEED_EVENTS
    if count >= intervals.shape[0]:
        return s.POSITION_FULL
    intervals[count, s.I_DOMAIN] = st[s.DOMAIN]
    intervals[count, s.I_SERVER] = 0
    intervals[count, s.I_SEQUENCE] = 0
    intervals[count, s.I_CHANGED] = 0
    intervals[count, s.I_SEEN] = 0
    st[s.SID] = count
    st[s.INTERVAL_COUNT] = count + 1
    return s.NEED_EVENTS


@compiled
def is_covered(st: Numbers, intervals: Table) -> bool:
    """Whether the transaction just read is done."""
    if st[s.FLAVOUR] == s.MARIADB:
        is_done: bool = st[s.NUMBER] <= intervals[st[s.SID], s.I_SEQUENCE]
        return is_done
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
    """Write ``ts_ms`` and ``id`` of the transaction just read, encoded, at HEAD_TRANSACTION."""
    at = write_long(heads, s.HEAD_TRANSACTION, st[s.COMMIT_MS])
    begin = at
    at += 1  # the text's length: one byte below 64, otherwise two
    if st[s.FLAVOUR] == s.MARIADB:
        at = write_integer(heads, at, intervals[st[s.SID], s.I_DOMAIN])
        store_u8(heads, at, MINUS)
        at = write_integer(heads, at + 1, st[s.SERVER])
        store_u8(heads, at, MINUS)
        at += 1
    else:
        base = st[s.SID] * s.SID_STRIDE + s.SID_TEXT
        copy(heads, at, sids, base + 1, load_u8(sids, base))
        at += load_u8(sids, base)
    at = write_integer(heads, at, st[s.NUMBER])
    size = at - begin - 1
    length_size = write_long(heads, HEAD_WORK, size) - HEAD_WORK
    if length_size > 1:
        move(heads, begin + length_size, begin + 1, size)
        at += length_size - 1
    write_long(heads, begin, size)
    st[s.GTID_SIZE] = at - begin
    st[s.TRANSACTION_HEAD_SIZE] = at - s.HEAD_TRANSACTION


HEAD_WORK = s.HEAD_FILE - 16  # free bytes, in which a length is encoded to learn how long it is


@compiled
def is_expected(st: Numbers, heads: Bytes, expected: Bytes) -> bool:
    """Whether the ID just written is that of the transaction to resume, whose text is in ``expected``."""
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
    """Add the transaction to the position; False if there is no room for it."""
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
