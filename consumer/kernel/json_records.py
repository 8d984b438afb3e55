"""Writes the changes of one table as JSON records: ``consumer.format.table_format`` makes the arrays.

A record of ``debezium-json`` is made of pieces of ``fixed`` and of what differs from record to record:

    VALUE image AFTER image SOURCE version " connector " name… ts_ms SNAPSHOT false DB ts_us TS_NS ts_ns TABLE server_id
    GTID "gtid" FILE "file" POS pos ROW row END_SOURCE transaction OP c OP_END ts_ms TS_US ts_us TS_NS ts_ns TAIL

Everything from ``SOURCE`` to ``POS`` is the same for many records of one source transaction. It is copied from the
record before, if the bytes of the set topic that it is made of are the same. So are the times at the end.

Lines of the result: see ``record_parts``. ``PART``: 0, of a tombstone 1, of the row under a new key 2.
"""

import numpy as np

from millrace.characters import CLOSING_BRACE, ZERO
from millrace.consumer.kernel import changes as view
from millrace.consumer.kernel.compiled import (
    Bytes,
    Hashes,
    Ints,
    Offsets,
    compiled,
    compiled_plain,
    int64,
)
from millrace.consumer.kernel.digits import WORK, put_signed
from millrace.consumer.kernel.json_text import put_bytes, put_string
from millrace.consumer.kernel.json_values import OK, put_null
from millrace.consumer.kernel.record_parts import (
    CREATE,
    DELETE,
    KEY_TAIL,
    NEW_KEY,
    OLD_KEY,
    READ,
    UPDATE,
    add_line,
    is_owned,
    is_same,
    put_image,
    put_keys,
    put_piece,
    set_other,
    skip,
    source_start,
)
from millrace.consumer.kernel.walk import COMMIT_MS, GTID_END, GTID_START, read_long

# pieces of ``fixed``: their starts and ends
(
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
) = range(KEY_TAIL + 1, KEY_TAIL + 23)
PIECES_MAX = 23

# settings; the last two: the bytes before and after the payload of a key, which are its schema
IS_ENVELOPE, HAS_TOMBSTONES, KEY_LEAD, KEY_TRAIL = range(4)
SETTINGS = 4

_FALSE = np.frombuffer(b"false", np.uint8)
_INCREMENTAL = np.frombuffer(b"incremental", np.uint8)

# what was written last: where the source is in the topic's bytes and in those written, and the times
_SOURCE, _SOURCE_SIZE, _HEAD, _HEAD_END, _HEAD_OP, _TIMES, _TIMES_END, _TIMES_MS = range(8)


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
    at = put_piece(out, at, fixed, pieces, SOURCE)
    length, place = read_long(data, start, end)
    at = put_string(out, at, data, place, place + length)
    at = put_piece(out, at, fixed, pieces, CONNECTOR)
    length, place = read_long(data, place + length, end)
    at = put_string(out, at, data, place, place + length)
    at = put_piece(out, at, fixed, pieces, NAME)
    place += length
    for _ in range(5):  # name, snapshot, db, table, set
        place = skip(data, place, end)
    _, place = read_long(data, place, end)
    server_id, place = read_long(data, place, end)
    digits = at
    at = put_signed(out, at, commit_ms)
    digits_end = at
    at = put_piece(out, at, fixed, pieces, SNAPSHOT)
    if op == READ:
        at = put_bytes(out, at, _INCREMENTAL, 0, len(_INCREMENTAL))
    else:
        at = put_bytes(out, at, _FALSE, 0, len(_FALSE))
    at = put_piece(out, at, fixed, pieces, DB)
    at = _put_thousands(out, at, digits, digits_end, 3)
    at = put_piece(out, at, fixed, pieces, TS_NS)
    at = _put_thousands(out, at, digits, digits_end, 6)
    at = put_piece(out, at, fixed, pieces, TABLE)
    at = put_signed(out, at, server_id)
    at = put_piece(out, at, fixed, pieces, GTID)
    length, place = read_long(data, place, end)
    if length == 0:
        at = put_null(out, at)
    else:
        at = put_string(out, at, data, place, place + length)
    at = put_piece(out, at, fixed, pieces, FILE)
    length, place = read_long(data, place + length, end)
    at = put_string(out, at, data, place, place + length)
    return put_piece(out, at, fixed, pieces, POS)


