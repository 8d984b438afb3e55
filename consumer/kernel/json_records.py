"""Writes the changes of one table as JSON records: ``consumer.format.table_format`` makes the arrays.

A record of ``debezium-json`` is made of pieces of ``fixed`` and of what differs from record to record:

    VALUE image AFTER image SOURCE version " connector " name… ts_ms SNAPSHOT false DB ts_us TS_NS ts_ns TABLE server_id
    GTID "gtid" FILE "file" POS pos ROW row END_SOURCE transaction OP c OP_END ts_ms TS_US ts_us TS_NS ts_ns TAIL

Everything from ``SOURCE`` to ``POS`` is the same for many records of one source transaction. It is copied from the
record before, if the bytes of the set topic that it is made of are the same. So are the times at the end.

Lines of the result: ``KEY_START`` … ``RECORD``. A start of -1: no key, or no value (a tombstone). ``PART`` numbers the
records of one change: 0, of a tombstone 1, of the row under a new key 2.
"""

import numpy as np

from consumer.kernel import changes as view
from consumer.kernel.compiled import Bytes, Hashes, Ints, Offsets, compiled, compiled_plain, int64
from consumer.kernel.digits import WORK, put_signed
from consumer.kernel.json_text import put_bytes, put_string
from consumer.kernel.json_values import (
    CELL,
    OK,
    TEXT,
    TEXT_END,
    VALUE_BYTES_MAX,
    put_null,
    put_value,
)
from consumer.kernel.partitions import murmur2
from consumer.kernel.walk import COMMIT_MS, FIRST_CELL, GTID_END, GTID_START, NULL, read_long
from millrace.characters import CLOSING_BRACE, ZERO

KEY_START, KEY_END, VALUE_START, VALUE_END, SEQ, PART, RECORD = range(7)
LINE_WIDTH = 7

# pieces of ``fixed``: their starts and ends
(
    KEY_TAIL,
    VALUE,
    AFTER,
    SOURCE,
    CONNECTOR,
    NAME,
    SNAPSHOT,
    DB,
    TS_NS,
    TABLE,
    GTID,
    FILE,
    POS,
    ROW,
    END_SOURCE,
    TRANSACTION,
    TOTAL_ORDER,
    COLLECTION_ORDER,
    OP,
    OP_END,
    TS_US,
    ROW_TAIL,
    TAIL,
) = range(23)
PIECES_MAX = 23

IS_ENVELOPE, HAS_TOMBSTONES = 0, 1  # settings
SETTINGS = 2

_CREATE, _UPDATE, _DELETE, _SNAPSHOT_ROW = 99, 117, 100, 114
_FALSE = np.frombuffer(b"false", np.uint8)
_INCREMENTAL = np.frombuffer(b"incremental", np.uint8)

# what was written last: where the source is in the topic's bytes and in those written, and the times
_SOURCE, _SOURCE_SIZE, _HEAD, _HEAD_END, _HEAD_OP, _TIMES, _TIMES_END, _TIMES_MS = range(8)


@compiled_plain
def measure(cells: Ints, lines: Ints, width: int, keys: int, fixed: int, offsets: Offsets) -> int:
    """An upper limit of the bytes that the changes need. ``fixed``: fixed texts in a key and a value."""
    total = int64(0)
    for number in range(len(lines)):
        line = lines[number]
        texts = int64(0)
        for image in range(2):
            first = line[view.BEFORE + image]
            if first < 0:
                continue
            for cell in range(first, first + width):
                if cells[cell, 0] > NULL:
                    texts += cells[cell, 2] - cells[cell, 1]
        size = int64(offsets[line[view.RECORD] + 1]) - int64(offsets[line[view.RECORD]])
        # an image and its key; a byte of a text becomes six at most; the bytes of the source are in those of the record
        room = fixed + 6 * (2 * texts + size) + VALUE_BYTES_MAX * (2 * (width + keys) + 32)
        # a change of the key is two records
        total += 2 * room if line[view.OP] == _UPDATE else room
    return total


@compiled_plain
def _put_piece(out: Bytes, at: int, fixed: Bytes, pieces: Ints, piece: int) -> int:
    return put_bytes(out, at, fixed, pieces[piece, 0], pieces[piece, 1])


@compiled_plain
def _put_image(
    out: Bytes,
    at: int,
    data: Bytes,
    cells: Ints,
    first: int,
    columns: Ints,
    fixed: Bytes,
    work: Hashes,
) -> tuple[int, int]:
    """The columns of one image, each with the text before it: (position after it, status)."""
    for number in range(len(columns)):
        at = put_bytes(out, at, fixed, columns[number, TEXT], columns[number, TEXT_END])
        cell = first + columns[number, CELL]
        kind, start, end = cells[cell, 0], cells[cell, 1], cells[cell, 2]
        at, status = put_value(out, at, data, kind, start, end, columns, number, fixed, work)
        if status != OK:
            return at, status
    return at, OK


