"""The changes of one table in a batch, as a view shows them: the input of a format.

A line is one change. Its images begin at cells of ``cells``, whose places are in ``payload``; an image has one cell for
each column of the table, and those that the view of an apply task adds. Lines are in the order of the records.

Without a mask, payload and cells are those of the batch. With one, they have nothing but what the view lets pass. The
rest of a record, such as its position in the source, is in the batch's own payload: ``rows.values``.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millrace.consumer.kernel import walk
from millrace.consumer.kernel.changes import (
    AFTER,
    BEFORE,
    LINE_WIDTH,
    OP,
    RECORD,
    SEQ,
    put_changes,
)
from millrace.consumer.records.numbers import Ints, RecordNumbers
from millrace.consumer.records.rows import Rows
from millrace.consumer.view.masks import masked
from millrace.consumer.view.program import ViewProgram
from millrace.errors import Fatal

__all__ = ["AFTER", "BEFORE", "LINE_WIDTH", "OP", "RECORD", "SEQ", "Changes", "make_changes"]


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of one table; see the module."""

    payload: npt.NDArray[np.uint8]
    cells: Ints
    lines: Ints

    def __len__(self) -> int:
        return len(self.lines)


def make_changes(program: ViewProgram, rows: Rows, numbers: RecordNumbers) -> Changes:
    """The changes of these records, all with the program's layout. Fatal MR-5202."""
    condition, payload = program.condition, rows.values.payload
    width = int(rows.programs.widths[rows.records[numbers[0], walk.SLOT]]) if len(numbers) else 0
    lines = np.empty((len(numbers), LINE_WIDTH), np.int64)
    count, stopped = put_changes(
        rows.records,
        numbers,
        width,
        condition.lines,
        condition.octets,
        condition.depth,
        payload,
        rows.cells,
        lines,
    )
    if stopped >= 0:
        raise _unreadable(program, rows, stopped, width)
    lines, cells = lines[:count], rows.cells
    if program.masks is not None:
        payload, cells = masked(program.masks, program.layout, rows, lines)
    return Changes(payload, cells, lines)


def _unreadable(program: ViewProgram, rows: Rows, number: int, width: int) -> Fatal:
    table, columns = program.layout.table, program.condition_texts
    first = int(rows.records[number, walk.FIRST_CELL])
    names = [
        table.columns[at].name
        for at in columns
        if walk.BYTES in (rows.cells[first + at, 0], rows.cells[first + width + at, 0])
    ]
    return Fatal(
        "MR-5202",
        f"the condition of a view reads {', '.join(names)} of {table.full_name}, and its text is not valid",
        seq=int(rows.records[number, walk.SEQ]),
    )
