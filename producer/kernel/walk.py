"""One chunk of events: the closed switch, the groups of a source transaction, and what Python is asked for.

Event header (19 bytes, libs/mysql/binlog/event/binlog_event.h): time_s 4 | type 1 | server id 4 | size 4 | next
position 4 | flags 2. Behind the body stands a CRC32 of 4 bytes if the file says so; it was checked when the event was
received.

    GTID … BEGIN, table maps and rows, XID or COMMIT        MySQL; MariaDB's GTID event is the BEGIN itself
    GTID, a statement                                       DDL: to Python
    GTID, PAYLOAD                                           a compressed group: to Python, which feeds its events back

Every type is written, passed over by name, handed to Python, or an error. Passed over: they hold no rows and no
structure. A covered transaction is walked by headers and group ends alone.
"""

import numpy as np
from numpy.typing import NDArray

from producer.kernel import program as p
from producer.kernel import state as s
from producer.kernel.charsets import Codes
from producer.kernel.compiled import compiled
from producer.kernel.gtids import (
    advance,
    is_covered,
    is_expected,
    read_gtid,
    read_mariadb_gtid,
    read_tagged_gtid,
    write_transaction_head,
)
from producer.kernel.inflate import inflate
from producer.kernel.memory import Bytes, load_u8, load_u16, load_u32, store_u8
from producer.kernel.rows import CREATE, DELETE, UPDATE, convert_rows, write_event_head

Numbers = NDArray[np.int64]
Table = NDArray[np.int64]

HEADER = 19

# what to do with a type
REFUSED, PASSED, QUERY, TO_PYTHON, COMMIT, MAP, ROWS, GTID, GTID_MARIADB, GTID_TAGGED = range(10)
ANONYMOUS_GTID, ENCRYPTION, UNKNOWN, ALWAYS_PYTHON = 10, 11, 12, 13


def _actions() -> NDArray[np.int64]:
    table = np.full(256, UNKNOWN, np.int64)
    for action, types in {
        # ROTATE 4, STOP 3, INTVAR 5, RAND 13, USER_VAR 14, HEARTBEAT 27 and 41, IGNORABLE 28, ROWS_QUERY 29,
        # PREVIOUS_GTIDS 35, TRANSACTION_CONTEXT 36, VIEW_CHANGE 37; MariaDB: ANNOTATE_ROWS 160, BINLOG_CHECKPOINT
        # 161, GTID_LIST 163
        PASSED: (3, 4, 5, 13, 14, 27, 41, 28, 29, 35, 36, 37, 160, 161, 163),
        # START_V3 1, LOAD family 6-12, 17, 18; rows before 5.1 20-22; INCIDENT 26; PARTIAL_UPDATE_ROWS 39
        REFUSED: (1, 6, 7, 8, 9, 10, 11, 12, 17, 18, 20, 21, 22, 26, 39),
        QUERY: (2,),
        ALWAYS_PYTHON: (15,),  # FORMAT_DESCRIPTION
        TO_PYTHON: (38, 40, 165),  # XA_PREPARE, TRANSACTION_PAYLOAD, MariaDB's QUERY_COMPRESSED
        COMMIT: (16,),  # XID
        MAP: (19,),
        ROWS: (23, 24, 25, 30, 31, 32, 166, 167, 168, 169, 170, 171),
        GTID: (33,),
        ANONYMOUS_GTID: (34,),
        GTID_TAGGED: (42,),
        GTID_MARIADB: (162,),
        ENCRYPTION: (164,),
    }.items():
        table[list(types)] = action
    return table


ACTIONS = _actions()
_BEGIN = np.frombuffer(b"BEGIN", np.uint8).copy()
_COMMIT = np.frombuffer(b"COMMIT", np.uint8).copy()
_ROLLBACK = np.frombuffer(b"ROLLBACK", np.uint8).copy()
# row operation of 23-25, 30-32, 166-171, in this order
_OPERATIONS = np.array([CREATE, UPDATE, DELETE], np.int64)