@compiled_plain
def _put_times(out: Bytes, at: int, time: int, fixed: Bytes, pieces: Ints) -> int:
    digits = at
    at = put_signed(out, at, time)
    digits_end = at
    at = put_piece(out, at, fixed, pieces, TS_US)
    at = _put_thousands(out, at, digits, digits_end, 3)
    at = put_piece(out, at, fixed, pieces, TS_NS)
    at = _put_thousands(out, at, digits, digits_end, 6)
    return put_piece(out, at, fixed, pieces, TAIL)


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
    file_end = skip(data, record[GTID_END], end)
    size = file_end - start
    if (
        size == last[_SOURCE_SIZE]
        and op == last[_HEAD_OP]
        and record[COMMIT_MS] == last[_TIMES_MS]
        and is_same(data, start, last[_SOURCE], size)
    ):
        at = put_bytes(out, at, out, last[_HEAD], last[_HEAD_END])
    else:
        last[_SOURCE], last[_SOURCE_SIZE], last[_HEAD], last[_HEAD_OP] = start, size, at, op
        at = _put_source_head(out, at, data, start, end, fixed, pieces, op, record[COMMIT_MS])
        last[_HEAD_END] = at
    pos, place = read_long(data, file_end, end)
    at = put_signed(out, at, pos)
    at = put_piece(out, at, fixed, pieces, ROW)
    row, place = read_long(data, place, end)
    at = put_signed(out, at, row)
    return put_piece(out, at, fixed, pieces, END_SOURCE)


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
    at = put_piece(out, at, fixed, pieces, TRANSACTION)
    at = put_string(out, at, data, record[GTID_START], record[GTID_END])
    at = put_piece(out, at, fixed, pieces, TOTAL_ORDER)
    at = put_signed(out, at, total)
    at = put_piece(out, at, fixed, pieces, COLLECTION_ORDER)
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
    at = put_piece(out, at, fixed, pieces, VALUE)
    if before < 0:
        at = put_null(out, at)
    else:
        at, status = put_image(out, at, data, cells, before, columns, fixed, work)
        if status != OK:
            return at, status
        at = put_piece(out, at, fixed, pieces, ROW_TAIL)
    at = put_piece(out, at, fixed, pieces, AFTER)
    if after < 0:
        return put_null(out, at), OK
    at, status = put_image(out, at, data, cells, after, columns, fixed, work)
    return put_piece(out, at, fixed, pieces, ROW_TAIL), status


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
        if change[view.OP] == UPDATE:
            put_keys(out, 0, data, cells, change, keys, fixed, pieces, places, work)
            counts[number] = 2 if places[2] >= 0 else 1


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
        at, status = put_keys(out, at, data, cells, change, keys, fixed, pieces, places, work)
        if status != OK:
            return at, number, status
        key, key_end, old_key, old_key_end = places[0], places[1], places[2], places[3]
        moves = old_key >= 0
        if len(owned) > 0 and not (
            is_owned(out, key, key_end, owned) or is_owned(out, old_key, old_key_end, owned)
        ):
            at = begin
            continue
        if settings[IS_ENVELOPE] == 0:
            if moves:
                count = add_line(lines, count, old_key, old_key_end, -1, -1, change, 0)
            value, value_end = int64(-1), int64(-1)
            if op != DELETE:
                value = at
                at, status = put_image(out, at, data, cells, after, columns, fixed, work)
                at = put_piece(out, at, fixed, pieces, ROW_TAIL)
                if status != OK:
                    return at, number, status
                value_end = at
            part = int64(1) if moves else int64(0)
            count = add_line(lines, count, key, key_end, value, value_end, change, part)
            continue
        record = records[change[view.RECORD]]
        end = int64(offsets[change[view.RECORD] + 1])
        source = source_start(walked, record, width)
        for event in range(2 if moves else 1):
            shown = op
            if moves:
                shown = int64(DELETE) if event == 0 else int64(CREATE)
            value = at
            at, status = _put_images(
                out,
                at,
                data,
                cells,
                before if shown in (UPDATE, DELETE) else int64(-1),
                after if shown != DELETE else int64(-1),
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
            at = put_piece(out, at, fixed, pieces, OP)
            out[at] = shown
            at = put_piece(out, at + 1, fixed, pieces, OP_END)
            if record[COMMIT_MS] == last[_TIMES_MS] and last[_TIMES] >= 0:
                at = put_bytes(out, at, out, last[_TIMES], last[_TIMES_END])
            else:
                last[_TIMES], last[_TIMES_MS] = at, record[COMMIT_MS]
                at = _put_times(out, at, record[COMMIT_MS], fixed, pieces)
                last[_TIMES_END] = at
            if moves and event == 0:
                count = add_line(lines, count, old_key, old_key_end, value, at, change, 0)
                other, other_end = key + settings[KEY_LEAD], key_end - settings[KEY_TRAIL]
                set_other(lines[count - 1], NEW_KEY, other, other_end)
                if settings[HAS_TOMBSTONES] == 1:
                    count = add_line(lines, count, old_key, old_key_end, -1, -1, change, 1)
                    set_other(lines[count - 1], NEW_KEY, other, other_end)
            else:
                part = int64(2) if moves else int64(0)
                count = add_line(lines, count, key, key_end, value, at, change, part)
                if moves:
                    other = old_key + settings[KEY_LEAD]
                    set_other(lines[count - 1], OLD_KEY, other, old_key_end - settings[KEY_TRAIL])
                if shown == DELETE and settings[HAS_TOMBSTONES] == 1 and key >= 0:
                    count = add_line(lines, count, key, key_end, -1, -1, change, 1)
    return at, count, OK
