"""Walks one chunk of events: handles each event type and the source transactions, and returns when Python is
needed.

``producer.binlog.events`` has the layout of events. ``producer.binlog.transactions`` determines where source
transactions begin and end. If the file has checksums after the body, they were checked when the event was received.

Each type is written, skipped, handed to Python, or an error. The skipped types are listed: they hold no rows and no
structure. In a covered transaction only headers and group ends are read.
"""

import numpy as np
from numpy.typing import NDArray

from millrace.producer.binlog import events as t
from millrace.producer.binlog.transactions import (
    BAD_BODY,
    COMMITS,
    ENDS,
    GROUP_NOT_ENDED,
    INSIDE,
    OPENS,
    OUTSIDE,
    ROLLS_BACK,
    state_after_gtid,
    transaction_step,
)
from millrace.producer.convert.kernel import program as p
from millrace.producer.convert.kernel import state as s
from millrace.producer.convert.kernel.charsets import Codes
from millrace.producer.convert.kernel.compiled import compiled
from millrace.producer.convert.kernel.gtids import (
    advance,
    is_covered,
    is_expected,
    read_gtid,
    write_transaction_head,
)
from millrace.producer.convert.kernel.inflate import inflate
from millrace.producer.convert.kernel.memory import Bytes, load_u8, load_u16, load_u32, store_u8
from millrace.producer.convert.kernel.rows import (
    CREATE,
    DELETE,
    UPDATE,
    convert_rows,
    write_event_head,
)

Numbers = NDArray[np.int64]
Table = NDArray[np.int64]

# the action for a type
(
    REFUSED,
    SKIPPED,
    QUERY,
    TO_PYTHON,
    PAYLOAD,
    COMMIT,
    MAP,
    ROWS,
    GTID,
    ANONYMOUS_GTID,
    ENCRYPTION,
    UNKNOWN,
) = range(12)


def _actions() -> NDArray[np.int64]:
    table = np.full(256, UNKNOWN, np.int64)
    for action, types in {
        SKIPPED: (
            t.ROTATE,
            t.STOP,
            t.INTVAR,
            t.RAND,
            t.USER_VAR,
            t.HEARTBEAT,
            t.HEARTBEAT_V2,
            t.IGNORABLE,
            t.ROWS_QUERY,
            t.PREVIOUS_GTIDS,
            t.TRANSACTION_CONTEXT,
            t.VIEW_CHANGE,
            t.MARIADB_ANNOTATE_ROWS,
            t.MARIADB_BINLOG_CHECKPOINT,
            t.MARIADB_GTID_LIST,
        ),
        REFUSED: (
            t.START_V3,
            *t.PRE_GA_ROWS,
            t.INCIDENT,
            t.PARTIAL_UPDATE_ROWS,
        ),
        QUERY: (t.QUERY,),
        TO_PYTHON: (
            t.FORMAT_DESCRIPTION,
            t.XA_PREPARE,
            t.MARIADB_QUERY_COMPRESSED,
            *t.LOADED_ROWS,
        ),
        PAYLOAD: (t.TRANSACTION_PAYLOAD,),
        COMMIT: (t.XID,),
        MAP: (t.TABLE_MAP,),
        ROWS: t.ROWS,
        GTID: (t.GTID, t.GTID_TAGGED, t.MARIADB_GTID),
        ANONYMOUS_GTID: (t.ANONYMOUS_GTID,),
        ENCRYPTION: (t.MARIADB_START_ENCRYPTION,),
    }.items():
        table[list(types)] = action
    return table


ACTIONS = _actions()
_DUMMY_TABLE_ID = 0xFFFFFF  # rows of no table; the event only ends a statement


def _operations() -> NDArray[np.int64]:
    """The operation of the rows of each type."""
    table = np.zeros(256, np.int64)
    for types in (t.ROWS_V1, t.ROWS_V2, t.ROWS_COMPRESSED_V1, t.ROWS_COMPRESSED_V2):
        table[list(types)] = CREATE, UPDATE, DELETE
    return table


_OPERATIONS = _operations()


_HAS_EXTRA, _IS_COMPRESSED = 1, 2
# STMT_END, NO_FOREIGN_KEY_CHECKS, RELAXED_UNIQUE_CHECKS, COMPLETE_ROWS, and MySQL's USE_SQL_FOREIGN_KEY, or MariaDB's
# NO_CHECK_CONSTRAINT_CHECKS. Unique checks are never relaxed on the target.
_FLAGS_OF_MYSQL, _FLAGS_OF_MARIADB = 0x1F, 0x8F


def _row_forms() -> NDArray[np.int64]:
    """The form of each type with rows: 1 with extra data (version 2), 2 compressed, 3 both."""
    table = np.zeros(256, np.int64)
    table[list(t.ROWS_V2)] = _HAS_EXTRA
    table[list(t.ROWS_COMPRESSED_V1)] = _IS_COMPRESSED
    table[list(t.ROWS_COMPRESSED_V2)] = _HAS_EXTRA | _IS_COMPRESSED
    return table


