"""One pass over record values that finds the position of every column's value.

A row record (see docs/record.md), after ``00 | schema id``:

    before        union index (0 null, 2 row: zigzag), then the columns
    after         the same
    source        version connector name snapshot db table set: strings; ts_ms server_id: longs; gtid file: strings;
                  pos: long; row event_flags: ints; seq: long
    op            string of one byte: c u d r
    ts_ms         long
    transaction   id: string; total_order: long; last: boolean

A column is described by one line of a program: ``branch_count kind0 kind1 kind2 parameter``. A column with one branch
has no union index. The value's *cell* is ``(kind, start, end)``. ``start`` and ``end`` delimit the content of a
kind with a length, and the encoded number of any other kind. The record table has one column for each of ``SEQ``,
``SLOT`` and so on.

An image has as many cells as its slot's *width*: those of the record's columns, then some that a view adds, which the
walk leaves empty.

A truncated value has the status ``TORN``; nothing is read past its end. A value whose images do not match its operation
has ``BAD_OP``. A value whose db, table and set do not match its schema has ``OTHER_TABLE``: a schema id alone does not
identify the table, because a rebuilt registry may give it to another table.
"""

import numpy as np

from millrace.consumer.kernel.compiled import Bytes, Ints, Offsets, compiled_plain, int64

NULL, INT, DECIMAL, FLOAT, DOUBLE, BYTES, STRING = 0, 1, 2, 3, 4, 5, 6
PROGRAM_WIDTH = 5
CELL_WIDTH = 3

# columns of the record table
SEQ, SLOT, OP, FLAGS, FIRST_CELL, LAST, COMMIT_MS, SCHEMA_ID = 0, 1, 2, 3, 4, 5, 6, 7
HAS_FALLBACK = 8  # a value has another branch than its column's first: raw bytes of a text, an index without a label
GTID_START, GTID_END = 9, 10
# for rows of snapshots; set later, for those in the range of safe mode (``consumer.window.safe_mode``)
IS_SAFE = 11
RECORD_WIDTH = 12

OP_CONTROL, OP_CREATE, OP_UPDATE, OP_DELETE = 0, 99, 117, 100  # the letters of the record
_OP_SNAPSHOT = 114  # becomes an OP_CREATE that IS_SAFE: the target may have the row already
NO_FOREIGN_KEY_CHECKS = 2  # of FLAGS, which are those of the rows event
# or foreign keys were handled in SQL (USE_SQL_FOREIGN_KEY_F, MySQL 9.6): rows that a cascade changed have records
LOGS_CASCADES = NO_FOREIGN_KEY_CHECKS | 16
NO_CONSTRAINT_CHECKS = 128  # MariaDB, with check_constraint_checks off; MySQL does not use the bit
OK, TORN, UNKNOWN_SCHEMA, NOT_FRAMED, BAD_OP, OTHER_TABLE = 0, 1, 2, 3, 4, 5
REASONS = (
    "",
    "it is truncated, or does not match its schema",
    "its schema is unknown",
    "it is not framed",
    "its images do not match its operation",
    "its table is not the one of its schema",
)
DECIMAL_BYTES_MAX = 32  # DECIMAL(65) needs 28; ``kernel.text`` has room for this many