@compiled_plain
def _skip(data: Bytes, at: int, end: int) -> int:
    """The position after a string."""
    length, at = read_long(data, at, end)
    return at + length


@compiled_plain
def _is_same(data: Bytes, start: int, other: int, length: int) -> bool:
    different = np.uint8(0)
    here, there = np.uint64(start), np.uint64(other)
    for place in range(np.uint64(length)):
        different |= data[here + place] ^ data[there + place]
    return bool(different == 0)


@compiled_plain
def _put_thousands(out: Bytes, at: int, digits: int, digits_end: int, count: int) -> int:
    """Copy the digits of a time and add zeros; the time 0 stays 0."""
    length = digits_end - digits
    at = put_bytes(out, at, out, digits, digits_end)
    if length == 1 and out[digits] == ZERO:
        return at
    for place in range(count):
        out[at + place] = ZERO
    return at + count


@compiled_plain
def _put_source_head(
    out: Bytes,
    at: int,
    data: Bytes,
    start: int,
    end: int,
    fixed: Bytes,
    pieces: Ints,
    op: int,
    commit_ms: int,
) -> int:
    """From the version to the name of the binlog file. ``start``, ``end``: where the record has them.

    The times are those of the commit, as in Debezium: the event's own time has no milliseconds.
    """
    at = _put_piece(out, at, fixed, pieces, SOURCE)
    length, place = read_long(data, start, end)
    at = put_string(out, at, data, place, place + length)
    at = _put_piece(out, at, fixed, pieces, CONNECTOR)
    length, place = read_long(data, place + length, end)
    at = put_string(out, at, data, place, place + length)
    at = _put_piece(out, at, fixed, pieces, NAME)
    place += length
    for _ in range(5):  # name, snapshot, db, table, set
        place = _skip(data, place, end)
    _, place = read_long(data, place, end)
    server_id, place = read_long(data, place, end)
    digits = at
    at = put_signed(out, at, commit_ms)
    digits_end = at
    at = _put_piece(out, at, fixed, pieces, SNAPSHOT)
    if op == _SNAPSHOT_ROW:
        at = put_bytes(out, at, _INCREMENTAL, 0, len(_INCREMENTAL))
    else:
        at = put_bytes(out, at, _FALSE, 0, len(_FALSE))
    at = _put_piece(out, at, fixed, pieces, DB)
    at = _put_thousands(out, at, digits, digits_end, 3)
    at = _put_piece(out, at, fixed, pieces, TS_NS)
    at = _put_thousands(out, at, digits, digits_end, 6)
    at = _put_piece(out, at, fixed, pieces, TABLE)
    at = put_signed(out, at, server_id)
    at = _put_piece(out, at, fixed, pieces, GTID)
    length, place = read_long(data, place, end)
    if length == 0:
        at = put_null(out, at)
    else:
        at = put_string(out, at, data, place, place + length)
    at = _put_piece(out, at, fixed, pieces, FILE)
    length, place = read_long(data, place + length, end)
    at = put_string(out, at, data, place, place + length)
    return _put_piece(out, at, fixed, pieces, POS)


@compiled_plain
def _put_times(out: Bytes, at: int, time: int, fixed: Bytes, pieces: Ints) -> int:
    digits = at
    at = put_signed(out, at, time)
    digits_end = at
    at = _put_piece(out, at, fixed, pieces, TS_US)
    at = _put_thousands(out, at, digits, digits_end, 3)
    at = _put_piece(out, at, fixed, pieces, TS_NS)
    at = _put_thousands(out, at, digits, digits_end, 6)
    return _put_piece(out, at, fixed, pieces, TAIL)


@compiled_plain
def _is_same_key(data: Bytes, cells: Ints, before: int, after: int, keys: Ints) -> bool:
    for number in range(len(keys)):
        a, b = cells[before + keys[number, 0]], cells[after + keys[number, 0]]
        length = a[2] - a[1]
        if a[0] != b[0] or length != b[2] - b[1] or not _is_same(data, a[1], b[1], length):
            return False
    return True


@compiled_plain
def _add_line(
    lines: Ints,
    count: int,
    key: int,
    key_end: int,
    value: int,
    value_end: int,
    change: Ints,
    part: int,
) -> int:
    line = lines[count]
    line[KEY_START] = key
    line[KEY_END] = key_end
    line[VALUE_START] = value
    line[VALUE_END] = value_end
    line[SEQ] = change[view.SEQ]
    line[PART] = part
    line[RECORD] = change[view.RECORD]
    return count + 1