_ROW_FORMS = _row_forms()


@compiled
def _fail(st: Numbers, code: int, detail: int) -> int:
    st[s.ERROR_CODE] = code
    st[s.ERROR_DETAIL] = detail
    return s.ERROR


@compiled
def _refuse(st: Numbers, step: int, kind: int) -> int:
    """The ERROR for a step that ``transaction_step`` refuses."""
    if step == GROUP_NOT_ENDED:
        return _fail(st, s.GROUP_UNFINISHED, 0)
    return _fail(st, s.TRUNCATED if step == BAD_BODY else s.OUT_OF_GROUP, kind)


@compiled
def begin_transaction(
    st: Numbers, intervals: Table, sids: Bytes, heads: Bytes, expected: Bytes
) -> int:
    """Begin a group after its GTID event: whether it is done already, whether it is the expected one."""
    st[s.TRANSACTIONS] += 1
    st[s.GROUP] = state_after_gtid(st, s.GTID, st[s.FLAVOUR] == s.MARIADB)
    st[s.ROWS] = st[s.ROWS_TO_SKIP] = st[s.STATEMENTS] = 0
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
        if st[s.IS_XA] != 0:  # skipped until its XA COMMIT
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
    """End a group: set `last` of its last record, advance the position and the counts. NEED_EVENTS, BATCH_FULL or
    POSITION_FULL."""
    if st[s.IS_COVERED] != 0:
        st[s.GROUP] = OUTSIDE
        st[s.IS_COVERED] = 0
        return s.NEED_EVENTS
    if not advance(st, intervals):
        return s.POSITION_FULL
    if st[s.LAST_UNIT] >= 0:
        store_u8(out, bounds[st[s.LAST_UNIT], 3] - 1, 1)
    st[s.GROUP] = OUTSIDE
    st[s.LAST_UNIT] = -1
    st[s.TRANSACTIONS_DONE] += 1
    st[s.OPEN_RECORDS], st[s.OPEN_OUT_AT], st[s.OPEN_SEQ] = st[s.RECORDS], st[s.OUT_AT], st[s.SEQ]
    if st[s.RECORDS] >= st[s.RECORDS_MAX] or st[s.OUT_AT] >= st[s.BYTES_MAX]:
        return s.BATCH_FULL
    return s.NEED_EVENTS


@compiled
def find_table(ids: Table, table_id: int) -> int:
    """The place of a table ID in `ids` (ID + 1, slot; open addressing, a power of two of rows); the free place for
    a new one."""
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
    """A packed integer below 2**24 and the offset after it; -1 if it is cut or greater."""
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
def _find_variant(
    tables: Table, slot: int, blob: Bytes, buf: Bytes, pos: int, count: int, images: int
) -> int:
    """The row of `tables` for images without some columns; -1 if Python has to see them."""
    variant: int = tables[slot, p.VARIANT] - 1
    if variant < 0:
        return -1
    size = (count + 7) >> 3
    last = 0xFF >> (-count & 7)
    start = tables[variant, p.BODY_START]
    for image in range(images):
        for place in range(size):
            differs = load_u8(buf, pos + image * size + place) ^ load_u8(blob, start + place)
            if differs & (last if place == size - 1 else 0xFF):
                return -1
    return variant


