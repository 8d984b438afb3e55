r"""Turns rows of a server's text protocol into text for a statement: lines of LOAD DATA, or rows of INSERT.

Each value is copied. Bytes that ``escapes`` names become ``\`` and another byte. ``texts`` has a line for each column
with three texts, and one more line:

    column     before any value       before a value      after a value
    last       at the end of a row    for a NULL          -

``state`` is kept between calls, so the kernel stops where ``data`` ends or ``out`` is full, even inside a value.
``millrace.text_protocol.walk`` has the format of ``data``.
"""

import numpy as np

from millrace.characters import BACKSLASH, ZERO
from millrace.consumer.kernel.compiled import Bytes, Ints, compiled, int64
from millrace.consumer.kernel.json_numbers import NO_MARKS, may_be_inexact
from millrace.text_protocol import walk as w
from millrace.text_protocol.walk import AT, ROW_END, next_row, value_at

# state after that of the walk: column and end of the value that is being copied (-1: none); positions in out
COLUMN, VALUE_END, OUT, MARK = range(w.OWN, w.OWN + 4)
# counts of rows up to MARK, of values that are 0 up to MARK and OUT; a NULL's column + 1; whether JSON was examined
ROWS, ZEROS, ZEROS_OUT, NULL, EXAMINED = range(w.OWN + 4, w.OWN + 9)
ROWS_MAX = w.OWN + 9  # the rows at which it stops
STATE_WIDTH = w.OWN + 10

# flags of a column
REFUSES_NULL, COUNTS_ZERO, IS_DOCUMENT = 1, 2, 4

# why it stopped, beside the reasons of the walk: out or the number of rows is full, the row has a JSON text that SQL
# must write by expression
FULL, DOCUMENT = w.DAMAGED + 1, w.DAMAGED + 2


def make_state(out: int, rows_max: int) -> Ints:
    """The state before the first row. ``out``: where its text begins."""
    state = np.zeros(STATE_WIDTH, np.int64)
    state[VALUE_END], state[OUT], state[MARK], state[ROWS_MAX] = -1, out, out, rows_max
    return state


@compiled
def _put(out: Bytes, at: int, texts: Bytes, sizes: Ints, line: int, which: int) -> int:
    size: int = sizes[line, which]
    for place in range(size):
        out[at + place] = texts[line, which, place]
    return at + size


@compiled
def _is_inexact(data: Bytes, at: int, row_end: int, flags: Bytes) -> bool:
    """Whether a JSON text of the row may need an expression. False for a damaged row."""
    for column in range(len(flags)):
        at, size = value_at(data, at, row_end)
        if size == w.NO_VALUE:
            return False
        if size == w.NULL:
            continue
        if flags[column] & IS_DOCUMENT and may_be_inexact(data, at, at + size, NO_MARKS):
            return True
        at += size
    return False


@compiled
def put_text_rows(
    state: Ints,
    data: Bytes,
    end: int,
    joined: int,
    out: Bytes,
    escapes: Bytes,
    texts: Bytes,
    sizes: Ints,
    flags: Bytes,
    margin: int,
) -> int:
    """Write rows from ``data[:end]`` to ``out``; returns why it stopped.

    ``margin``: at least the bytes of all texts around one value, and of those at the end of a row. ``escapes``: for
    each byte the one after the backslash, or 0.
    """
    at, row_end, column, value_end = state[AT], state[ROW_END], state[COLUMN], state[VALUE_END]
    put, zeros, columns = state[OUT], state[ZEROS_OUT], len(flags)
    has_documents = False
    for flag in flags:
        has_documents |= flag & IS_DOCUMENT != 0
    stopped = -1
    while stopped < 0:
        if row_end == 0:
            if state[ROWS] >= state[ROWS_MAX]:
                stopped = FULL
                break
            state[AT] = at
            found = next_row(state, data, end, joined)
            if found != w.FOUND:
                stopped = found
                break
            at, row_end = state[AT], state[ROW_END]
            state[EXAMINED] = 0
        if has_documents and column == 0 and value_end < 0 and state[EXAMINED] == 0:
            state[EXAMINED] = 1
            if _is_inexact(data, at, row_end, flags):
                stopped = DOCUMENT
                break
        while column < columns:
            if value_end < 0:
                if put + margin > len(out):
                    stopped = FULL
                    break
                at, size = value_at(data, at, row_end)
                if size == w.NO_VALUE:
                    stopped = w.DAMAGED
                    break
                put = _put(out, put, texts, sizes, column, 0)
                if size == w.NULL:
                    put = _put(out, put, texts, sizes, columns, 1)
                    if flags[column] & REFUSES_NULL:
                        state[NULL] = column + 1
                    column += 1
                    continue
                value_end = at + size
                if size == 1 and data[at] == ZERO and flags[column] & COUNTS_ZERO:
                    zeros += 1
                put = _put(out, put, texts, sizes, column, 1)
            stop = min(value_end, at + ((len(out) - margin - put) >> 1))
            while at < stop:
                byte = data[at]
                escape = escapes[byte]
                if escape != 0:
                    out[put] = BACKSLASH
                    put += 1
                    byte = escape
                out[put] = byte
                put += 1
                at += 1
            if at < value_end:
                stopped = FULL
                break
            put = _put(out, put, texts, sizes, column, 2)
            value_end = int64(-1)
            column += 1
        if stopped >= 0:
            break
        if at != row_end:
            stopped = w.DAMAGED
            break
        put = _put(out, put, texts, sizes, columns, 0)
        row_end = int64(0)
        column = int64(0)
        state[ROWS] += 1
        state[MARK] = put
        state[ZEROS] = zeros
    state[AT], state[ROW_END], state[COLUMN], state[VALUE_END] = at, row_end, column, value_end
    state[OUT], state[ZEROS_OUT] = put, zeros
    return stopped
