"""Merges changes of one row into net changes. The rules of each table are in ``consumer.tables.merge_rules``.

A row's changes form a chain by its identity: the bytes of the identity's columns in one image. Each chain has a hash
entry. A hash only finds the entry; the bytes decide, so equal hashes never join two rows.

    free update   an UPDATE that changes no identity column and no *watched* column of its table
    moving        an UPDATE that changes the identity: it ends one chain and begins another

    mode     merges
    KEEP     nothing
    FREE     INSERT + free update -> INSERT          any UPDATE + free update -> that UPDATE
             free update + any UPDATE -> that UPDATE free update + DELETE -> DELETE
    NET      also INSERT + DELETE -> ABSENT: no row may have this identity
    EXACT    also DELETE + INSERT -> UPDATE, if the rule says that the record covers the row; ABSENT + INSERT -> INSERT;
             and the levels of its changes (see ``order``), because equal identities have equal bytes

A record with a NULL in the identity, or with a value in an unusual branch, is never merged and ends its chain.
"""

import numpy as np

from millrace.consumer.kernel.compiled import Bytes, Ints, compiled, int64
from millrace.consumer.kernel.walk import (
    FIRST_CELL,
    HAS_FALLBACK,
    NULL,
    OP,
    OP_CREATE,
    OP_DELETE,
    OP_UPDATE,
    SLOT,
)

KEEP, FREE, NET, EXACT = 0, 1, 2, 3

# columns of a rule. Its columns of the record begin at ``parts[FIRST_PART]``: those of the identity, then the watched
MODE, FIRST_PART, IDENTITY_COUNT, WATCHED_COUNT, COVERS = 0, 1, 2, 3, 4
RULE_WIDTH = 5

# columns of a change. BEFORE, AFTER, PLACE: record numbers. The change has the keys and flags of the record PLACE.
CHANGE_OP, BEFORE, AFTER, PLACE, MOVES, LEVEL = 0, 1, 2, 3, 4, 5
_ENTRY, _IS_FREE, _IS_SOLE = (
    6,
    7,
    8,
)  # the chain that it leaves a row in; a free update; never merged
CHANGE_WIDTH = 9
OP_ABSENT, _DROPPED = 97, 0

_PRIME = 0x100000001B3


@compiled
def _identity_hash(
    data: Bytes, cells: Ints, cell: int, parts: Ints, first: int, count: int, slot: int
) -> tuple[np.uint64, bool]:
    """(hash, is_null) of the identity in one image."""
    state = np.uint64(0xCBF29CE484222325) ^ np.uint64(slot)
    for part in range(first, first + count):
        place = cell + parts[part]
        if cells[place, 0] == NULL:
            return state, True
        for at in range(cells[place, 1], cells[place, 2]):
            state = (state ^ np.uint64(data[at])) * np.uint64(_PRIME)
        state = (state ^ np.uint64(256)) * np.uint64(_PRIME)
    state ^= state >> np.uint64(32)
    state *= np.uint64(0x9E3779B97F4A7C15)
    return state ^ (state >> np.uint64(29)), False


@compiled
def _same(
    data: Bytes, cells: Ints, one: int, other: int, parts: Ints, first: int, count: int
) -> bool:
    """True if these columns have the same bytes in two images."""
    for part in range(first, first + count):
        left, right = one + parts[part], other + parts[part]
        start, size = cells[left, 1], cells[left, 2] - cells[left, 1]
        if cells[left, 0] != cells[right, 0] or size != cells[right, 2] - cells[right, 1]:
            return False
        shift = cells[right, 1] - start
        for at in range(start, start + size):
            if data[at] != data[at + shift]:
                return False
    return True


