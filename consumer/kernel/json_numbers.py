"""Finds JSON texts with a value that a server would change when it reads the text.

MySQL reads a number with a decimal point as a DOUBLE. A JSON text that MySQL printed may contain a DECIMAL: ``1.50``,
or more digits than a DOUBLE has. This module finds candidates in one pass; ``tables.json_documents`` examines them.

    no point           19 characters or more (an integer is below 2**64)
    a point            more than 16 characters (a DOUBLE keeps 15 digits), or a zero as last of several decimals
    an exponent        never: only a DOUBLE is printed with one

A blank before ``,``, a closing bracket or the end is a mark of capture (``producer.convert.kernel.json_binary``): one
after a date, a time, a DECIMAL or bytes, three after a TIMESTAMP, two after an integer whose sign type a server would
not read. Only texts that capture has made of MySQL's JSON have marks; in others a blank is a blank.
"""

import numpy as np

from millrace.characters import (
    BACKSLASH,
    CLOSING_BRACE,
    CLOSING_BRACKET,
    COMMA,
    MINUS,
    NINE,
    PLUS,
    POINT,
    QUOTE,
    SPACE,
    ZERO,
)
from millrace.consumer.kernel.compiled import Bytes, Ints, compiled
from millrace.consumer.kernel.walk import FIRST_CELL, STRING

# which marks count: none (the text is not capture's), all but those of integers, all
NO_MARKS, MARKS, SIGN_MARKS = 0, 1, 2
_INTEGER_BYTES = 19
_EXACT_BYTES_MAX = 16


@compiled
def may_be_inexact(data: Bytes, start: int, end: int, marks: int) -> bool:
    """Whether the text may contain such a value. ``marks``: NO_MARKS, MARKS, or SIGN_MARKS."""
    at = start
    while at < end:
        byte = data[at]
        if byte == QUOTE:  # a string: skip to its end
            at += 1
            while at < end and data[at] != QUOTE:
                at += 2 if data[at] == BACKSLASH else 1
            at += 1
            continue
        if byte == SPACE and at > start:
            first = at
            while at < end and data[at] == SPACE:
                at += 1
            is_mark = (
                at == end
                or data[at] == COMMA
                or data[at] == CLOSING_BRACKET
                or data[at] == CLOSING_BRACE
            )
            if is_mark and (marks == SIGN_MARKS or (marks == MARKS and at - first != 2)):
                return True
            continue
        if byte != MINUS and (byte < ZERO or byte > NINE):
            at += 1
            continue
        first, point, exponent = at, -1, False
        while at < end:
            byte = data[at]
            if byte == POINT:
                point = at
            elif byte == 101 or byte == 69:
                exponent = True
            elif byte != MINUS and byte != PLUS and (byte < ZERO or byte > NINE):
                break
            at += 1
        if exponent:
            continue
        if point < 0:
            if at - first >= _INTEGER_BYTES:
                return True
        elif at - first > _EXACT_BYTES_MAX or (data[at - 1] == ZERO and at - point > 2):
            return True
    return False


@compiled
def find_inexact(
    data: Bytes, records: Ints, numbers: Ints, cells: Ints, places: Ints, marks: int
) -> Bytes:
    """For each record in ``numbers``: 1 if a text in its cells ``places`` may contain such a value, else 0."""
    found = np.zeros(len(numbers), np.uint8)
    for at in range(len(numbers)):
        first = records[numbers[at], FIRST_CELL]
        for number in range(len(places)):
            cell = cells[first + places[number]]
            if cell[0] == STRING and may_be_inexact(data, cell[1], cell[2], marks):
                found[at] = 1
                break
    return found
