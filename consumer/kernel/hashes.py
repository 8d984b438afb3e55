"""Causality keys of records: 64-bit hashes, each with a mode.

Two records that share a hash must keep their order unless both hold it SHARED. Equal values must give equal hashes. A
collision of unequal values only reduces parallelism. A key of a table is one row of ``keys``:

    kind       see below
    seed       mixed into the hash: the table's name and the index's position, so two indexes never share a key
    token      one hash for the whole index, for values that can't be compared here
    part, part_count   its columns in ``parts``: (column, method)

    kind                  held by                                        mode
    ROW                   every record, both images                      exclusive
    UNIQUE                insert, delete, update that changes it         exclusive; not held if a part is NULL
    REFERENCE             the same, on the child's side                  shared; not held if a part is NULL
    TOUCH                 every record (no parts: the token itself)      shared
    CASCADE               delete, update that changes a part (token)     exclusive
    BAG                   every record of a table without a key (token)  shared for inserts, else exclusive
    SERIAL                every record (token)                           exclusive

    method   how a value is compared
    EXACT    by its bytes
    PADDED   by its bytes without trailing blanks
    FOLDED   printable ASCII: in lower case without trailing blanks; other text: the whole index, exclusive
    COARSE   not compared: the whole index, shared for inserts (between two inserts of equal keys there must be a delete
             or update, which is exclusive), else exclusive
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from consumer.kernel.compiled import compiled
from consumer.kernel.walk import FIRST_CELL, NULL, OP, OP_CREATE, OP_DELETE, OP_UPDATE, SLOT

Array = npt.NDArray[Any]

ROW, UNIQUE, REFERENCE, TOUCH, CASCADE, BAG, SERIAL = 0, 1, 2, 3, 4, 5, 6
EXACT, PADDED, FOLDED, COARSE = 0, 1, 2, 3
SHARED, EXCLUSIVE = 0, 1

_PRIME = 0x100000001B3


@compiled
def _mix(state: Any, byte: Any) -> Any:
    return (state ^ np.uint64(byte)) * np.uint64(_PRIME)


@compiled
def _finish(state: Any) -> Any:
    state ^= state >> np.uint64(32)
    state *= np.uint64(0x9E3779B97F4A7C15)
    return state ^ (state >> np.uint64(29))


@compiled
def _mix_part(state: Any, data: Array, start: Any, end: Any, method: Any) -> Any:
    """Mix one value into the hash; returns (state, comparable)."""
    if method != EXACT:
        while end > start and data[end - 1] == 32:
            end -= 1
    for at in range(start, end):
        byte = data[at]
        if method == FOLDED:
            if byte < 32 or byte > 126:
                return state, False
            if 65 <= byte <= 90:
                byte = np.uint8(byte + 32)
        state = _mix(state, byte)
    for shift in range(0, 32, 8):  # the length separates parts: ("a", "bc"), ("ab", "c")
        state = _mix(state, np.uint64((end - start) >> shift) & np.uint64(0xFF))
    return state, True


@compiled
def _differs(
    data: Array, cells: Array, cell: Any, width: Any, parts: Array, part: Any, part_count: Any
) -> Any:
    for number in range(part, part + part_count):
        before = cells[cell + parts[number, 0]]
        after = cells[cell + width + parts[number, 0]]
        if before[0] != after[0] or before[2] - before[1] != after[2] - after[1]:
            return True
        for at in range(before[2] - before[1]):
            if data[before[1] + at] != data[after[1] + at]:
                return True
    return False


@compiled
def _hash_image(
    data: Array, cells: Array, cell: Any, parts: Array, part: Any, part_count: Any, seed: Any
) -> Any:
    """(hash, is_null, comparable, folded) of one key of one image."""
    state = seed
    folded = False
    for number in range(part, part + part_count):
        place = cells[cell + parts[number, 0]]
        kind, start, end = place[0], place[1], place[2]
        if kind == NULL:
            return state, True, True, folded
        if parts[number, 1] == COARSE:
            return state, False, False, False
        if parts[number, 1] == FOLDED:
            folded = True
        state, comparable = _mix_part(_mix(state, kind), data, start, end, parts[number, 1])
        if not comparable:
            return state, False, False, True
    return _finish(state), False, True, folded


@compiled
def key_hashes(
    data: Array,
    records: Array,
    count: Any,
    cells: Array,
    widths: Array,
    key_first: Array,
    keys: Array,
    seeds: Array,
    tokens: Array,
    parts: Array,
    owners: Array,
    hashes: Array,
    modes: Array,
) -> Any:
    """Fill ``owners`` (record numbers), ``hashes`` and ``modes``; returns the number of entries.

    The keys of slot ``s`` are ``keys[key_first[s]:key_first[s + 1]]``. Each key of each record needs at most four
    entries.
    """
    out = 0
    for number in range(count):
        slot = records[number, SLOT]
        if slot < 0:
            continue
        op = records[number, OP]
        cell = records[number, FIRST_CELL]
        width = widths[slot]
        for key in range(key_first[slot], key_first[slot + 1]):
            kind, part, part_count = keys[key, 0], keys[key, 1], keys[key, 2]
            if kind in (TOUCH, BAG, SERIAL):
                owners[out] = number
                hashes[out] = tokens[key]
                shared = kind == TOUCH or (kind == BAG and op == OP_CREATE)
                modes[out] = SHARED if shared else EXCLUSIVE
                out += 1
                continue
            is_moved = op != OP_UPDATE or kind == ROW
            if not is_moved and not _differs(data, cells, cell, width, parts, part, part_count):
                continue
            if kind == CASCADE:
                if op != OP_CREATE:
                    owners[out] = number
                    hashes[out] = tokens[key]
                    modes[out] = EXCLUSIVE
                    out += 1
                continue
            for image in range(2):
                if (image == 0 and op == OP_CREATE) or (image == 1 and op == OP_DELETE):
                    continue
                value, is_null, comparable, folded = _hash_image(
                    data, cells, cell + image * width, parts, part, part_count, seeds[key]
                )
                if is_null:
                    continue
                if comparable:
                    owners[out] = number
                    hashes[out] = value
                    modes[out] = SHARED if kind == REFERENCE else EXCLUSIVE
                    out += 1
                if folded or not comparable:
                    owners[out] = number
                    hashes[out] = tokens[key]
                    if comparable or (not folded and op == OP_CREATE and kind != REFERENCE):
                        modes[out] = SHARED
                    else:
                        modes[out] = EXCLUSIVE
                    out += 1
    return out


@compiled
def find_changes(
    data: Array, records: Array, numbers: Array, cells: Array, width: Any, parts: Array
) -> Any:
    """For each update in ``numbers`` (one table): 1 if a column of ``parts`` differs between its images, else 0."""
    changed = np.zeros(len(numbers), np.uint8)
    for place in range(len(numbers)):
        cell = records[numbers[place], FIRST_CELL]
        changed[place] = _differs(data, cells, cell, width, parts, 0, len(parts))
    return changed