@compiled
def _fail(st: Numbers, code: int, detail: int) -> int:
    st[s.ERROR_CODE] = code
    st[s.ERROR_DETAIL] = detail
    return s.ERROR


@compiled
def _is_text(buf: Bytes, pos: int, length: int, text: Bytes) -> bool:
    if length != text.size:
        return False
    for place in range(length):  # noqa: SIM110 (numba has no generators)
        if load_u8(buf, pos + place) != load_u8(text, place):
            return False
    return True


@compiled
def begin_transaction(
    st: Numbers, intervals: Table, sids: Bytes, heads: Bytes, expected: Bytes
) -> int:
    """After a GTID event was read: is it behind us, is it the expected one; the state of a new group."""
    st[s.TRANSACTIONS] += 1
    st[s.GROUP] = s.STARTED
    if st[s.FLAVOUR] == s.MYSQL:
        st[s.IS_XA] = 0
    st[s.ROWS] = st[s.ROWS_TO_SKIP] = 0
    st[s.LAST_UNIT] = -1
    st[s.OPEN_RECORDS], st[s.OPEN_OUT_AT], st[s.OPEN_SEQ] = st[s.RECORDS], st[s.OUT_AT], st[s.SEQ]
    covered = is_covered(st, intervals)
    st[s.IS_COVERED] = 1 if covered else 0
    if st[s.FLAVOUR] == s.MARIADB:
        row = st[s.SID]
        if st[s.NUMBER] <= intervals[row, s.I_SEEN]:
            return _fail(st, s.BACKWARDS, intervals[row, s.I_SEEN])
        is_last = st[s.NUMBER] == intervals[row, s.I_SEQUENCE]
        if is_last and st[s.SERVER] != intervals[row, s.I_SERVER]:
            return _fail(st, s.OTHER_HISTORY, intervals[row, s.I_SERVER])
        intervals[row, s.I_SEEN] = st[s.NUMBER]
        st[s.GROUP] = s.STARTED if st[s.IS_STANDALONE] else s.OPEN
        if st[s.IS_XA] != 0:  # passed over until its XA COMMIT
            st[s.IS_XA] = 2 if covered else 1
            st[s.IS_COVERED] = 1
    if covered:
        return s.NEED_EVENTS
    write_transaction_head(st, intervals, sids, heads)
    if st[s.EXPECTED_SIZE] > 0:
        if not is_expected(st, heads, expected):
            return _fail(st, s.NOT_EXPECTED, 0)
        st[s.ROWS_TO_SKIP] = st[s.EXPECTED_ROWS]
        st[s.EXPECTED_SIZE] = 0
    return s.NEED_EVENTS


@compiled
def end_transaction(st: Numbers, intervals: Table, out: Bytes, bounds: Table) -> int:
    """At the end of a group: `last` of its last record, the position, the counts. NEED_EVENTS, BATCH_FULL or
    POSITION_FULL."""
    if st[s.IS_COVERED] != 0:
        st[s.GROUP] = s.NO_GROUP
        st[s.IS_COVERED] = 0
        st[s.TRANSACTIONS_COVERED] += 1
        return s.NEED_EVENTS
    if not advance(st, intervals):
        return s.POSITION_FULL
    if st[s.LAST_UNIT] >= 0:
        store_u8(out, bounds[st[s.LAST_UNIT], 3] - 1, 1)
    st[s.GROUP] = s.NO_GROUP
    st[s.LAST_UNIT] = -1
    st[s.TRANSACTIONS_DONE] += 1
    if st[s.FIRST_COMMIT_MS] == 0:
        st[s.FIRST_COMMIT_MS] = st[s.COMMIT_MS]
    st[s.LAST_COMMIT_MS] = st[s.COMMIT_MS]
    st[s.OPEN_RECORDS], st[s.OPEN_OUT_AT], st[s.OPEN_SEQ] = st[s.RECORDS], st[s.OUT_AT], st[s.SEQ]
    if st[s.RECORDS] >= st[s.RECORDS_MAX] or st[s.OUT_AT] >= st[s.BYTES_MAX]:
        return s.BATCH_FULL
    return s.NEED_EVENTS


