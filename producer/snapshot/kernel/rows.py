"""Finishes the records of a chunk, and finds the keys that records change.

A row record ends with (``schemas.record.row_end``):

    … seq | 02 op | transaction: ts_ms, id (``head_size`` bytes) | total_order | last

Guarantees: the caller gives room for every record and key.
"""

import numpy as np
from numpy.typing import NDArray

from millrace.producer.convert.kernel import program as p
from millrace.producer.convert.kernel.avro import write_long
from millrace.producer.convert.kernel.memory import Bytes, copy, load_u8, store_u8
from millrace.producer.snapshot.kernel.compiled import compiled

Numbers = NDArray[np.int64]
Table = NDArray[np.int64]  # two dimensions
Kept = NDArray[np.bool_]

OP_SNAPSHOT = ord("r")
FRAME_BYTES = 5
GROWTH_BYTES = 10  # a seq may take more bytes than the one that it replaces


@compiled
def varint_start(buf: Bytes, end: int) -> int:
    """The start of the number that ends before `end`."""
    start = end - 1
    while load_u8(buf, start - 1) & 128:
        start -= 1
    return start


@compiled
def stamp_rows(
    source: Bytes,
    source_bounds: Table,
    kept: Kept,
    head_size: int,
    schema_id: int,
    key_schema_id: int,
    seq: int,
    out: Bytes,
    at: int,
    bounds: Table,
    record: int,
) -> tuple[int, int]:
    """Write the kept records with their ids, the op ``r``, `last`, and the numbers after `seq`.

    Returns the offset and the record after them.
    """
    for row in range(source_bounds.shape[0]):
        if not kept[row]:
            continue
        start, end = source_bounds[row, 2], source_bounds[row, 3]
        op_at = varint_start(source, end - 1) - head_size - 1
        seq_at = varint_start(source, op_at - 1)
        first = at
        copy(out, at, source, start, seq_at - start)
        _write_id(out, at, schema_id)
        at += seq_at - start
        seq += 1
        at = write_long(out, at, seq)
        copy(out, at, source, op_at - 1, end - op_at + 1)
        store_u8(out, at + 1, OP_SNAPSHOT)
        at += end - op_at + 1
        store_u8(out, at - 1, 1)
        bounds[record, 2], bounds[record, 3] = first, at
        size = source_bounds[row, 1] - source_bounds[row, 0]
        copy(out, at, source, source_bounds[row, 0], size)
        _write_id(out, at, key_schema_id)
        bounds[record, 0], bounds[record, 1] = at, at + size
        at += size
        record += 1
    return at, record


@compiled
def _write_id(out: Bytes, at: int, schema_id: int) -> None:
    for place in range(4):
        store_u8(out, at + 1 + place, schema_id >> (8 * (3 - place)))


@compiled
def _read_long(buf: Bytes, at: int) -> tuple[int, int]:
    """A zigzag number below 2**63, and the offset after it."""
    value, shift = 0, 0
    while True:
        byte = load_u8(buf, at)
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return (value >> 1) ^ -(value & 1), at


@compiled
def skip_value(buf: Bytes, at: int, columns: Table, column: int) -> int:
    """The offset after the value of a column in an Avro row, with its branch; at -1 past a null."""
    op = columns[column, p.OP]
    is_other = False
    if columns[column, p.BRANCH] >= 0:
        branch = load_u8(buf, at)
        at += 1
        if columns[column, p.NULLABLE] != 0 and branch == 0:
            return at
        is_other = branch == columns[column, p.OTHER]
    if op == p.RAW:
        raw_end: int = at + columns[column, p.SIZE]
        return raw_end
    is_number = op <= p.INT64 or op == p.YEAR
    if op == p.ENUM or op == p.SET:
        is_number = is_other
    length, at = _read_long(buf, at)
    return at if is_number else at + length


@compiled
def changed_keys(
    buf: Bytes,
    bounds: Table,
    columns: Table,
    first_column: int,
    column_count: int,
    key_count: int,
    spans: Numbers,
    out: Bytes,
    ends: Numbers,
) -> int:
    """Write the keys of the row records in `bounds`, without frame, and the end of each into `ends`.

    A record has its record key. An update that changes the key also has that of its before image. Returns the number
    of keys: at most two for each record.
    """
    at, count = 0, 0
    for record in range(bounds.shape[0]):
        key_start, key_end = bounds[record, 0] + FRAME_BYTES, bounds[record, 1]
        size = key_end - key_start
        copy(out, at, buf, key_start, size)
        at += size
        ends[count] = at
        count += 1
        pos = bounds[record, 2] + FRAME_BYTES
        if load_u8(buf, pos) == 0:
            continue
        pos += 1
        for index in range(column_count):
            after = skip_value(buf, pos, columns, first_column + index)
            place = columns[first_column + index, p.KEY]
            if place >= 0:
                spans[2 * place], spans[2 * place + 1] = pos, after
            pos = after
        if load_u8(buf, pos) == 0:  # a delete: its record key is that of the before image
            continue
        before = at
        for place in range(key_count):
            length = spans[2 * place + 1] - spans[2 * place]
            copy(out, at, buf, spans[2 * place], length)
            at += length
        is_same = at - before == size
        if is_same:
            for offset in range(size):
                if load_u8(out, before + offset) != load_u8(buf, key_start + offset):
                    is_same = False
                    break
        if is_same:
            at = before
        else:
            ends[count] = at
            count += 1
    return count
