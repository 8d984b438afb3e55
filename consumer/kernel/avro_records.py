"""Writes the changes of one table as records in Avro's encoding: ``consumer.format.avro_format`` makes the arrays.

A key and a value begin with Confluent's frame: ``00``, and the schema's ID in four bytes, the highest first. Layouts of
a value; images are a union with null first:

    DEBEZIUM   before after source transaction op ts_ms ts_us ts_ns
               source: version connector name ts_ms snapshot db sequence ts_us ts_ns table server_id gtid file pos row
               thread query; nullable fields are a union with null first, but ``snapshot`` has null last
    OWN        before after source op ts_ms transaction, with the fields of the set topic (``kernel.walk``)

What the set topic has in the same encoding is copied.
"""

import numpy as np

from millrace.consumer.kernel import changes as view
from millrace.consumer.kernel.avro_values import put_long, put_text, put_value
from millrace.consumer.kernel.compiled import (
    Bytes,
    Hashes,
    Ints,
    Offsets,
    compiled,
    compiled_plain,
    int64,
)
from millrace.consumer.kernel.digits import WORK
from millrace.consumer.kernel.json_text import put_bytes
from millrace.consumer.kernel.json_values import CELL, OK, TEXT, TEXT_END
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
    is_same_key,
    put_piece,
    set_other,
    skip,
    source_start,
)
from millrace.consumer.kernel.walk import COMMIT_MS, GTID_END, GTID_START, read_long

# pieces of ``fixed``: the frames, the constants after the last column, and texts of the source with their length
KEY_FRAME, VALUE_FRAME, ROW_TAIL, NAME, DB, TABLE = range(KEY_TAIL + 1, KEY_TAIL + 7)
PIECES_MAX = KEY_TAIL + 7

LAYOUT, HAS_TOMBSTONES = 0, 1  # settings
SETTINGS = 2
DEBEZIUM, OWN = 0, 1

_FALSE = np.frombuffer(b"false", np.uint8)
_INCREMENTAL = np.frombuffer(b"incremental", np.uint8)
_US, _NS = 1000, 1_000_000  # in a millisecond


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
    """The columns of one image, each with the constants before it: (position after it, status)."""
    for number in range(len(columns)):
        start, end = columns[number, TEXT], columns[number, TEXT_END]
        if end > start:
            at = put_bytes(out, at, fixed, start, end)
        cell = first + columns[number, CELL]
        kind, start, end = cells[cell, 0], cells[cell, 1], cells[cell, 2]
        at, status = put_value(out, at, data, kind, start, end, columns, number, fixed, work)
        if status != OK:
            return at, status
    return at, OK


@compiled_plain
def _put_key(
    out: Bytes,
    at: int,
    data: Bytes,
    cells: Ints,
    first: int,
    keys: Ints,
    fixed: Bytes,
    pieces: Ints,
    work: Hashes,
) -> tuple[int, int]:
    at = put_piece(out, at, fixed, pieces, KEY_FRAME)
    at, status = _put_image(out, at, data, cells, first, keys, fixed, work)
    return put_piece(out, at, fixed, pieces, KEY_TAIL), status


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
    if op == UPDATE and not is_same_key(data, cells, before, after, keys):
        places[2] = at
        at, status = _put_key(out, at, data, cells, before, keys, fixed, pieces, work)
        if status != OK:
            return at, status
        places[3] = at
    places[0] = at
    first = before if op == DELETE else after
    at, status = _put_key(out, at, data, cells, first, keys, fixed, pieces, work)
    places[1] = at
    size = places[1] - places[0]
    if places[3] - places[2] == size and is_same(out, places[0], places[2], size):
        places[2] = -1  # different bytes, but the same for the format
    return at, status


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
    at = put_piece(out, at, fixed, pieces, VALUE_FRAME)
    for image in range(2):
        first = before if image == 0 else after
        if first < 0:
            out[at] = 0
            at += 1
            continue
        out[at] = 2
        at, status = _put_image(out, at + 1, data, cells, first, columns, fixed, work)
        if status != OK:
            return at, status
        at = put_piece(out, at, fixed, pieces, ROW_TAIL)
    return at, OK


@compiled_plain
def _put_optional_long(out: Bytes, at: int, value: int) -> int:
    """A number in a union with null first."""
    out[at] = 2
    return put_long(out, at + 1, value)