@compiled
def find_table(ids: Table, table_id: int) -> int:
    """The place of a table id in `ids` (id + 1, slot; open addressing, a power of two of rows); the free one if it
    isn't in."""
    mask = ids.shape[0] - 1
    place: int = (table_id * 0x9E3779B1) & mask
    while ids[place, 0] != 0 and ids[place, 0] != table_id + 1:
        place = (place + 1) & mask
    return place


@compiled
def load_table_id(buf: Bytes, pos: int) -> int:
    """6 bytes, little-endian."""
    return load_u32(buf, pos) | (load_u16(buf, pos + 4) << 32)


@compiled
def _map_table(
    buf: Bytes, pos: int, end: int, st: Numbers, tables: Table, blob: Bytes, ids: Table
) -> int:
    if pos + 8 > end:
        return _fail(st, s.TRUNCATED, pos)
    place = find_table(ids, load_table_id(buf, pos))
    if ids[place, 0] == 0:
        return s.TABLE_MAP_UNSEEN
    slot = ids[place, 1]
    size = tables[slot, p.BODY_SIZE]
    body = tables[slot, p.BODY_START]
    if size != end - pos - 6:
        return s.TABLE_MAP_UNSEEN
    for at in range(size):
        if load_u8(buf, pos + 6 + at) != load_u8(blob, body + at):
            return s.TABLE_MAP_UNSEEN
    tables[slot, p.MAPPED_IN] = st[s.TRANSACTIONS]
    return s.NEED_EVENTS


@compiled
def _packed(buf: Bytes, pos: int, end: int) -> tuple[int, int]:
    """A packed integer below 2**24 and the offset behind it, -1 when it is cut or greater."""
    if pos >= end:
        return 0, -1
    first = load_u8(buf, pos)
    if first < 251:
        return first, pos + 1
    if first == 252 and pos + 3 <= end:
        return load_u16(buf, pos + 1), pos + 3
    return 0, -1


@compiled
def _all_present(buf: Bytes, pos: int, count: int) -> bool:
    for place in range(count >> 3):
        if load_u8(buf, pos + place) != 255:
            return False
    rest = count & 7
    return rest == 0 or load_u8(buf, pos + (count >> 3)) & ((1 << rest) - 1) == (1 << rest) - 1


@compiled
def _inflate_rows(buf: Bytes, pos: int, end: int, st: Numbers, scratch: Bytes) -> int:
    """MariaDB's compressed rows: 128 | method << 4 | n, length of n bytes big-endian, zlib. Their size, in
    `scratch`."""
    if pos >= end:
        st[s.ERROR_CODE] = s.COMPRESSED_BROKEN
        return -1
    header = load_u8(buf, pos)
    width = header & 7
    if header & 0xF8 != 0x80 or width < 1 or width > 4 or pos + 1 + width > end:
        st[s.ERROR_CODE] = s.COMPRESSED_BROKEN
        return -1
    size = 0
    for place in range(width):
        size = (size << 8) | load_u8(buf, pos + 1 + place)
    if size > scratch.size:
        st[s.NEED_BYTES] = size
        return -2
    if inflate(scratch, 0, size, buf, pos + 1 + width, end, False) != size:
        st[s.ERROR_CODE] = s.COMPRESSED_BROKEN
        return -1
    return size