@compiled_plain
def _put_source(
    out: Bytes,
    at: int,
    data: Bytes,
    start: int,
    end: int,
    op: int,
    record: Ints,
    last: Ints,
    fixed: Bytes,
    pieces: Ints,
) -> int:
    """The source of a record that begins at ``start`` in its bytes, up to the transaction."""
    file_end = _skip(data, record[GTID_END], end)
    size = file_end - start
    if (
        size == last[_SOURCE_SIZE]
        and op == last[_HEAD_OP]
        and record[COMMIT_MS] == last[_TIMES_MS]
        and _is_same(data, start, last[_SOURCE], size)
    ):
        at = put_bytes(out, at, out, last[_HEAD], last[_HEAD_END])
    else:
        last[_SOURCE], last[_SOURCE_SIZE], last[_HEAD], last[_HEAD_OP] = start, size, at, op
        at = _put_source_head(out, at, data, start, end, fixed, pieces, op, record[COMMIT_MS])
        last[_HEAD_END] = at
    pos, place = read_long(data, file_end, end)
    at = put_signed(out, at, pos)
    at = _put_piece(out, at, fixed, pieces, ROW)
    row, place = read_long(data, place, end)
    at = put_signed(out, at, row)
    return _put_piece(out, at, fixed, pieces, END_SOURCE)


@compiled_plain
def _put_transaction(
    out: Bytes,
    at: int,
    data: Bytes,
    record: Ints,
    total: int,
    among_table: int,
    fixed: Bytes,
    pieces: Ints,
) -> int:
    at = _put_piece(out, at, fixed, pieces, TRANSACTION)
    at = put_string(out, at, data, record[GTID_START], record[GTID_END])
    at = _put_piece(out, at, fixed, pieces, TOTAL_ORDER)
    at = put_signed(out, at, total)
    at = _put_piece(out, at, fixed, pieces, COLLECTION_ORDER)
    at = put_signed(out, at, among_table)
    out[at] = CLOSING_BRACE
    return at + 1


@compiled_plain
def _put_images(
    out: Bytes,
    at: int,
    data: Bytes,
    cells: Ints,
    before: int,
    after: int,
    columns: Ints,
    fixed: Bytes,
    pieces: Ints,
    work: Hashes,
) -> tuple[int, int]:
    """Both images; -1 for none."""
    at = _put_piece(out, at, fixed, pieces, VALUE)
    if before < 0:
        at = put_null(out, at)
    else:
        at, status = _put_image(out, at, data, cells, before, columns, fixed, work)
        if status != OK:
            return at, status
        at = _put_piece(out, at, fixed, pieces, ROW_TAIL)
    at = _put_piece(out, at, fixed, pieces, AFTER)
    if after < 0:
        return put_null(out, at), OK
    at, status = _put_image(out, at, data, cells, after, columns, fixed, work)
    return _put_piece(out, at, fixed, pieces, ROW_TAIL), status


@compiled_plain
def _put_keys(
    out: Bytes,
    at: int,
    data: Bytes,
    cells: Ints,
    change: Ints,
    keys: Ints,
    fixed: Bytes,
    pieces: Ints,
    places: Ints,
    work: Hashes,
) -> tuple[int, int]:
    """The key of a change, and the old one if an update changes it: (position, status).

    ``places``: start and end of the key, and of the old key; -1 for none.
    """
    op, before, after = change[view.OP], change[view.BEFORE], change[view.AFTER]
    places[:] = -1
    if len(keys) == 0:
        return at, OK
    if op == _UPDATE and not _is_same_key(data, cells, before, after, keys):
        places[2] = at
        at, status = _put_image(out, at, data, cells, before, keys, fixed, work)
        if status != OK:
            return at, status
        at = _put_piece(out, at, fixed, pieces, KEY_TAIL)
        places[3] = at
    places[0] = at
    first = before if op == _DELETE else after
    at, status = _put_image(out, at, data, cells, first, keys, fixed, work)
    at = _put_piece(out, at, fixed, pieces, KEY_TAIL)
    places[1] = at
    size = places[1] - places[0]
    if places[3] - places[2] == size and _is_same(out, places[0], places[2], size):
        places[2] = -1  # different bytes, but the same for the format
    return at, status


@compiled
def count_events(
    out: Bytes,
    data: Bytes,
    cells: Ints,
    changes: Ints,
    keys: Ints,
    fixed: Bytes,
    pieces: Ints,
    counts: Ints,
) -> None:
    """How many events of Debezium each change is: two if it changes the key. ``out`` is for keys, as in ``encode``."""
    places = np.empty(4, np.int64)
    work = np.empty(WORK, np.uint64)
    for number in range(len(changes)):
        change = changes[number]
        counts[number] = 1
        if change[view.OP] == _UPDATE:
            _put_keys(out, 0, data, cells, change, keys, fixed, pieces, places, work)
            counts[number] = 2 if places[2] >= 0 else 1