@compiled
def merge(
    data: Bytes,
    records: Ints,
    numbers: Ints,
    cells: Ints,
    widths: Ints,
    rules: Ints,
    parts: Ints,
    hash_mask: int,
) -> Ints:
    """The net changes of the records ``numbers`` (in seq order), sorted by PLACE.

    ``hash_mask`` cuts hashes, for tests of collisions; -1 keeps them. LEVEL is 0 for tables that are not EXACT.
    """
    size = 8
    while size < 4 * len(numbers):
        size *= 2
    table = np.full(size, -1, np.int32)
    entry_hashes = np.empty(2 * len(numbers), np.uint64)
    entry_slots = np.empty(2 * len(numbers), np.int64)
    entry_cells = np.empty(2 * len(numbers), np.int64)
    tails = np.empty(2 * len(numbers), np.int64)  # the last change of each chain
    changes = np.empty((len(numbers), CHANGE_WIDTH), np.int64)
    entry_count = 0
    count = 0
    for place in range(len(numbers)):
        number = numbers[place]
        slot, op, cell = records[number, SLOT], records[number, OP], records[number, FIRST_CELL]
        mode, first = rules[slot, MODE], rules[slot, FIRST_PART]
        identity = rules[slot, IDENTITY_COUNT]
        after_cell = cell + widths[slot]
        moves = op == OP_UPDATE and not _same(data, cells, cell, after_cell, parts, first, identity)
        changes[count, CHANGE_OP] = op
        changes[count, BEFORE] = number
        changes[count, AFTER] = number
        changes[count, PLACE] = number
        changes[count, MOVES] = moves
        changes[count, LEVEL] = 0
        changes[count, _ENTRY] = -1
        changes[count, _IS_FREE] = 0
        changes[count, _IS_SOLE] = records[number, HAS_FALLBACK]
        if mode == KEEP:
            count += 1
            continue

        # the entries of the chains: left for the before image, right for the after image
        left, right = int64(-1), int64(-1)
        for image in range(2):
            if (image == 0 and op == OP_CREATE) or (image == 1 and op == OP_DELETE):
                continue
            if image == 1 and op == OP_UPDATE and not moves:
                right = left
                continue
            own = cell if image == 0 else after_cell
            found, is_null = _identity_hash(data, cells, own, parts, first, identity, slot)
            if is_null:
                changes[count, _IS_SOLE] = 1
                continue
            found &= np.uint64(hash_mask)
            at = int64(found & np.uint64(size - 1))
            while table[at] >= 0:
                entry = table[at]
                equal = entry_hashes[entry] == found and entry_slots[entry] == slot
                if equal and _same(data, cells, own, entry_cells[entry], parts, first, identity):
                    break
                at = (at + 1) & (size - 1)
            if table[at] < 0:
                table[at] = entry_count
                entry_hashes[entry_count] = found
                entry_slots[entry_count] = slot
                entry_cells[entry_count] = own
                tails[entry_count] = -1
                entry_count += 1
            if image == 0:
                left = int64(table[at])
            else:
                right = int64(table[at])

        own_entry = right if op == OP_CREATE else left
        tail = tails[own_entry] if own_entry >= 0 else -1
        joins = tail >= 0 and changes[count, _IS_SOLE] == 0 and changes[tail, _IS_SOLE] == 0
        is_there = joins and changes[tail, _ENTRY] == own_entry  # the tail leaves the row there
        if op == OP_CREATE and joins and mode == EXACT and not is_there:
            last = changes[tail, CHANGE_OP]
            if last == OP_ABSENT or (last == OP_DELETE and rules[slot, COVERS] != 0):
                changes[tail, CHANGE_OP] = OP_CREATE if last == OP_ABSENT else OP_UPDATE
                changes[tail, AFTER] = number
                changes[tail, _ENTRY] = right
                changes[tail, _IS_FREE] = last == OP_DELETE
                continue
        if op == OP_UPDATE and not moves:
            watched = first + identity
            is_free = _same(
                data, cells, cell, after_cell, parts, watched, rules[slot, WATCHED_COUNT]
            )
            if is_free and is_there:
                changes[tail, AFTER] = number
                continue
            changes[count, _IS_FREE] = is_free
        if op == OP_DELETE and is_there and mode >= NET and changes[tail, CHANGE_OP] == OP_CREATE:
            changes[tail, CHANGE_OP] = OP_ABSENT
            changes[tail, BEFORE] = number
            changes[tail, _ENTRY] = -1
            continue
        if op != OP_CREATE and is_there and changes[tail, _IS_FREE] != 0:
            changes[tail, CHANGE_OP] = _DROPPED
            changes[count, BEFORE] = changes[tail, BEFORE]
            changes[count, LEVEL] = changes[tail, LEVEL]
        for entry in (left, right):
            if entry >= 0:
                last = tails[entry]
                if last >= 0 and changes[last, CHANGE_OP] != _DROPPED:
                    changes[count, LEVEL] = max(changes[count, LEVEL], changes[last, LEVEL] + 1)
        for entry in (left, right):
            if entry >= 0:
                tails[entry] = count
        changes[count, _ENTRY] = right
        count += 1

    kept = 0
    for place in range(count):
        if changes[place, CHANGE_OP] != _DROPPED:
            if kept < place:
                changes[kept] = changes[place]
            if rules[records[changes[kept, PLACE], SLOT], MODE] != EXACT:
                changes[kept, LEVEL] = 0
            kept += 1
    return changes[:kept]
