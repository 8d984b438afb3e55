r"""Writes rows as the text that LOAD DATA reads: fields end with a tab, lines with a line feed, ``\`` escapes.

    kind in the record       field
    INT                      decimal digits
    BYTES, form BITS         the unsigned number
    DECIMAL                  digits, with the decimal point that the scale requires
    FLOAT, DOUBLE            shortest text of the double, always with an exponent
    STRING                   utf8mb4, with NUL, tab, line feed and \ escaped as \0 \t \n \\
    BYTES                    hexadecimal digits
    NULL                     \N

In utf8mb4 no byte of a longer character equals one of the escaped bytes. Arguments are those of ``kernel.literals``.
"""

import numpy as np

from millrace.consumer.kernel.compiled import Bytes, Ints, compiled, int64
from millrace.consumer.kernel.literals import BITS, put_literal
from millrace.consumer.kernel.walk import BYTES, NULL, STRING

_NUL, _TAB, _LINE_FEED, _BACKSLASH = 0, 9, 10, 92


@compiled
def _put_escaped(out: Bytes, at: int, data: Bytes, start: int, end: int) -> int:
    for place in range(start, end):
        byte = data[place]
        if byte in (_BACKSLASH, _TAB, _LINE_FEED, _NUL):
            out[at] = _BACKSLASH
            at += 1
            if byte == _TAB:
                byte = np.uint8(116)
            elif byte == _LINE_FEED:
                byte = np.uint8(110)
            elif byte == _NUL:
                byte = np.uint8(48)
        out[at] = byte
        at += 1
    return at


@compiled
def _hex_digit(value: int) -> np.uint8:
    return np.uint8(value + (48 if value < 10 else 55))


@compiled
def _put_hex(out: Bytes, at: int, data: Bytes, start: int, end: int) -> int:
    for place in range(start, end):
        byte = int64(data[place])
        out[at] = _hex_digit(byte >> 4)
        out[at + 1] = _hex_digit(byte & 15)
        at += 2
    return at


@compiled
def put_lines(out: Bytes, data: Bytes, firsts: Ints, cells: Ints, shape: Ints) -> int:
    """Write the rows into ``out``; returns the number of bytes."""
    at = int64(0)
    for number in range(len(firsts)):
        for place in range(len(shape)):
            if place > 0:
                out[at] = _TAB
                at += 1
            cell = firsts[number, shape[place, 0]] + shape[place, 1]
            kind, form = cells[cell, 0], shape[place, 2]
            if kind == STRING:
                at = _put_escaped(out, at, data, cells[cell, 1], cells[cell, 2])
            elif kind == BYTES and form != BITS:
                at = _put_hex(out, at, data, cells[cell, 1], cells[cell, 2])
            elif kind == NULL:
                out[at] = _BACKSLASH
                out[at + 1] = 78
                at += 2
            else:
                at = put_literal(out, at, data, cells, cell, form, shape[place, 3], data)
        out[at] = _LINE_FEED
        at += 1
    return at
