"""Writes the images of changes again, with what a view lets pass: columns without a mask, and masked values.

``actions`` has a line for each column of the table: ``action, form, number, key``.

    ABSENT     the column is not in the view: a cell of the kind -1
    COPY       the value
    NULLED     NULL
    EMPTY      ``number`` zero bytes of the kind ``form``: 0 as a number, or a text or bytes
    TRUNCATE   the first ``number`` characters of a text in UTF-8, or bytes of others
    HMAC       64 hex characters, of a value in the ``form`` whose scale is ``number``, with the ``key``

The new images have their own payload, which has no byte of another value. A NULL that is masked stays NULL. The HMAC is
that of the text that the servers print, in UTF-8:

    OCTETS     text, dates and times, labels of ENUM and SET as in the record; binary: the bytes
    NUMBER     integers and DECIMAL: decimal digits; BIT, and ENUM and SET without labels: the unsigned number
    YEAR       four digits

A text that is not valid in its character set has no HMAC.
"""

import numpy as np

from millrace.characters import ZERO
from millrace.consumer.kernel.changes import AFTER, BEFORE, RECORD
from millrace.consumer.kernel.compiled import Bytes, Hashes, Ints, compiled_plain, int64
from millrace.consumer.kernel.digits import put_decimal_with, put_number, put_signed
from millrace.consumer.kernel.walk import BYTES, DECIMAL, INT, NULL, STRING, read_long

ABSENT, COPY, NULLED, EMPTY, TRUNCATE, HMAC = 0, 1, 2, 3, 4, 5
TEXT, OCTETS, LABEL, NUMBER, BIT, YEAR = 0, 1, 2, 3, 4, 5
ACTION_WIDTH = 4
JOB_WIDTH = 4  # see ``kernel.sha256``
HMAC_BYTES = 64
NONE = int64(-1)


@compiled_plain
def _copy(payload: Bytes, at: int, data: Bytes, start: int, end: int) -> int:
    to, source = np.uint64(at), np.uint64(start)
    for place in range(np.uint64(max(end - start, 0))):
        payload[to + place] = data[source + place]
    return at + max(end - start, 0)


@compiled_plain
def _end_of_characters(data: Bytes, start: int, end: int, count: int) -> int:
    """The end of the first ``count`` characters in UTF-8."""
    at = start
    while at < end:
        if data[at] & 0xC0 != 0x80:
            if count == 0:
                return at
            count -= 1
        at += 1
    return end


@compiled_plain
def _put_text(
    messages: Bytes, at: int, data: Bytes, cell: Ints, form: int, scale: int, work: Hashes
) -> int:
    """The text of a number; the position after it."""
    kind, start, end = cell[0], cell[1], cell[2]
    if kind == DECIMAL:
        return put_decimal_with(messages, at, data, start, end, scale, work)
    if form == BIT:
        bits = np.uint64(0)
        for place in range(start, end):
            bits = bits << np.uint64(8) | np.uint64(data[place])
        return put_number(messages, at, bits)
    number, _ = read_long(data, start, end)
    if form == LABEL:
        return put_number(messages, at, np.uint64(number))
    if form == YEAR and number == 0:
        for place in range(4):
            messages[at + place] = ZERO
        return at + 4
    return put_signed(messages, at, number)


@compiled_plain
def _is_same(data: Bytes, cells: Ints, one: int, other: int) -> bool:
    start, there, size = cells[one, 1], cells[other, 1], cells[one, 2] - cells[one, 1]
    if cells[one, 0] != cells[other, 0] or cells[other, 2] - there != size:
        return False
    different = np.uint8(0)
    for place in range(np.uint64(size)):
        different |= data[np.uint64(start) + place] ^ data[np.uint64(there) + place]
    return bool(different == 0)


@compiled_plain
def put_images(
    lines: Ints,
    actions: Ints,
    data: Bytes,
    cells: Ints,
    new_cells: Ints,
    payload: Bytes,
    jobs: Ints,
    messages: Bytes,
    work: Hashes,
) -> tuple[int, int, int, int]:
    """Fill ``new_cells`` and ``payload``, and move the images of ``lines`` there. ``work`` is for DECIMAL.

    The texts of HMACs are copied to ``messages``, one after the other, while they are in the cache.

    Returns (bytes of payload, jobs for ``sha256.put_hmacs``, record and column where it stops at a text that is not
    valid, else -1).
    """
    width = len(actions)
    at = put = cell = job = int64(0)
    for line in lines:
        before = line[BEFORE]
        for image in (BEFORE, AFTER):
            first = line[image]
            if first < 0:
                continue
            line[image] = cell
            run = run_end = NONE  # the values that are copied at once
            for column in range(width):
                source, new = first + column, new_cells[cell + column]
                kind, start, end = cells[source, 0], cells[source, 1], cells[source, 2]
                action, form, number = actions[column, 0], actions[column, 1], actions[column, 2]
                if action == COPY:
                    if run < 0:
                        run = start
                    run_end = end
                    new[0], new[1], new[2] = kind, at + start - run, at + end - run
                    continue
                if run >= 0:
                    at, run = _copy(payload, at, data, run, run_end), NONE
                new[0], new[1], new[2] = NULL, at, at
                if action == ABSENT:
                    new[0] = NONE
                elif action == EMPTY:
                    new[0], new[2] = form, at + number
                    payload[at : at + number] = 0
                    at += number
                elif kind == NULL or action == NULLED:
                    continue
                elif action == TRUNCATE:
                    cut = min(end, start + number)
                    if kind == STRING:
                        cut = _end_of_characters(data, start, end, number)
                    new[0], new[2] = kind, at + cut - start
                    at = _copy(payload, at, data, start, cut)
                elif (
                    image == AFTER
                    and before >= 0
                    and _is_same(data, cells, before + column, source)
                ):
                    there = new_cells[line[BEFORE] + column]
                    new[0], new[1], new[2] = there[0], there[1], there[2]
                else:
                    if form == TEXT and kind == BYTES:
                        return at, job, line[RECORD], column
                    new[0], new[2] = STRING, at + HMAC_BYTES
                    if form <= OCTETS or (form == LABEL and kind != INT):
                        stop = _copy(messages, put, data, start, end)
                    else:
                        stop = _put_text(messages, put, data, cells[source], form, number, work)
                    entry = jobs[job]
                    entry[0], entry[1] = put, stop - put
                    entry[2], entry[3] = actions[column, 3], at
                    put = stop
                    at += HMAC_BYTES
                    job += 1
            if run >= 0:
                at = _copy(payload, at, data, run, run_end)
            cell += width
    return at, job, NONE, NONE