@compiled_plain
def read_long(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """A zigzag number at ``at``: (value, position after it); position -1 if it is truncated."""
    shift = np.uint64(0)
    value = np.uint64(0)
    while at < end and shift < np.uint64(70):
        byte = np.uint64(data[at])
        at += 1
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            signed = int64(value >> np.uint64(1)) ^ -int64(value & np.uint64(1))
            return signed, at
        shift += np.uint64(7)
    return int64(0), -1


@compiled_plain
def _skip_string(data: Bytes, at: int, end: int) -> int:
    if at < 0:
        return -1
    length, at = read_long(data, at, end)
    if at < 0 or length < 0 or length > end - at:
        return -1
    return at + length


@compiled_plain
def _skip_long(data: Bytes, at: int, end: int) -> int:
    if at < 0:
        return -1
    _, at = read_long(data, at, end)
    return at


@compiled_plain
def _skip_same(data: Bytes, at: int, end: int, names: Bytes, start: int, stop: int) -> int:
    """The position after the bytes ``names[start:stop]``; -1 if they differ. No early exit: 16 bytes at a time."""
    length = stop - start
    if at < 0 or length > end - at:
        return -1
    different = np.uint8(0)
    # An index that can be negative would add a branch for each byte.
    here, there = np.uint64(at), np.uint64(start)
    for place in range(np.uint64(length)):
        different |= data[here + place] ^ names[there + place]
    return at + length if different == 0 else -1


@compiled_plain
def walk_row(
    data: Bytes, at: int, end: int, program: Ints, line: int, count: int, cells: Ints, cell: int
) -> tuple[int, int]:
    """Fill ``cells`` from ``cell`` on with one image; (position after it or -1 if truncated, has a fallback)."""
    fallback = int64(0)
    for column in range(count):
        branch = int64(0)
        if program[line + column, 0] > 1:
            branch, at = read_long(data, at, end)
            if at < 0 or branch < 0 or branch >= program[line + column, 0]:
                return -1, fallback
        kind = program[line + column, 1 + branch]
        if branch > 0 and program[line + column, branch] != NULL:
            fallback = int64(1)
        start = at
        if kind == INT:
            _, at = read_long(data, at, end)
        elif kind == FLOAT:
            at += 4
        elif kind == DOUBLE:
            at += 8
        elif kind != NULL:
            length, at = read_long(data, at, end)
            if at < 0 or length < 0 or length > end - at:
                return -1, fallback
            if kind == DECIMAL and length > DECIMAL_BYTES_MAX:
                return -1, fallback
            start = at
            at += length
        if at < 0 or at > end:
            return -1, fallback
        cells[cell + column, 0] = kind
        cells[cell + column, 1] = start
        cells[cell + column, 2] = at
    return at, fallback


@compiled_plain
def _walk_record(
    data: Bytes,
    at: int,
    end: int,
    program: Ints,
    line: int,
    count: int,
    width: int,
    cells: Ints,
    record: Ints,
    names: Bytes,
    names_start: int,
    names_end: int,
) -> int:
    cell = record[FIRST_CELL]
    record[HAS_FALLBACK] = 0
    images = 0
    for image in range(2):
        present, at = read_long(data, at, end)
        if at < 0 or present < 0 or present > 1:
            return TORN
        images |= present << image
        if present == 1:
            at, fallback = walk_row(
                data, at, end, program, line, count, cells, cell + image * width
            )
            if at < 0:
                return TORN
            record[HAS_FALLBACK] |= fallback
        else:
            for column in range(count):
                cells[cell + image * width + column, 0] = -1
    for _ in range(4):
        at = _skip_string(data, at, end)
    same = _skip_same(data, at, end, names, names_start, names_end)
    if same >= 0:
        at = same
    else:
        for _ in range(3):
            at = _skip_string(data, at, end)
        return TORN if at < 0 else OTHER_TABLE
    at = _skip_long(data, at, end)
    at = _skip_long(data, at, end)
    if at < 0:
        return TORN
    length, at = read_long(data, at, end)
    if at < 0 or length < 0 or length > end - at:
        return TORN
    record[GTID_START] = at
    at += length
    record[GTID_END] = at
    at = _skip_string(data, at, end)
    at = _skip_long(data, at, end)
    at = _skip_long(data, at, end)
    if at < 0:
        return TORN
    record[FLAGS], at = read_long(data, at, end)
    if at < 0:
        return TORN
    record[SEQ], at = read_long(data, at, end)
    if at < 0:
        return TORN
    length, at = read_long(data, at, end)
    if at < 0 or length != 1 or at >= end:
        return TORN
    record[OP] = data[at]
    record[COMMIT_MS], at = read_long(data, at + 1, end)
    at = _skip_string(data, at, end)
    at = _skip_long(data, at, end)
    if at < 0 or at + 1 != end:
        return TORN
    record[LAST] = data[at]
    if record[OP] == _OP_SNAPSHOT:
        record[OP] = OP_CREATE
        record[IS_SAFE] = 1
    if record[OP] == OP_CREATE:
        return OK if images == 2 else BAD_OP
    if record[OP] == OP_DELETE:
        return OK if images == 1 else BAD_OP
    return OK if record[OP] == OP_UPDATE and images == 3 else BAD_OP


@compiled_plain
def count_cells(
    data: Bytes, offsets: Offsets, first: int, count: int, ids: Ints, widths: Ints, cells_max: int
) -> tuple[int, int]:
    """The first values whose cells are at most ``cells_max``, but at least one row: (values, their cells).

    A value that ``walk`` can't walk needs no cells.
    """
    cell_count = int64(0)
    for number in range(count):
        start = int64(offsets[first + number])
        if int64(offsets[first + number + 1]) - start < 6 or data[start + 5] > 2:
            continue
        schema_id = _schema_id(data, start)
        place = np.searchsorted(ids, schema_id)
        if place < len(ids) and ids[place] == schema_id:
            needed = 2 * widths[place]
            if cell_count and cell_count + needed > cells_max:
                return number, cell_count
            cell_count += needed
    return count, cell_count


@compiled_plain
def _schema_id(data: Bytes, start: int) -> int:
    return (
        int64(data[start + 1]) << 24
        | int64(data[start + 2]) << 16
        | int64(data[start + 3]) << 8
        | int64(data[start + 4])
    )


@compiled_plain
def walk(
    data: Bytes,
    offsets: Offsets,
    first: int,
    count: int,
    ids: Ints,
    counts: Ints,
    widths: Ints,
    starts: Ints,
    program: Ints,
    names: Bytes,
    records: Ints,
    cells: Ints,
) -> tuple[int, int]:
    """Walk values ``first`` … ``first + count - 1`` of an Arrow binary array.

    The index of an id in ``ids`` (sorted) is its slot. Its program begins at line ``starts[slot, 0]`` and has
    ``counts[slot]`` lines. The db, table and set of its rows, encoded as in a record, begin in ``names`` at
    ``starts[slot, 1]`` and end where those of the next slot begin. ``cells`` must have ``2 * widths`` rows per record
    (see ``count_cells``). Returns (records walked, status); it stops before the first record that can't be walked.
    """
    cell = int64(0)
    for number in range(count):
        start = int64(offsets[first + number])
        end = int64(offsets[first + number + 1])
        record = records[number]
        if end - start < 6 or data[start] != 0:
            return number, NOT_FRAMED
        schema_id = _schema_id(data, start)
        record[SCHEMA_ID] = schema_id
        record[FIRST_CELL] = cell
        if data[start + 5] != 0 and data[start + 5] != 2:
            record[OP] = OP_CONTROL
            record[SLOT] = -1
            continue
        slot = np.searchsorted(ids, schema_id)
        if slot >= len(ids) or ids[slot] != schema_id:
            return number, UNKNOWN_SCHEMA
        record[SLOT] = slot
        status = _walk_record(
            data,
            start + 5,
            end,
            program,
            starts[slot, 0],
            counts[slot],
            widths[slot],
            cells,
            record,
            names,
            starts[slot, 1],
            starts[slot + 1, 1],
        )
        if status != OK:
            return number, status
        cell += 2 * widths[slot]
    return count, OK
