"""Decides for rows of one table what a view makes of them: one pass, for a condition on both images.

                    after: in      after: out
    before: in      update         delete
    before: out     insert         nothing

An insert and a row of a snapshot have only an after image, a delete has only a before image. ``UNKNOWN`` is not in the
view.
"""

import numpy as np

from millrace.consumer.kernel import walk
from millrace.consumer.kernel.compiled import Bytes, Ints, compiled, int64
from millrace.consumer.kernel.conditions import TRUE, UNREADABLE, evaluate
from millrace.consumer.kernel.walk import OP_CREATE, OP_DELETE, OP_UPDATE

# columns of a line: the number of the record in the batch; the letter of its operation for the view (c, u, d, r); the
# first cell of each image, -1 without one; the record's seq
RECORD, OP, BEFORE, AFTER, SEQ = 0, 1, 2, 3, 4
LINE_WIDTH = 5
OP_READ = 114  # of rows of a snapshot, which ``walk`` turns into an OP_CREATE that IS_SAFE


@compiled
def _firsts(records: Ints, number: int, width: int) -> tuple[int, int]:
    """The first cell of each image, -1 without it."""
    first, op = records[number, walk.FIRST_CELL], records[number, walk.OP]
    before = first if op != OP_CREATE else int64(-1)
    return before, first + width if op != OP_DELETE else int64(-1)


@compiled
def put_changes(
    records: Ints,
    numbers: Ints,
    width: int,
    program: Ints,
    octets: Bytes,
    depth: int,
    data: Bytes,
    cells: Ints,
    lines: Ints,
) -> tuple[int, int]:
    """Fill ``lines``; returns their number, and the record that can't be judged (-1: none), where it stops.

    ``width``: the table's columns. ``program`` without lines admits all rows; ``depth`` is that of its stack.
    """
    has_condition = len(program) > 0
    images = np.empty((len(numbers) if has_condition else 0, 2), np.int64)
    results = np.empty(2 * len(images), np.uint8)
    for place in range(len(images)):
        images[place, 0], images[place, 1] = _firsts(records, numbers[place], width)
    if has_condition:
        evaluate(program, octets, depth, data, cells, images.reshape(-1), results)
    count = 0
    for place in range(len(numbers)):
        number = numbers[place]
        before, after = _firsts(records, number, width)
        if has_condition:
            left, right = results[2 * place], results[2 * place + 1]
            if UNREADABLE in (left, right):
                return count, number
            before = before if left == TRUE else int64(-1)
            after = after if right == TRUE else int64(-1)
            if before < 0 and after < 0:
                continue
        line = lines[count]
        line[RECORD], line[BEFORE], line[AFTER] = number, before, after
        line[SEQ] = records[number, walk.SEQ]
        if before >= 0:
            line[OP] = OP_UPDATE if after >= 0 else OP_DELETE
        elif records[number, walk.OP] == OP_CREATE and records[number, walk.IS_SAFE] == 1:
            line[OP] = OP_READ
        else:
            line[OP] = OP_CREATE
        count += 1
    return count, int64(-1)