@compiled
def _is_owned(out: Bytes, key: int, key_end: int, owned: Bytes) -> bool:
    if key < 0:
        return False
    hashed = murmur2(out, key, key_end) & int64(0x7FFFFFFF)
    return bool(owned[hashed % int64(len(owned))])


@compiled
def encode(
    out: Bytes,
    data: Bytes,
    cells: Ints,
    changes: Ints,
    topic: Bytes,
    offsets: Offsets,
    records: Ints,
    walked: Ints,
    width: int,
    columns: Ints,
    keys: Ints,
    fixed: Bytes,
    pieces: Ints,
    settings: Ints,
    orders: Ints,
    owned: Bytes,
    lines: Ints,
) -> tuple[int, int, int]:
    """Write all changes: (bytes written, lines, status). ``lines`` must have three for each change.

    ``data`` and ``cells`` are those of the changes. The other arrays are those of the batch: ``topic`` with its
    ``offsets``, the ``records`` and cells of ``walk``. ``orders`` has the order of each change in its source
    transaction and among those of its table, 0 for no transaction. ``owned``: for each partition, chosen by the key,
    whether its records are wanted; a change without a wanted one is left out. Empty: all are. If the status is not
    ``OK``, a value of the change with the number ``lines`` has no form.
    """
    at, count = int64(0), int64(0)
    last = np.full(8, -1, np.int64)
    places = np.empty(4, np.int64)
    work = np.empty(WORK, np.uint64)
    for number in range(len(changes)):
        change = changes[number]
        op, before, after = change[view.OP], change[view.BEFORE], change[view.AFTER]
        begin = at
        at, status = _put_keys(out, at, data, cells, change, keys, fixed, pieces, places, work)
        if status != OK:
            return at, number, status
        key, key_end, old_key, old_key_end = places[0], places[1], places[2], places[3]
        moves = old_key >= 0
        if len(owned) > 0 and not (
            _is_owned(out, key, key_end, owned) or _is_owned(out, old_key, old_key_end, owned)
        ):
            at = begin
            continue
        if settings[IS_ENVELOPE] == 0:
            if moves:
                count = _add_line(lines, count, old_key, old_key_end, -1, -1, change, 0)
            value, value_end = int64(-1), int64(-1)
            if op != _DELETE:
                value = at
                at, status = _put_image(out, at, data, cells, after, columns, fixed, work)
                at = _put_piece(out, at, fixed, pieces, ROW_TAIL)
                if status != OK:
                    return at, number, status
                value_end = at
            part = int64(1) if moves else int64(0)
            count = _add_line(lines, count, key, key_end, value, value_end, change, part)
            continue
        record = records[change[view.RECORD]]
        end = int64(offsets[change[view.RECORD] + 1])
        first = record[FIRST_CELL]
        if walked[first + width, 0] >= 0:
            source = walked[first + 2 * width - 1, 2]
        else:
            source = walked[first + width - 1, 2] + 1  # after the branch of no after image
        for event in range(2 if moves else 1):
            shown = op
            if moves:
                shown = int64(_DELETE) if event == 0 else int64(_CREATE)
            value = at
            at, status = _put_images(
                out,
                at,
                data,
                cells,
                before if shown in (_UPDATE, _DELETE) else int64(-1),
                after if shown != _DELETE else int64(-1),
                columns,
                fixed,
                pieces,
                work,
            )
            if status != OK:
                return at, number, status
            at = _put_source(out, at, topic, source, end, op, record, last, fixed, pieces)
            if orders[number, 0] == 0:
                at = put_null(out, at)
            else:
                total, among = orders[number, 0] + event, orders[number, 1] + event
                at = _put_transaction(out, at, topic, record, total, among, fixed, pieces)
            at = _put_piece(out, at, fixed, pieces, OP)
            out[at] = shown
            at = _put_piece(out, at + 1, fixed, pieces, OP_END)
            if record[COMMIT_MS] == last[_TIMES_MS] and last[_TIMES] >= 0:
                at = put_bytes(out, at, out, last[_TIMES], last[_TIMES_END])
            else:
                last[_TIMES], last[_TIMES_MS] = at, record[COMMIT_MS]
                at = _put_times(out, at, record[COMMIT_MS], fixed, pieces)
                last[_TIMES_END] = at
            if moves and event == 0:
                count = _add_line(lines, count, old_key, old_key_end, value, at, change, 0)
                if settings[HAS_TOMBSTONES] == 1:
                    count = _add_line(lines, count, old_key, old_key_end, -1, -1, change, 1)
            else:
                part = int64(2) if moves else int64(0)
                count = _add_line(lines, count, key, key_end, value, at, change, part)
                if shown == _DELETE and settings[HAS_TOMBSTONES] == 1 and key >= 0:
                    count = _add_line(lines, count, key, key_end, -1, -1, change, 1)
    return at, count, OK
