"""The common parts of the kernels that write records of publish tasks: keys, images, and the lines of the result.

A line is one record: ``KEY_START`` … ``OTHER_END``. A start of -1: no key, or no value (a tombstone). ``PART`` numbers
the records of one change. If the key was changed, each of them may have the other key at ``OTHER_START``, and ``OTHER``
says which it is; else -1.
"""

import numpy as np

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
from millrace.consumer.kernel.json_text import put_bytes
from millrace.consumer.kernel.json_values import (
    CELL,
    OK,
    TEXT,
    TEXT_END,
    VALUE_BYTES_MAX,
    put_value,
)
from millrace.consumer.kernel.partitions import murmur2
from millrace.consumer.kernel.walk import FIRST_CELL, NULL, read_long

KEY_START, KEY_END, VALUE_START, VALUE_END, SEQ, PART, RECORD = range(7)
OTHER, OTHER_START, OTHER_END = range(7, 10)
LINE_WIDTH = 10
NEW_KEY, OLD_KEY = 0, 1  # in OTHER

KEY_TAIL = 0  # the first of all pieces

CREATE, UPDATE, DELETE, READ = 99, 117, 100, 114  # the letters of a change


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
        total += 2 * room if line[view.OP] == UPDATE else room
    return total


@compiled_plain
def put_piece(out: Bytes, at: int, fixed: Bytes, pieces: Ints, piece: int) -> int:
    return put_bytes(out, at, fixed, pieces[piece, 0], pieces[piece, 1])


@compiled_plain
def put_image(
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
def skip(data: Bytes, at: int, end: int) -> int:
    """The position after a string."""
    length, at = read_long(data, at, end)
    return at + length


@compiled_plain
def is_same(data: Bytes, start: int, other: int, length: int) -> bool:
    different = np.uint8(0)
    here, there = np.uint64(start), np.uint64(other)
    for place in range(np.uint64(length)):
        different |= data[here + place] ^ data[there + place]
    return bool(different == 0)


@compiled_plain
def is_same_key(data: Bytes, cells: Ints, before: int, after: int, keys: Ints) -> bool:
    for number in range(len(keys)):
        a, b = cells[before + keys[number, 0]], cells[after + keys[number, 0]]
        length = a[2] - a[1]
        if a[0] != b[0] or length != b[2] - b[1] or not is_same(data, a[1], b[1], length):
            return False
    return True


@compiled_plain
def add_line(
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
    line[OTHER] = line[OTHER_START] = line[OTHER_END] = -1
    return count + 1


@compiled_plain
def set_other(line: Ints, other: int, key: int, key_end: int) -> None:
    line[OTHER] = other
    line[OTHER_START] = key
    line[OTHER_END] = key_end


@compiled_plain
def put_keys(
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
        at, status = put_image(out, at, data, cells, before, keys, fixed, work)
        if status != OK:
            return at, status
        at = put_piece(out, at, fixed, pieces, KEY_TAIL)
        places[3] = at
    places[0] = at
    first = before if op == DELETE else after
    at, status = put_image(out, at, data, cells, first, keys, fixed, work)
    at = put_piece(out, at, fixed, pieces, KEY_TAIL)
    places[1] = at
    size = places[1] - places[0]
    if places[3] - places[2] == size and is_same(out, places[0], places[2], size):
        places[2] = -1  # different bytes, but the same for the format
    return at, status


@compiled
def is_owned(out: Bytes, key: int, key_end: int, owned: Bytes) -> bool:
    if key < 0:
        return False
    hashed = murmur2(out, key, key_end) & int64(0x7FFFFFFF)
    return bool(owned[hashed % int64(len(owned))])


@compiled_plain
def source_start(walked: Ints, record: Ints, width: int) -> int:
    """Where the source of a record begins in the topic's bytes. ``walked``: the cells of ``walk``."""
    first = record[FIRST_CELL]
    if walked[first + width, 0] >= 0:
        return int64(walked[first + 2 * width - 1, 2])
    return int64(walked[first + width - 1, 2] + 1)  # after the branch of no after image
