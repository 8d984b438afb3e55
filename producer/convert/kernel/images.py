"""Converts one row image to an Avro ``Row``, column by column, by its operation (``program``).

    null bits, one per column | the values of the columns that are not NULL

Guarantees: each length is compared with the end of the event before it is read. Each write has room: RESERVE_BYTES of
the table for all values of bounded size, three times its length for any other value; JSON and inflated values compare
themselves. Not done here: images without some columns (``walk`` refuses them).
"""

import numpy as np
from numpy.typing import NDArray

from millrace.characters import COMMA
from millrace.producer.convert.kernel import program as p
from millrace.producer.convert.kernel.avro import long_size, write_bytes, write_long
from millrace.producer.convert.kernel.charsets import (
    UTF8MB4,
    Codes,
    ascii_length,
    convert_text,
    is_utf8,
)
from millrace.producer.convert.kernel.compiled import compiled
from millrace.producer.convert.kernel.decimals import (
    write_decimal,
    write_unsigned_bytes,
)
from millrace.producer.convert.kernel.inflate import inflate
from millrace.producer.convert.kernel.json_binary import write_json
from millrace.producer.convert.kernel.memory import (
    Bytes,
    copy,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    move,
    store_u8,
)
from millrace.producer.convert.kernel.temporal import (
    write_date,
    write_datetime2,
    write_old_datetime,
    write_old_time,
    write_old_timestamp,
    write_time2,
    write_timestamp2,
)

Numbers = NDArray[np.int64]
Table = NDArray[np.int64]  # two dimensions

BROKEN, FULL, SCRATCH = -1, -2, -3


@compiled
def load_prefix(buf: Bytes, pos: int, size: int) -> int:
    """The length before a value: 1 to 4 bytes, little-endian."""
    if size == 1:
        return load_u8(buf, pos)
    if size == 2:
        return load_u16(buf, pos)
    if size == 4:
        return load_u32(buf, pos)
    return load_u16(buf, pos) | (load_u8(buf, pos + 2) << 16)