@compiled
def walk(
    buf: Bytes,
    end: int,
    st: Numbers,
    out: Bytes,
    bounds: Table,
    tables: Table,
    columns: Table,
    blob: Bytes,
    labels: Table,
    codes: Codes,
    ids: Table,
    intervals: Table,
    sids: Bytes,
    heads: Bytes,
    expected: Bytes,
    scratch: Bytes,
    inflated: Bytes,
    numbers: Numbers,
    key_spans: Numbers,
) -> int:
    """Walks the events of ``buf[st[POS]:end]``; a status of ``state``. POS is the first event that is not done."""
    while True:
        pos = st[s.POS]
        if pos + HEADER > end:
            return s.NEED_EVENTS
        size = load_u32(buf, pos + 9)
        kind = load_u8(buf, pos + 4)
        action = ACTIONS[kind]
        checksum = st[s.CHECKSUM_BYTES]
        if size < HEADER + checksum:
            return _fail(st, s.TRUNCATED, pos)
        if pos + size > end:
            return s.NEED_EVENTS
        st[s.EVENT_TIME_S] = load_u32(buf, pos)
        st[s.EVENT_TYPE], st[s.EVENT_SIZE] = kind, size
        body = pos + HEADER
        body_end = pos + size - checksum
        covered = st[s.IS_COVERED] != 0 and st[s.GROUP] != s.NO_GROUP
        status = s.NEED_EVENTS

        if action == ROWS:
            if not covered:
                if st[s.GROUP] != s.OPEN:
                    return _fail(st, s.OUT_OF_GROUP, kind)
                is_v2 = 30 <= kind <= 32 or kind >= 169
                if body + (10 if is_v2 else 8) > body_end:
                    return _fail(st, s.TRUNCATED, pos)
                place = find_table(ids, load_table_id(buf, body))
                table_id = load_table_id(buf, body)
                flags = load_u16(buf, body + 6)
                at = body + 8
                if is_v2:
                    extra = load_u16(buf, at)
                    if extra < 2:
                        return _fail(st, s.TRUNCATED, pos)
                    at += extra
                if ids[place, 0] != table_id + 1:
                    if (
                        table_id == 0xFFFFFF and at < body_end
                    ):  # a dummy event that only ends a statement
                        st[s.POS] = pos + size
                        st[s.EVENTS] += 1
                        continue
                    return _fail(st, s.TABLE_UNMAPPED, table_id)
                slot = ids[place, 1]
                if tables[slot, p.MAPPED_IN] != st[s.TRANSACTIONS]:
                    return _fail(st, s.TABLE_UNMAPPED, table_id)
                count, at = _packed(buf, at, body_end)
                if at < 0:
                    return _fail(st, s.TRUNCATED, pos)
                if count != tables[slot, p.COLUMN_COUNT]:
                    return _fail(st, s.COLUMNS_DIFFER, count)
                op = _OPERATIONS[
                    (kind - 23) % 3
                    if kind < 30
                    else (kind - 30) % 3
                    if kind < 166
                    else (kind - 166) % 3
                ]
                bitmap = (count + 7) >> 3
                for _ in range(2 if op == UPDATE else 1):
                    if at + bitmap > body_end:
                        return _fail(st, s.TRUNCATED, pos)
                    if not _all_present(buf, at, count):
                        return _fail(st, s.PARTIAL_IMAGE, 0)
                    at += bitmap
                fixed = st[s.FIXED_POS]
                head = write_event_head(
                    heads,
                    blob,
                    tables,
                    slot,
                    st,
                    load_u32(buf, pos + 5),
                    fixed if fixed >= 0 else st[s.FILE_POS] + pos,
                )
                # ROW_POS counts from the event (or from the inflated rows), so that it holds when the span moves
                source, base, rows_end = buf, pos, body_end
                if kind >= 166:
                    rows_end = _inflate_rows(buf, at, body_end, st, inflated)
                    if rows_end == -2:
                        return s.SCRATCH_FULL
                    if rows_end < 0:
                        return s.ERROR
                    source, base, at = inflated, 0, 0
                status = convert_rows(
                    source,
                    base + st[s.ROW_POS] if st[s.ROW_INDEX] > 0 else at,
                    rows_end,
                    op,
                    slot,
                    flags,
                    head,
                    st,
                    out,
                    bounds,
                    tables,
                    columns,
                    blob,
                    labels,
                    codes,
                    heads,
                    scratch,
                    numbers,
                    key_spans,
                )
                st[s.ROW_POS] -= base
                if status != s.NEED_EVENTS:
                    return status
        elif action == MAP:
            if not covered:
                if st[s.GROUP] != s.OPEN:
                    return _fail(st, s.OUT_OF_GROUP, kind)
                status = _map_table(buf, body, body_end, st, tables, blob, ids)
                if status != s.NEED_EVENTS:
                    return status
        elif action == COMMIT:
            if st[s.GROUP] != s.OPEN and not covered:
                return _fail(st, s.OUT_OF_GROUP, kind)
            status = end_transaction(st, intervals, out, bounds)
            if status == s.POSITION_FULL:
                return status
        elif action == QUERY:
            # thread 4 | seconds 4 | n database 1 | error 2 | m status 2 | m status | n database | 0 | text
            if body + 13 > body_end:
                return _fail(st, s.TRUNCATED, pos)
            text = body + 13 + load_u16(buf, body + 11) + load_u8(buf, body + 8) + 1
            if text > body_end:
                return _fail(st, s.TRUNCATED, pos)
            length = body_end - text
            if st[s.GROUP] == s.STARTED and _is_text(buf, text, length, _BEGIN):
                st[s.GROUP] = s.OPEN
            elif st[s.GROUP] == s.OPEN and _is_text(buf, text, length, _COMMIT):
                status = end_transaction(st, intervals, out, bounds)
                if status == s.POSITION_FULL:
                    return status
            elif st[s.GROUP] == s.OPEN and _is_text(buf, text, length, _ROLLBACK):
                if st[s.ROWS] > 0 and not covered:
                    return _fail(st, s.ROLLED_BACK, 0)
                status = end_transaction(st, intervals, out, bounds)
                if status == s.POSITION_FULL:
                    return status
            else:
                return s.EVENT_FOR_PYTHON
        elif action in (GTID, GTID_TAGGED, GTID_MARIADB):
            if st[s.GROUP] != s.NO_GROUP:
                return _fail(st, s.GROUP_UNFINISHED, 0)
            if (action == GTID_MARIADB) != (st[s.FLAVOUR] == s.MARIADB):
                return _fail(st, s.TYPE_UNKNOWN, kind)
            if action == GTID_MARIADB:
                status = read_mariadb_gtid(
                    buf, body, body_end, load_u32(buf, pos + 5), st, intervals
                )
            elif action == GTID:
                status = read_gtid(buf, body, body_end, st, sids, heads)
            else:
                status = read_tagged_gtid(buf, body, body_end, st, sids, heads)
            if status != s.NEED_EVENTS:
                return status
            st[s.GROUP_POS] = st[s.FILE_POS] + pos + size
            status = begin_transaction(st, intervals, sids, heads, expected)
            if status != s.NEED_EVENTS:
                return status
        elif action == ALWAYS_PYTHON or (
            action == TO_PYTHON and not (covered and kind == 40 and st[s.IS_XA] == 0)
        ):
            return s.EVENT_FOR_PYTHON
        elif action == TO_PYTHON:  # the payload of a covered transaction: the whole group
            status = end_transaction(st, intervals, out, bounds)
        elif action == PASSED:
            pass
        elif action == ANONYMOUS_GTID:
            return _fail(st, s.ANONYMOUS, 0)
        elif action == ENCRYPTION:
            return _fail(st, s.ENCRYPTED, 0)
        elif action == REFUSED:
            return _fail(st, s.TYPE_REFUSED, kind)
        else:
            return _fail(st, s.TYPE_UNKNOWN, kind)
        st[s.POS] = pos + size
        st[s.EVENTS] += 1
        if status != s.NEED_EVENTS:
            return status
