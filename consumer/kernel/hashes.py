"""Causality keys of records: 64-bit hashes, each with a mode.

Two records that share a hash must keep their order unless both hold it SHARED. Equal values must give equal hashes. A
collision of unequal values only reduces parallelism. A key of a table is one row of ``keys``:

    kind       see below
    seed       mixed into the hash: the table's name and the index's position, so two indexes never share a key
    token      one hash for the whole index, for values that can't be compared here
    part, part_count   its columns in ``parts``: (column, method)

    holds_token   1: records with a comparable value hold the token too, shared. For keys that other tables compare

    kind                  held by                                        mode
    ROW                   every record, both images                      exclusive
    UNIQUE                insert, delete, update that changes it         exclusive; not held if a part is NULL
    REFERENCE             the same, on the child's side                  shared; not held if a part is NULL
    TOUCH                 every record (no parts: the token itself)      shared
    CASCADE               delete, update that changes a part (token)     exclusive
    BAG                   every record of a table without a key (token)  shared for inserts, else exclusive
    SERIAL                every record (token)                           exclusive

    part: column, method, fold, length   only the first ``length`` characters (of EXACT: bytes) count; 0: all of them

    method   how a value is compared
    EXACT    by its bytes
    FLOATING by its bytes, but 0 and -0 are equal
    PADDED   by its bytes without trailing blanks; in a text that is not valid in its character set, zeros are blanks
    FOLDED   by the letters of ``fold`` (``drivers.mysql.collation``) without trailing blanks. A text with unknown
             characters holds the whole index, exclusive; each other value holds the index shared
    COARSE   not compared: the whole index, shared for inserts (between two inserts of equal keys there must be a delete
             or update, which is exclusive), else exclusive. With ``holds_token`` always exclusive
"""

from typing import SupportsInt

import numpy as np

from millrace.characters import SPACE
from millrace.consumer.kernel.compiled import Bytes, Hashes, Ints, Letters, compiled
from millrace.consumer.kernel.walk import (
    BYTES,
    FIRST_CELL,
    NULL,
    OP,
    OP_CREATE,
    OP_DELETE,
    OP_UPDATE,
    SLOT,
    STRING,
)

ROW, UNIQUE, REFERENCE, TOUCH, CASCADE, BAG, SERIAL = 0, 1, 2, 3, 4, 5, 6
EXACT, PADDED, FOLDED, COARSE, FLOATING = 0, 1, 2, 3, 4
SHARED, EXCLUSIVE = 0, 1

_PRIME = 0x100000001B3
_PLAIN, _PAGE_BITS, _PAGE_MASK = 128, 8, 255  # as in ``collation.make_table``
_UNKNOWN, _WORD = 0xFFFFFFFF, 0x80000000  # as in ``collation``


@compiled
def _mix(state: np.uint64, byte: SupportsInt) -> np.uint64:
    return (state ^ np.uint64(byte)) * np.uint64(_PRIME)


@compiled
def _finish(state: np.uint64) -> np.uint64:
    state ^= state >> np.uint64(32)
    state *= np.uint64(0x9E3779B97F4A7C15)
    return state ^ (state >> np.uint64(29))


@compiled
def _text_end(data: Bytes, start: int, end: int, length: int) -> int:
    """The end of the first ``length`` characters of UTF-8 text."""
    at = start
    while at < end:
        if data[at] & 0xC0 != 0x80:
            if length == 0:
                return at
            length -= 1
        at += 1
    return end


@compiled
def _mix_bytes(
    state: np.uint64, data: Bytes, kind: int, start: int, end: int, method: int, length: int
) -> np.uint64:
    """Mix one value into the hash, by its bytes."""
    if length > 0 and method == EXACT:
        end = min(end, start + length)
    elif length > 0:
        end = _text_end(data, start, end, length)
    if method == PADDED:
        while end > start and (data[end - 1] == SPACE or (kind == BYTES and data[end - 1] == 0)):
            end -= 1
    last = end
    if method == FLOATING and data[end - 1] == 0x80:  # the sign of -0 is left out
        last -= 1
        for at in range(start, end - 1):
            if data[at] != 0:
                last = end
    for at in range(start, last):
        state = _mix(state, data[at])
    if last < end:
        state = _mix(state, 0)
    for shift in range(0, 32, 8):  # the length separates parts: ("a", "bc"), ("ab", "c")
        state = _mix(state, np.uint64((end - start) >> shift) & np.uint64(0xFF))
    return state


@compiled
def _rare_code(data: Bytes, at: int, end: int, place: int, folds: Letters) -> tuple[np.uint32, int]:
    """(code, position after it) of the character at ``at``, which is not ASCII; UNKNOWN if it is not UTF-8."""
    byte = np.uint32(data[at])
    size = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
    if byte < 0xC2 or byte > 0xF4 or at + size > end:
        return np.uint32(_UNKNOWN), end
    point = byte & np.uint32(0x7F >> size)
    for step in range(1, size):
        point = point << np.uint32(6) | np.uint32(data[at + step] & 0x3F)
    if point > 0x10FFFF:
        return np.uint32(_UNKNOWN), end
    page = folds[place + np.uint32(_PLAIN) + (point >> np.uint32(_PAGE_BITS))]
    return folds[page + (point & np.uint32(_PAGE_MASK))], at + size