@compiled
def convert_image(
    out: Bytes,
    at: int,
    limit: int,
    buf: Bytes,
    pos: int,
    end: int,
    columns: Table,
    first_column: int,
    column_count: int,
    blob: Bytes,
    labels: Table,
    codes: Codes,
    scratch: Bytes,
    numbers: Numbers,
    key_spans: Numbers,
) -> tuple[int, int]:
    """Convert the row image at `pos` to an Avro ``Row`` at `at`. Returns the offsets after both, or
    (BROKEN|FULL|SCRATCH, column)."""
    nulls = pos
    pos += (column_count + 7) >> 3
    if pos > end:
        return BROKEN, 0
    for index in range(column_count):
        column = first_column + index
        if (load_u8(buf, nulls + (index >> 3)) >> (index & 7)) & 1:
            if columns[column, p.NULLABLE] == 0:
                return BROKEN, index
            store_u8(out, at, 0)
            at += 1
            continue
        size = columns[column, p.SIZE]
        if columns[column, p.IS_PREFIXED] != 0:
            if pos + size > end:
                return BROKEN, index
            length = load_prefix(buf, pos, size)
            pos += size
            if pos + length > end:
                return BROKEN, index
            if at + 3 * length > limit:
                return FULL, 3 * length
        else:
            length = size
            if pos + length > end:
                return BROKEN, index
        start = at
        branch = columns[column, p.BRANCH]
        if branch >= 0:
            store_u8(out, at, branch)
            at += 1
        op = columns[column, p.OP]
        if op == p.INT32:
            value = load_u32(buf, pos)
            at = write_long(out, at, value - ((value >> 31) << 32))
        elif op == p.INT64:
            at = write_long(out, at, load_i64(buf, pos))
        elif op == p.TEXT:
            if is_utf8(buf, pos, pos + length, columns[column, p.A]):
                at = write_bytes(out, at, buf, pos, length)
            else:
                store_u8(out, start, columns[column, p.OTHER])
                at = write_bytes(out, at, buf, pos, length)
        elif op == p.DECIMAL:
            at = write_decimal(
                out, at, buf, pos, columns[column, p.A], columns[column, p.B], numbers
            )
        elif op == p.INT8:
            value = load_u8(buf, pos)
            at = write_long(out, at, value - ((value >> 7) << 8))
        elif op == p.UINT8:
            at = write_long(out, at, load_u8(buf, pos))
        elif op == p.INT16:
            value = load_u16(buf, pos)
            at = write_long(out, at, value - ((value >> 15) << 16))
        elif op == p.UINT16:
            at = write_long(out, at, load_u16(buf, pos))
        elif op == p.INT24:
            value = load_u16(buf, pos) | (load_u8(buf, pos + 2) << 16)
            at = write_long(out, at, value - ((value >> 23) << 24))
        elif op == p.UINT24:
            at = write_long(out, at, load_u16(buf, pos) | (load_u8(buf, pos + 2) << 16))
        elif op == p.UINT32:
            at = write_long(out, at, load_u32(buf, pos))
        elif op == p.UINT64:
            at = write_unsigned_bytes(out, at, load_i64(buf, pos))
        elif op == p.YEAR:
            value = load_u8(buf, pos)
            at = write_long(out, at, value + 1900 if value else 0)
        elif op == p.RAW:
            copy(out, at, buf, pos, length)
            at += length
        elif op == p.DATETIME2:
            at = _end_text(out, at, write_datetime2(out, at + 1, buf, pos, columns[column, p.A]))
        elif op == p.TIMESTAMP2:
            at = _end_text(out, at, write_timestamp2(out, at + 1, buf, pos, columns[column, p.A]))
        elif op == p.DATE:
            at = _end_text(out, at, write_date(out, at + 1, buf, pos))
        elif op == p.TIME2:
            at = _end_text(out, at, write_time2(out, at + 1, buf, pos, columns[column, p.A]))
        elif op == p.BYTES or op == p.BIT:
            at = write_bytes(out, at, buf, pos, length)
        elif op == p.BYTES_PADDED:
            full = columns[column, p.A]
            if length > full:
                return BROKEN, index
            at = write_long(out, at, full)
            copy(out, at, buf, pos, length)
            for place in range(length, full):
                store_u8(out, at + place, 0)
            at += full
        elif op == p.ENUM:
            value = load_u8(buf, pos) if length == 1 else load_u16(buf, pos)
            label = columns[column, p.A] + value - 1
            if 0 < value <= columns[column, p.B] and labels[label, 1] > 0:
                size = labels[label, 1] - labels[label, 0]
                copy(out, start, blob, labels[label, 0], size)
                at = start + size
            else:
                store_u8(out, start, columns[column, p.OTHER])
                at = write_long(out, at, value)
        elif op == p.SET:
            at = _write_set(out, at, start, buf, pos, length, columns, column, blob, labels)
        elif op == p.JSON:
            at = _write_json_text(out, at, limit, buf, pos, length, numbers)
            if at < 0:
                return at, index
        elif op == p.TEXT_CONVERTED:
            at = _write_converted(
                out,
                at,
                start,
                columns[column, p.OTHER],
                buf,
                pos,
                length,
                columns[column, p.A],
                columns[column, p.B],
                columns[column, p.C],
                codes,
                columns[column, p.D],
            )
        elif op == p.COMPRESSED:
            at = _write_compressed(
                out, at, start, limit, buf, pos, length, columns, column, codes, scratch
            )
            if at < 0:
                return at, index
        elif op == p.OLD_TIME:
            at = _end_text(out, at, write_old_time(out, at + 1, buf, pos))
        elif op == p.OLD_DATETIME:
            at = _end_text(out, at, write_old_datetime(out, at + 1, buf, pos))
        elif op == p.OLD_TIMESTAMP:
            at = _end_text(out, at, write_old_timestamp(out, at + 1, buf, pos))
        else:
            return BROKEN, index
        if at < 0:
            return BROKEN, index
        pos += length
        key = columns[column, p.KEY]
        if key >= 0:
            key_spans[2 * key] = start
            key_spans[2 * key + 1] = at
    return at, pos


@compiled
def _end_text(out: Bytes, at: int, end: int) -> int:
    """Write the length (below 64) of a text into the byte before the text."""
    if end >= 0:
        store_u8(out, at, (end - at - 1) << 1)
    return end


@compiled
def _shift_text(out: Bytes, at: int, body: int, end: int) -> int:
    """Write the length of the text from `body` to `end` at `at`, and move the text after it."""
    length = end - body
    after = write_long(out, at, length)
    move(out, after, body, length)
    return after + length


