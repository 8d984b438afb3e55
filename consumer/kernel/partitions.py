"""The partition of a record, as Kafka's Java client chooses it: murmur2 of the key's bytes, without its sign.

Source: org.apache.kafka.common.utils.Utils.murmur2 and toPositive, BuiltInPartitioner.partitionForKey.
"""

import numpy as np

from millrace.consumer.kernel.compiled import Bytes, Ints, compiled, int64

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


@compiled
def murmur2(octets: Bytes, start: int, end: int) -> int:
    """The hash of ``octets[start:end]``, as an unsigned number of 32 bits."""
    length = end - start
    hashed = int64(_SEED) ^ length
    at = start
    while end - at >= 4:
        word = (
            int64(octets[at])
            | int64(octets[at + 1]) << 8
            | int64(octets[at + 2]) << 16
            | int64(octets[at + 3]) << 24
        )
        word = _times(word)
        word ^= word >> 24
        hashed = _times(hashed) ^ _times(word)
        at += 4
    if end > at:
        for which in range(end - at):
            hashed ^= int64(octets[at + which]) << (8 * which)
        hashed = _times(hashed)
    hashed ^= hashed >> 13
    hashed = _times(hashed)
    return hashed ^ (hashed >> 15)


@compiled
def _times(number: int) -> int:
    """The low 32 bits of the product with ``_M``. Both factors have 32 bits, so the low 64 bits are exact."""
    return (number * int64(_M)) & int64(_MASK)


@compiled
def partitions_of(octets: Bytes, starts: Ints, ends: Ints, count: int) -> Ints:
    """The partition, of ``count``, for each key ``octets[start:end]``; -1 for a record without key (start -1)."""
    partitions = np.full(len(starts), -1, np.int64)
    for which in range(len(starts)):
        if starts[which] >= 0:
            hashed = murmur2(octets, starts[which], ends[which]) & int64(0x7FFFFFFF)
            partitions[which] = hashed % count
    return partitions


@compiled
def partitions_of_columns(
    octets: Bytes, cells: Ints, changes: Ints, records: Ints, columns: Ints, count: int
) -> Ints:
    """The partition, of ``count``, of each record by some columns of its key.

    ``changes``: the first cell of the image before and after, -1 for none. ``records``: the number of the change of
    each record. All records of a change but the last have the key before it.
    """
    partitions = np.empty(len(records), np.int64)
    for which in range(len(records)):
        change = records[which]
        is_last = which + 1 == len(records) or records[which + 1] != change
        before, after = changes[change, 0], changes[change, 1]
        first = after if after >= 0 and (is_last or before < 0) else before
        hashed = int64(0)
        for column in columns:
            cell = first + column
            own = murmur2(octets, cells[cell, 1], cells[cell, 2])
            hashed = (hashed * 31 + own) & int64(0x7FFFFFFF)
        partitions[which] = hashed % count
    return partitions


@compiled
def assign_numbers(lines: Ints, places: Ints, tails: Ints) -> Ints:
    """Select the lines that a partition does not have yet, and number them.

    ``lines``: SEQ and PART of each record. ``places``: the row of ``tails`` for each record, -1 if it is not ours.
    ``tails``: SEQ, PART and N of the last record of each partition; they become those of the last selected record.
    Returns N for each record, 0 for one that is left out, -1 for one that does not follow the last of its partition
    here: no line after it is numbered.
    """
    numbers = np.zeros(len(lines), np.int64)
    seen = np.full((len(tails), 2), -1, np.int64)
    for which in range(len(lines)):
        place = places[which]
        if place < 0:
            continue
        seq, part = lines[which, 0], lines[which, 1]
        if not _is_after(seq, part, seen[place, 0], seen[place, 1]):
            numbers[which] = -1
            break
        seen[place, 0], seen[place, 1] = seq, part
        if _is_after(seq, part, tails[place, 0], tails[place, 1]):
            tails[place, 0], tails[place, 1] = seq, part
            tails[place, 2] += 1
            numbers[which] = tails[place, 2]
    return numbers


@compiled
def _is_after(seq: int, part: int, last_seq: int, last_part: int) -> bool:
    return seq > last_seq or (seq == last_seq and part > last_part)
