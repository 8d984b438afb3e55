"""Converts a rows event to records.

Layout (libs/mysql/binlog/event/rows_event.h), after the 19-byte header:

    table id 6 | flags 2 | version 2: n 2, n - 2 bytes of extra data | packed column count | present columns, a bit each
    update: the same for the after image | rows: their images, one after the other

A record is: 00 schema id | before | after | head of the event | row | flags | seq | op | head of the transaction |
total_order | last. The head of an event and that of a transaction are encoded once each.

Guarantees: OUT_AT only advances over whole records, so a partly written record never counts. All fields except the
images take at most META_BYTES_MAX.
"""

import numpy as np
from numpy.typing import NDArray

from millrace.producer.convert.kernel import program as p
from millrace.producer.convert.kernel import state as s
from millrace.producer.convert.kernel.avro import write_long
from millrace.producer.convert.kernel.charsets import Codes
from millrace.producer.convert.kernel.compiled import compiled
from millrace.producer.convert.kernel.images import FULL, SCRATCH, convert_image, skip_image
from millrace.producer.convert.kernel.memory import Bytes, copy, signed, store_u8

Numbers = NDArray[np.int64]
Table = NDArray[np.int64]  # two dimensions

META_BYTES_MAX = 8192  # framing, the heads and the numbers around the images

CREATE, UPDATE, DELETE = 0, 1, 2
_OP_LETTERS = np.frombuffer(b"cud", np.uint8).copy()


@compiled
def write_event_head(
    heads: Bytes, blob: Bytes, tables: Table, slot: int, st: Numbers, server_id: int, pos: int
) -> int:
    """Write the ``Source`` fields from ``version`` to ``pos`` at HEAD_EVENT and return their size."""
    at = s.HEAD_EVENT
    copy(heads, at, blob, tables[slot, p.HEAD_START], tables[slot, p.HEAD_SIZE])
    at += tables[slot, p.HEAD_SIZE]
    at = write_long(heads, at, st[s.EVENT_TIME_S] * 1000)
    at = write_long(heads, at, server_id)
    # the id of the transaction is the last field of its head
    copy(
        heads,
        at,
        heads,
        s.HEAD_TRANSACTION + st[s.TRANSACTION_HEAD_SIZE] - st[s.GTID_SIZE],
        st[s.GTID_SIZE],
    )
    at += st[s.GTID_SIZE]
    copy(heads, at, heads, s.HEAD_FILE, st[s.FILE_SIZE])
    at += st[s.FILE_SIZE]
    return write_long(heads, at, pos) - s.HEAD_EVENT


