"""Labels of an ENUM or SET as their numbers, by a table of the column's labels; and those of a SET as an array.

A table is bytes in ``fixed`` (``consumer.format.flat_columns`` makes it). Its numbers have 4 bytes, little-endian:

    count                   of entries
    offset length number    of each label, in the order of their bytes; the offset is from the start of the table
    the labels              one after the other, in UTF-8

``number`` counts from 1. A label that is not in the table has the number 0.
"""

import numpy as np

from millrace.characters import CLOSING_BRACKET, COMMA, OPENING_BRACKET
from millrace.consumer.kernel.compiled import Bytes, compiled_plain, int64
from millrace.consumer.kernel.json_text import put_string

ENTRY_BYTES, NUMBER_BYTES = 12, 4


@compiled_plain
def _number(fixed: Bytes, at: int) -> int:
    return (
        int64(fixed[at])
        | int64(fixed[at + 1]) << 8
        | int64(fixed[at + 2]) << 16
        | int64(fixed[at + 3]) << 24
    )


@compiled_plain
def _order(data: Bytes, start: int, end: int, fixed: Bytes, first: int, length: int) -> int:
    """Below, equal to or above 0, as the text is before, equal to or after the label."""
    size = end - start
    for place in range(min(size, length)):
        difference = int64(data[start + place]) - int64(fixed[first + place])
        if difference != 0:
            return difference
    return size - length


@compiled_plain
def label_number(data: Bytes, start: int, end: int, fixed: Bytes, table: int) -> int:
    """The number of the label ``data[start:end]``."""
    low, high = int64(0), _number(fixed, table)
    while low < high:
        middle = (low + high) // 2
        entry = table + NUMBER_BYTES + middle * ENTRY_BYTES
        first, length = table + _number(fixed, entry), _number(fixed, entry + NUMBER_BYTES)
        order = _order(data, start, end, fixed, first, length)
        if order == 0:
            return _number(fixed, entry + 2 * NUMBER_BYTES)
        if order < 0:
            high = middle
        else:
            low = middle + 1
    return int64(0)


@compiled_plain
def set_bits(data: Bytes, start: int, end: int, fixed: Bytes, table: int) -> np.uint64:
    """The bits of the labels ``data[start:end]``, which commas separate."""
    bits = np.uint64(0)
    at = start
    while at < end:
        stop = at
        while stop < end and data[stop] != COMMA:
            stop += 1
        number = label_number(data, at, stop, fixed, table)
        if number > 0:
            bits |= np.uint64(1) << np.uint64(number - 1)
        at = stop + 1
    return bits


@compiled_plain
def put_label_array(out: Bytes, at: int, data: Bytes, start: int, end: int) -> int:
    """Write the labels, which commas separate, as an array; none if there is no text."""
    out[at] = OPENING_BRACKET
    at += 1
    first = start
    while first < end:
        stop = first
        while stop < end and data[stop] != COMMA:
            stop += 1
        if first > start:
            out[at] = COMMA
            at += 1
        at = put_string(out, at, data, first, stop)
        first = stop + 1
    out[at] = CLOSING_BRACKET
    return at + 1