@compiled
def _write_set(
    out: Bytes,
    at: int,
    start: int,
    buf: Bytes,
    pos: int,
    length: int,
    columns: Table,
    column: int,
    blob: Bytes,
    labels: Table,
) -> int:
    bits = 0
    for place in range(length):
        bits |= load_u8(buf, pos + place) << (8 * place)
    first, count = columns[column, p.A], columns[column, p.B]
    is_text = count == 64 or (bits >> count) == 0
    size = 0
    for place in range(count):
        if (bits >> place) & 1:
            if labels[first + place, 1] < 0 or (
                columns[column, p.C] == 0 and labels[first + place, 0] == labels[first + place, 1]
            ):
                is_text = False
            size += labels[first + place, 1] - labels[first + place, 0] + 1
    if not is_text:
        store_u8(out, start, columns[column, p.OTHER])
        return write_long(out, at, bits)
    at = write_long(out, at, size - 1 if size else 0)
    is_first = True
    for place in range(count):
        if (bits >> place) & 1:
            if not is_first:
                store_u8(out, at, COMMA)
                at += 1
            is_first = False
            size = labels[first + place, 1] - labels[first + place, 0]
            copy(out, at, blob, labels[first + place, 0], size)
            at += size
    return at


@compiled
def _write_json_text(
    out: Bytes, at: int, limit: int, buf: Bytes, pos: int, length: int, numbers: Numbers
) -> int:
    body = at + 5
    end = write_json(out, body, limit, buf, pos, pos + length, numbers)
    if end < 0:
        return end
    if not is_utf8(out, body, end, 4):
        return BROKEN
    return _shift_text(out, at, body, end)


@compiled
def _write_converted(
    out: Bytes,
    at: int,
    start: int,
    other: int,
    buf: Bytes,
    pos: int,
    length: int,
    kind: int,
    first: int,
    second: int,
    codes: Codes,
    has_ascii: int,
) -> int:
    if has_ascii and ascii_length(buf, pos, pos + length) == length:
        return write_bytes(out, at, buf, pos, length)
    body = at + long_size(3 * length)
    end = convert_text(out, body, buf, pos, pos + length, kind, first, second, codes)
    if end < 0:
        store_u8(out, start, other)
        return write_bytes(out, at, buf, pos, length)
    return _shift_text(out, at, body, end)


@compiled
def _write_compressed(
    out: Bytes,
    at: int,
    start: int,
    limit: int,
    buf: Bytes,
    pos: int,
    length: int,
    columns: Table,
    column: int,
    codes: Codes,
    scratch: Bytes,
) -> int:
    """Convert MariaDB's compressed column: an empty value has no byte, any other begins with a header byte.

    header: bits 4-7 the method (0 stored, 8 zlib), bit 3 raw deflate, bits 0-2 bytes of the length, which follows
    big-endian.
    """
    value, size = buf, 0
    if length > 0:
        header = load_u8(buf, pos)
        method = header >> 4
        if method == 0:
            pos += 1
            size = length - 1
        elif method == 8:
            width = header & 7
            if width < 1 or width > 4 or length < 1 + width:
                return BROKEN
            for place in range(width):
                size = (size << 8) | load_u8(buf, pos + 1 + place)
            if size > scratch.size:
                return SCRATCH
            done = inflate(scratch, 0, size, buf, pos + 1 + width, pos + length, header & 8 != 0)
            if done != size:
                return BROKEN
            value, pos = scratch, 0
        else:
            return BROKEN
    if at + 3 * size + 16 > limit:
        return FULL
    kind = columns[column, p.A]
    if kind < 0:
        return write_bytes(out, at, value, pos, size)
    if kind > UTF8MB4:
        first, second = columns[column, p.B], columns[column, p.C]
        return _write_converted(
            out,
            at,
            start,
            columns[column, p.OTHER],
            value,
            pos,
            size,
            kind,
            first,
            second,
            codes,
            0,
        )
    if not is_utf8(value, pos, pos + size, columns[column, p.D]):
        store_u8(out, start, columns[column, p.OTHER])
    return write_bytes(out, at, value, pos, size)


@compiled
def skip_image(
    buf: Bytes, pos: int, end: int, columns: Table, first_column: int, column_count: int
) -> int:
    """The offset after a row image; -1 if it reaches beyond `end`."""
    nulls = pos
    pos += (column_count + 7) >> 3
    if pos > end:
        return -1
    for index in range(column_count):
        if (load_u8(buf, nulls + (index >> 3)) >> (index & 7)) & 1:
            continue
        column = first_column + index
        size = columns[column, p.SIZE]
        if columns[column, p.IS_PREFIXED] != 0:
            if pos + size > end:
                return -1
            size += load_prefix(buf, pos, size)
        pos += size
        if pos > end:
            return -1
    return pos