@compiled_plain
def _put_debezium_source(
    out: Bytes,
    at: int,
    data: Bytes,
    start: int,
    end: int,
    op: int,
    commit_ms: int,
    fixed: Bytes,
    pieces: Ints,
) -> int:
    """The source of a record whose own begins at ``start``. The times are those of the commit, as in Debezium."""
    place = skip(data, skip(data, start, end), end)
    at = put_bytes(out, at, data, start, place)  # version, connector
    at = put_piece(out, at, fixed, pieces, NAME)
    at = put_long(out, at, commit_ms)
    out[at] = 0  # the branch of ``snapshot``
    if op == READ:
        at = put_text(out, at + 1, _INCREMENTAL, 0, len(_INCREMENTAL))
    else:
        at = put_text(out, at + 1, _FALSE, 0, len(_FALSE))
    at = put_piece(out, at, fixed, pieces, DB)
    out[at] = 0  # sequence
    at = _put_optional_long(out, at + 1, commit_ms * _US)
    at = _put_optional_long(out, at, commit_ms * _NS)
    at = put_piece(out, at, fixed, pieces, TABLE)
    for _ in range(5):  # name, snapshot, db, table, set
        place = skip(data, place, end)
    _, server = read_long(data, place, end)
    _, place = read_long(data, server, end)
    at = put_bytes(out, at, data, server, place)
    length, gtid = read_long(data, place, end)
    if length == 0:
        out[at] = 0
        at += 1
    else:
        out[at] = 2
        at = put_bytes(out, at + 1, data, place, gtid + length)
    file = gtid + length
    _, place = read_long(data, skip(data, file, end), end)
    _, place = read_long(data, place, end)
    at = put_bytes(out, at, data, file, place)  # file, pos, row
    out[at] = 0  # thread
    out[at + 1] = 0  # query
    return at + 2


@compiled_plain
def _put_debezium_tail(
    out: Bytes,
    at: int,
    data: Bytes,
    record: Ints,
    total: int,
    among_table: int,
    op: int,
) -> int:
    """The transaction (none if ``total`` is 0), the operation, and the times."""
    if total == 0:
        out[at] = 0
        at += 1
    else:
        out[at] = 2
        at = put_text(out, at + 1, data, record[GTID_START], record[GTID_END])
        at = put_long(out, at, total)
        at = put_long(out, at, among_table)
    out[at] = 2  # one letter
    out[at + 1] = op
    at = _put_optional_long(out, at + 2, record[COMMIT_MS])
    at = _put_optional_long(out, at, record[COMMIT_MS] * _US)
    return _put_optional_long(out, at, record[COMMIT_MS] * _NS)


@compiled_plain
def _put_own_tail(
    out: Bytes,
    at: int,
    data: Bytes,
    start: int,
    end: int,
    op: int,
    fixed: Bytes,
    pieces: Ints,
) -> int:
    """Everything after the images: as the set topic has it from ``start`` to ``end``, under the names of the view."""
    place = start
    for _ in range(4):  # version, connector, name, snapshot
        place = skip(data, place, end)
    at = put_bytes(out, at, data, start, place)
    at = put_piece(out, at, fixed, pieces, DB)
    at = put_piece(out, at, fixed, pieces, TABLE)
    first = skip(data, skip(data, place, end), end)
    place = skip(data, first, end)  # set
    for _ in range(2):  # ts_ms, server_id
        _, place = read_long(data, place, end)
    place = skip(data, skip(data, place, end), end)  # gtid, file
    for _ in range(4):  # pos, row, event_flags, seq
        _, place = read_long(data, place, end)
    at = put_bytes(out, at, data, first, place)
    out[at] = 2
    out[at + 1] = op
    return put_bytes(out, at + 2, data, place + 2, end)


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
            _put_keys(out, 0, data, cells, change, keys, fixed, pieces, places, work)
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
    """Write all changes: (bytes written, lines, status). The arguments are those of ``json_records.encode``."""
    at, count = int64(0), int64(0)
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
            is_owned(out, key, key_end, owned) or is_owned(out, old_key, old_key_end, owned)
        ):
            at = begin
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
            if settings[LAYOUT] == OWN:
                at = _put_own_tail(out, at, topic, source, end, shown, fixed, pieces)
            else:
                at = _put_debezium_source(
                    out, at, topic, source, end, op, record[COMMIT_MS], fixed, pieces
                )
                total, among = orders[number, 0], orders[number, 1] + event
                if total > 0:
                    total += event
                at = _put_debezium_tail(out, at, topic, record, total, among, shown)
            if moves and event == 0:
                count = add_line(lines, count, old_key, old_key_end, value, at, change, 0)
                if settings[HAS_TOMBSTONES] == 1:
                    count = add_line(lines, count, old_key, old_key_end, -1, -1, change, 1)
                if settings[LAYOUT] == DEBEZIUM:
                    set_other(lines[count - 1], NEW_KEY, key, key_end)
                    if settings[HAS_TOMBSTONES] == 1:
                        set_other(lines[count - 2], NEW_KEY, key, key_end)
            else:
                part = int64(2) if moves else int64(0)
                count = add_line(lines, count, key, key_end, value, at, change, part)
                if moves and settings[LAYOUT] == DEBEZIUM:
                    set_other(lines[count - 1], OLD_KEY, old_key, old_key_end)
                if shown == DELETE and settings[HAS_TOMBSTONES] == 1 and key >= 0:
                    count = add_line(lines, count, key, key_end, -1, -1, change, 1)
    return at, count, OK