@compiled
def convert_rows(
    buf: Bytes,
    pos: int,
    end: int,
    op: int,
    slot: int,
    event_flags: int,
    head_size: int,
    st: Numbers,
    out: Bytes,
    bounds: Table,
    tables: Table,
    columns: Table,
    blob: Bytes,
    labels: Table,
    codes: Codes,
    heads: Bytes,
    scratch: Bytes,
    numbers: Numbers,
    key_spans: Numbers,
) -> int:
    """Convert the rows in ``buf[pos:end]`` from row ROW_INDEX on to records. Returns NEED_EVENTS when done, else a
    status.

    On OUT_FULL, ROW_POS (as an offset in `buf`) and ROW_INDEX are the row to resume with.
    """
    if tables[slot, p.IS_UNMEASURED] != 0:
        return s.NEED_EVENTS
    first_column, column_count = tables[slot, p.FIRST_COLUMN], tables[slot, p.COLUMN_COUNT]
    reserve = tables[slot, p.RESERVE_BYTES]
    images = 2 if op == UPDATE else 1
    has_key = tables[slot, p.KEY_SCHEMA_ID] >= 0
    schema_id, key_schema_id = tables[slot, p.SCHEMA_ID], tables[slot, p.KEY_SCHEMA_ID]
    row = st[s.ROW_INDEX]
    limit = out.size - META_BYTES_MAX - images * reserve
    while pos < end:
        if st[s.ROWS] < st[s.ROWS_TO_SKIP] or tables[slot, p.IS_INCLUDED] == 0:
            for _ in range(images):
                pos = skip_image(buf, pos, end, columns, first_column, column_count)
                if pos < 0:
                    st[s.ERROR_CODE] = s.TRUNCATED
                    return s.ERROR
            st[s.ROWS] += 1
            row += 1
            continue
        at = st[s.OUT_AT]
        record = st[s.RECORDS]
        if at > limit or record >= bounds.shape[0]:
            st[s.ROW_POS], st[s.ROW_INDEX] = pos, row
            st[s.NEED_BYTES] = META_BYTES_MAX + images * reserve
            return s.OUT_FULL
        start = at
        row_pos = pos
        _write_framing(out, at, schema_id)
        at += 5
        if op == CREATE:
            store_u8(out, at, 0)
            at += 1
        for _ in range(images):
            store_u8(out, at, 2)
            at, pos = convert_image(
                out,
                at + 1,
                limit,
                buf,
                pos,
                end,
                columns,
                first_column,
                column_count,
                blob,
                labels,
                codes,
                scratch,
                numbers,
                key_spans,
            )
            if at < 0:
                st[s.ROW_POS], st[s.ROW_INDEX] = row_pos, row
                if at == FULL:
                    st[s.NEED_BYTES] = META_BYTES_MAX + images * reserve + 3 * (end - row_pos)
                    return s.OUT_FULL
                if at == SCRATCH:
                    return s.SCRATCH_FULL
                st[s.ERROR_CODE], st[s.ERROR_DETAIL] = s.VALUE_BROKEN, pos
                return s.ERROR
        if op == DELETE:
            store_u8(out, at, 0)
            at += 1
        copy(out, at, heads, s.HEAD_EVENT, head_size)
        at += head_size
        at = write_long(out, at, row)
        at = write_long(out, at, event_flags)
        seq = st[s.SEQ] + 1
        at = write_long(out, at, seq)
        store_u8(out, at, 2)
        store_u8(out, at + 1, signed(_OP_LETTERS[op]))
        at += 2
        copy(out, at, heads, s.HEAD_TRANSACTION, st[s.TRANSACTION_HEAD_SIZE])
        at += st[s.TRANSACTION_HEAD_SIZE]
        at = write_long(out, at, st[s.ROWS] + 1)
        store_u8(out, at, 0)
        at += 1
        bounds[record, 0] = bounds[record, 1] = -1
        bounds[record, 2] = start
        bounds[record, 3] = at
        if has_key:
            key_count = tables[slot, p.KEY_COUNT]
            need = 5
            for key in range(key_count):
                need += key_spans[2 * key + 1] - key_spans[2 * key]
            if at + need > out.size:
                st[s.ROW_POS], st[s.ROW_INDEX] = row_pos, row
                st[s.NEED_BYTES] = at - start + need
                return s.OUT_FULL
            bounds[record, 0] = at
            _write_framing(out, at, key_schema_id)
            at += 5
            for key in range(key_count):
                size = key_spans[2 * key + 1] - key_spans[2 * key]
                copy(out, at, out, key_spans[2 * key], size)
                at += size
            bounds[record, 1] = at
        st[s.OUT_AT] = at
        st[s.RECORDS] = record + 1
        st[s.LAST_UNIT] = record
        st[s.LAST_UNIT_ROWS] = st[s.ROWS]
        st[s.SEQ] = seq
        st[s.ROWS] += 1
        st[s.ROWS_WRITTEN] += 1
        row += 1
    st[s.ROW_POS] = st[s.ROW_INDEX] = 0
    return s.NEED_EVENTS


@compiled
def _write_framing(out: Bytes, at: int, schema_id: int) -> None:
    """Write Confluent's framing: a zero byte and the schema ID, 4 bytes big-endian."""
    store_u8(out, at, 0)
    store_u8(out, at + 1, schema_id >> 24)
    store_u8(out, at + 2, schema_id >> 16)
    store_u8(out, at + 3, schema_id >> 8)
    store_u8(out, at + 4, schema_id)
