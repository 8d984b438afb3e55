r"""Writes values as SQL literals directly into the text of a statement.

    kind in the record       literal
    INT                      decimal digits
    BYTES, form BITS         the unsigned number
    DECIMAL                  digits, with the decimal point that the scale requires
    FLOAT, DOUBLE            the shortest digits of the double and an exponent: ``-25e-1``; ``-0e0`` keeps its sign
    FLOAT, form BOUNDED      the limit of its column, if the value is the FLOAT nearest to it
    STRING                   '…' in utf8mb4, with NUL, ' and \ escaped as \0 \' \\
    BYTES                    _binary'…', with the same escapes
    NULL                     NULL

A row is ``opening literal,literal,… closing``; a comma joins rows. ``shape`` has a line for each literal: (image, cell,
form, scale or limit). ``firsts`` has a line for each row: the first cell of the record with the before image, and of
the one with the after image, which differ in a merged change. The literal is the cell ``firsts[row, image] + cell``.

Only bytes that end or change a string literal are escaped. sql_mode must not contain NO_BACKSLASH_ESCAPES; ANSI_QUOTES
has no effect. A number with an exponent is a DOUBLE, which the server reads as the double nearest to it.
"""

import numpy as np

from millrace.characters import APOSTROPHE, BACKSLASH, COMMA, MINUS, ZERO
from millrace.consumer.kernel.compiled import Bytes, Ints, compiled, int64
from millrace.consumer.kernel.digits import (
    NUMBER_BYTES_MAX,
    double_bits,
    put_decimal,
    put_number,
    put_signed,
    put_text,
)
from millrace.consumer.kernel.walk import BYTES, DECIMAL, DOUBLE, FLOAT, INT, STRING, read_long
from millrace.doubles import shortest

PLAIN, BITS, BOUNDED = 0, 1, 2


@compiled
def measure(firsts: Ints, cells: Ints, shape: Ints) -> Ints:
    """An upper bound of the literal bytes of each row, without opening and closing."""
    bounds = np.empty(len(firsts), np.int64)
    for number in range(len(firsts)):
        total = int64(0)
        for place in range(len(shape)):
            cell = firsts[number, shape[place, 0]] + shape[place, 1]
            kind = cells[cell, 0]
            if kind in (STRING, BYTES):
                total += 2 * (cells[cell, 2] - cells[cell, 1]) + 24
            else:
                total += NUMBER_BYTES_MAX
        bounds[number] = total
    return bounds


@compiled
def _put_double(out: Bytes, at: int, bits: int) -> int:
    if bits < 0:
        out[at] = MINUS
        at += 1
        bits &= int64(0x7FFFFFFFFFFFFFFF)
    digits, exponent = shortest(bits) if bits else (0, 0)
    at = put_number(out, at, np.uint64(digits))
    out[at] = 101
    return put_signed(out, at + 1, int64(exponent))


@compiled
def _within(bits: int, limit: int) -> int:
    """The limit of a FLOAT(M,D), given as the bits of a double, instead of the FLOAT that is stored for it.

    That FLOAT may be larger than the limit, and a strict server refuses it.
    """
    value = np.int64(bits).view(np.float64)
    most = np.int64(limit).view(np.float64)
    if np.float32(abs(value)) == np.float32(most):
        return int64(np.float64(most if value > 0 else -most).view(np.int64))
    return bits


@compiled
def _put_quoted(out: Bytes, at: int, data: Bytes, start: int, end: int) -> int:
    out[at] = APOSTROPHE
    at += 1
    for place in range(start, end):
        byte = data[place]
        if byte == APOSTROPHE or byte == BACKSLASH:  # noqa: SIM109 (two comparisons)
            out[at] = BACKSLASH
            at += 1
        elif byte == 0:
            out[at] = BACKSLASH
            at += 1
            byte = np.uint8(ZERO)
        out[at] = byte
        at += 1
    out[at] = APOSTROPHE
    return at + 1


@compiled
def put_literal(
    out: Bytes,
    at: int,
    data: Bytes,
    cells: Ints,
    cell: int,
    form: int,
    scale: int,
    binary: Bytes,
) -> int:
    """Write one literal at ``out[at]``; returns the position after it. ``binary`` is the text ``_binary``."""
    kind, start, end = cells[cell, 0], cells[cell, 1], cells[cell, 2]
    if kind == INT:
        value, _ = read_long(data, start, end)
        return put_signed(out, at, value)
    if kind == DECIMAL:
        return put_decimal(out, at, data, start, end, scale)
    if kind in (FLOAT, DOUBLE):
        bits = double_bits(data, start, kind)
        return _put_double(out, at, _within(bits, scale) if form == BOUNDED else bits)
    if kind == STRING:
        return _put_quoted(out, at, data, start, end)
    if kind == BYTES and form == BITS:
        unsigned = np.uint64(0)
        for place in range(start, end):
            unsigned = unsigned << np.uint64(8) | np.uint64(data[place])
        return put_number(out, at, unsigned)
    if kind == BYTES:
        return _put_quoted(out, put_text(out, at, binary), data, start, end)
    out[at] = 78  # NULL
    out[at + 1] = 85
    out[at + 2] = 76
    out[at + 3] = 76
    return at + 4


@compiled
def put_rows(
    out: Bytes,
    data: Bytes,
    firsts: Ints,
    cells: Ints,
    shape: Ints,
    lead: Bytes,
    opening: Bytes,
    closing: Bytes,
    tail: Bytes,
    binary: Bytes,
) -> int:
    """Write ``lead``, the rows joined by commas, and ``tail`` into ``out``; returns the number of bytes."""
    at = put_text(out, 0, lead)
    for number in range(len(firsts)):
        if number > 0:
            out[at] = COMMA
            at += 1
        at = put_text(out, at, opening)
        for place in range(len(shape)):
            if place > 0:
                out[at] = COMMA
                at += 1
            cell = firsts[number, shape[place, 0]] + shape[place, 1]
            at = put_literal(out, at, data, cells, cell, shape[place, 2], shape[place, 3], binary)
        at = put_text(out, at, closing)
    return put_text(out, at, tail)


@compiled
def put_template(
    out: Bytes,
    data: Bytes,
    firsts: Ints,
    cells: Ints,
    shape: Ints,
    glue: Bytes,
    glue_ends: Ints,
    binary: Bytes,
) -> int:
    """Write one row's literals between fixed texts: text 0, literal 0, text 1, …; returns the number of bytes."""
    at = 0
    start = 0
    for place in range(len(glue_ends)):
        for byte in range(start, glue_ends[place]):
            out[at] = glue[byte]
            at += 1
        start = glue_ends[place]
        if place < len(shape):
            cell = firsts[0, shape[place, 0]] + shape[place, 1]
            at = put_literal(out, at, data, cells, cell, shape[place, 2], shape[place, 3], binary)
    return at