@compiled
def _inflate_rows(buf: Bytes, pos: int, end: int, st: Numbers, scratch: Bytes) -> int:
    """Inflate MariaDB's compressed rows into `scratch` and return their size: 128 | method << 4 | n, length of n
    bytes big-endian, zlib."""
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
    """Walk the events of ``buf[st[POS]:end]`` and return a status of ``state``. POS is then the first unfinished
    event."""
    while True:
        pos = st[s.POS]
        if pos + t.HEADER_BYTES > end:
            return s.NEED_EVENTS
        size = load_u32(buf, pos + 9)
        kind = load_u8(buf, pos + 4)
        action = ACTIONS[kind]
        checksum = st[s.CHECKSUM_BYTES]
        if size < t.HEADER_BYTES + checksum:
            return _fail(st, s.TRUNCATED, pos)
        # of a payload in the relay log, the beginning is enough: Python streams the rest
        if pos + size > end and (action != PAYLOAD or st[s.FIXED_POS] >= 0):
            return s.NEED_EVENTS
        st[s.EVENT_TIME_S] = load_u32(buf, pos)
        st[s.EVENT_TYPE], st[s.EVENT_SIZE] = kind, size
        body = pos + t.HEADER_BYTES
        body_end = pos + size - checksum
        covered = st[s.IS_COVERED] != 0 and st[s.GROUP] != OUTSIDE
        status = s.NEED_EVENTS
        step = transaction_step(st[s.GROUP], buf, pos, body_end, st[s.FLAVOUR] == s.MARIADB)
        if step >= GROUP_NOT_ENDED:
            return _refuse(st, step, kind)

        if action == ROWS:
            if not covered:
                form = _ROW_FORMS[kind]
                if body + (10 if form & _HAS_EXTRA else 8) > body_end:
                    return _fail(st, s.TRUNCATED, pos)
                table_id = load_table_id(buf, body)
                place = find_table(ids, table_id)
                flags = load_u16(buf, body + 6)
                at = body + 8
                if form & _HAS_EXTRA:
                    extra = load_u16(buf, at)
                    if extra < 2:
                        return _fail(st, s.TRUNCATED, pos)
                    at += extra
                if ids[place, 0] != table_id + 1:
                    if table_id == _DUMMY_TABLE_ID and at < body_end:
                        st[s.POS] = pos + size
                        continue
                    return _fail(st, s.TABLE_UNMAPPED, table_id)
                slot = ids[place, 1]
                if tables[slot, p.MAPPED_IN] != st[s.TRANSACTIONS]:
                    return _fail(st, s.TABLE_UNMAPPED, table_id)
                is_mariadb = st[s.FLAVOUR] == s.MARIADB
                if flags & ~(_FLAGS_OF_MARIADB if is_mariadb else _FLAGS_OF_MYSQL):
                    return _fail(st, s.FLAGS_UNKNOWN, flags)
                count, at = _packed(buf, at, body_end)
                if at < 0:
                    return _fail(st, s.TRUNCATED, pos)
                if count != tables[slot, p.COLUMN_COUNT]:
                    return _fail(st, s.COLUMNS_DIFFER, count)
                op = _OPERATIONS[kind]
                present = at
                images = 2 if op == UPDATE else 1
                is_whole = True
                for _ in range(images):
                    if at + ((count + 7) >> 3) > body_end:
                        return _fail(st, s.TRUNCATED, pos)
                    is_whole = is_whole and _all_present(buf, at, count)
                    at += (count + 7) >> 3
                if not is_whole:
                    variant = _find_variant(tables, slot, blob, buf, present, count, images)
                    seen_in = tables[variant, p.MAPPED_IN] if variant >= 0 else -1
                    # an INSERT may be without other columns, so it needs an UPDATE or DELETE to show which
                    is_shown = op != CREATE or seen_in == st[s.TRANSACTIONS]
                    if variant < 0 or (not is_shown and tables[slot, p.IS_INCLUDED] != 0):
                        st[s.ERROR_DETAIL] = slot
                        return s.IMAGES_UNSEEN
                    tables[variant, p.MAPPED_IN] = st[s.TRANSACTIONS]
                    slot = variant
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
                # ROW_POS is relative to the event (or to the inflated rows), so it stays valid when the span moves
                source, base, rows_end = buf, pos, body_end
                if form & _IS_COMPRESSED:
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
                status = _map_table(buf, body, body_end, st, tables, blob, ids)
                if status != s.NEED_EVENTS:
                    return status
        elif action == COMMIT:
            status = end_transaction(st, intervals, out, bounds)
            if status == s.POSITION_FULL:
                return status
        elif action == QUERY:
            if step == OPENS:
                st[s.GROUP] = INSIDE
            elif step in (COMMITS, ROLLS_BACK):
                # DDL is not rolled back: MariaDB logs the DROP of a failed CREATE OR REPLACE TABLE so
                if step == ROLLS_BACK and st[s.ROWS] > st[s.STATEMENTS] and not covered:
                    st[s.STEP] = step
                    return s.EVENT_FOR_PYTHON
                status = end_transaction(st, intervals, out, bounds)
                if status == s.POSITION_FULL:
                    return status
            else:
                st[s.STEP] = step
                return s.EVENT_FOR_PYTHON
        elif action == GTID:
            if (kind == t.MARIADB_GTID) != (st[s.FLAVOUR] == s.MARIADB):
                return _fail(st, s.TYPE_UNKNOWN, kind)
            status = read_gtid(buf, pos, body_end, st, sids, intervals)
            if status != s.NEED_EVENTS:
                return status
            st[s.GROUP_POS] = st[s.FILE_POS] + pos + size
            status = begin_transaction(st, intervals, sids, heads, expected)
            if status != s.NEED_EVENTS:
                return status
        elif action == PAYLOAD and covered and st[s.IS_XA] == 0:  # it contains the whole group
            status = end_transaction(st, intervals, out, bounds)
        elif action in (PAYLOAD, TO_PYTHON):
            st[s.STEP] = step
            return s.EVENT_FOR_PYTHON
        elif action == SKIPPED:
            pass
        elif action == ANONYMOUS_GTID:
            return _fail(st, s.ANONYMOUS, 0)
        elif action == ENCRYPTION:
            # MariaDB's dump decrypts the file and marks the event; an unmarked one begins encrypted bytes
            if not load_u16(buf, pos + t.FLAGS_AT) & t.IGNORABLE_FLAG:
                return _fail(st, s.ENCRYPTED, 0)
        elif action == REFUSED:
            if not covered:
                return _fail(st, s.TYPE_REFUSED, kind)
            if step == ENDS:
                status = end_transaction(st, intervals, out, bounds)
        else:
            return _fail(st, s.TYPE_UNKNOWN, kind)
        st[s.POS] = pos + size
        if status != s.NEED_EVENTS:
            return status