@compiled
def _mix_four(state: np.uint64, letters: np.uint64) -> np.uint64:
    state = (state ^ letters) * np.uint64(_PRIME)
    return state ^ (state >> np.uint64(32))


@compiled
def _mix_letters(
    state: np.uint64,
    data: Bytes,
    start: int,
    end: int,
    fold: int,
    folds: Letters,
) -> tuple[np.uint64, bool]:
    """Mix the letters of one text into the hash, four at a time; returns (state, comparable).

    Letters of blanks are mixed when another letter follows them. A letter has 16 bits.
    """
    own = np.uint64(folds[fold])
    first_page = np.uint64(folds[own + np.uint64(_PLAIN)])
    blank = folds[first_page + np.uint64(32)]
    blanks = count = 0
    four = np.uint64(0)
    at = start
    while at < end:
        while count & 3 == 0 and blanks == 0 and at + 4 <= end:
            one, two, three, last = data[at], data[at + 1], data[at + 2], data[at + 3]
            if one | two | three | last > 127:
                break
            first, second = folds[own + np.uint64(one)], folds[own + np.uint64(two)]
            third, fourth = folds[own + np.uint64(three)], folds[own + np.uint64(last)]
            if first | second | third | fourth >= _WORD:
                break
            high = np.uint64(first) << np.uint64(48) | np.uint64(second) << np.uint64(32)
            low = np.uint64(third) << np.uint64(16) | np.uint64(fourth)
            state = _mix_four(state, high | low)
            count += 4
            at += 4
        if at >= end:
            break
        byte = data[at]
        if byte < 128:
            code = folds[first_page + np.uint64(byte)]
            at += 1
        else:
            code, at = _rare_code(data, at, end, folds[fold], folds)
        if code == 0:
            continue
        if code == _UNKNOWN:
            return state, False
        place, stop = np.uint64(0), np.uint64(1)
        if code >= _WORD:
            place = own + np.uint64(code & np.uint32(0xFFFFFF))
            stop = place + np.uint64(code >> np.uint32(24) & np.uint32(0x7F))
            code = folds[place]
        while True:
            if code == blank:
                blanks += 1
            else:
                while blanks > 0:
                    four = four << np.uint64(16) | np.uint64(blank)
                    count += 1
                    blanks -= 1
                    if count & 3 == 0:
                        state = _mix_four(state, four)
                four = four << np.uint64(16) | np.uint64(code)
                count += 1
                if count & 3 == 0:
                    state = _mix_four(state, four)
            place += np.uint64(1)
            if place >= stop:
                break
            code = folds[place]
    if count & 3 != 0:
        state = _mix_four(
            state, four & ((np.uint64(1) << np.uint64(16 * (count & 3))) - np.uint64(1))
        )
    return _mix_four(state, np.uint64(count)), True  # the length separates parts


@compiled
def _differs(
    data: Bytes, cells: Ints, cell: int, width: int, parts: Ints, part: int, part_count: int
) -> bool:
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
    data: Bytes,
    cells: Ints,
    cell: int,
    parts: Ints,
    part: int,
    part_count: int,
    seed: np.uint64,
    folds: Letters,
) -> tuple[np.uint64, bool, bool, bool]:
    """(hash, is_null, comparable, folded) of one key of one image."""
    state = seed
    folded = False
    for number in range(part, part + part_count):
        if parts[number, 1] == FOLDED or (parts[number, 1] == PADDED and parts[number, 3] > 0):
            folded = True  # some values are not comparable
    for number in range(part, part + part_count):
        place = cell + parts[number, 0]
        kind, start, end = cells[place, 0], cells[place, 1], cells[place, 2]
        method, fold, length = parts[number, 1], parts[number, 2], parts[number, 3]
        if kind == NULL:
            return state, True, True, folded
        if method == COARSE:
            return state, False, False, False
        if kind != STRING and (method == FOLDED or (method == PADDED and length > 0)):
            return state, False, False, True
        state = _mix(state, kind)
        if method != FOLDED:
            state = _mix_bytes(state, data, kind, start, end, method, length)
            continue
        if length > 0:
            end = _text_end(data, start, end, length)
        while end > start and data[end - 1] == SPACE:
            end -= 1
        state, comparable = _mix_letters(state, data, start, end, fold, folds)
        if not comparable:
            return state, False, False, True
    return _finish(state), False, True, folded


@compiled
def key_hashes(
    data: Bytes,
    records: Ints,
    count: int,
    cells: Ints,
    widths: Ints,
    key_first: Ints,
    keys: Ints,
    seeds: Hashes,
    tokens: Hashes,
    parts: Ints,
    folds: Letters,
    owners: Ints,
    hashes: Hashes,
    modes: Bytes,
) -> int:
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
            holds_token = keys[key, 3] == 1
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
                    data,
                    cells,
                    cell + image * width,
                    parts,
                    part,
                    part_count,
                    seeds[key],
                    folds,
                )
                folded |= holds_token
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
