"""The rows of a batch as a view has them, in the batch's arrays: an apply task applies these and no others.

    a row that is not in the view     leaves the numbers
    an update over the view's border  becomes an insert or a delete (``kernel.changes``). It is written without foreign
                                      key checks: on the source no row was inserted or deleted
    a masked value                    its cell names the masked bytes, in both images
    an added column                   its cells name the constant, in both images

New bytes come after those of the batch: cells, and the places of GTIDs, are positions there. So nothing moves, and
``Values.value`` still is the record of the topic. Apart: both kinds of tasks have views, and only this changes rows.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from millrace.consumer.kernel import walk
from millrace.consumer.kernel.changes import AFTER, BEFORE, OP, OP_READ, RECORD
from millrace.consumer.records.numbers import Ints, RecordNumbers
from millrace.consumer.records.rows import Rows, Values
from millrace.consumer.view.changes import make_changes
from millrace.consumer.view.layout import ViewedTable
from millrace.consumer.view.program import ViewProgram

Bytes = npt.NDArray[np.uint8]


def through_view(
    rows: Rows, numbers: RecordNumbers, tables: Mapping[int, ViewedTable]
) -> tuple[Rows, RecordNumbers]:
    """The rows under a view, and the numbers of those that are in it. ``tables``: by slot, of all of these rows.

    Fatal MR-5202. Changes ``rows.records`` and ``rows.cells`` of these rows.
    """
    slots = rows.slots(numbers)
    payload = rows.values.payload
    parts, end = [payload], len(payload)
    kept = np.ones(len(numbers), np.bool_)
    for slot, table in tables.items():
        is_of_slot = slots == slot
        of_slot = RecordNumbers(numbers[is_of_slot])
        if table.program is not None and len(of_slot):
            found, masked = _through_program(rows, of_slot, table.program, end)
            kept[is_of_slot] = np.isin(of_slot, found, assume_unique=True)
            of_slot = found
            parts.append(masked)
            end += len(masked)
        if table.constants:
            content = b"".join(constant.content for constant in table.constants)
            _put_constants(rows, of_slot, table, end)
            parts.append(np.frombuffer(content, np.uint8))
            end += len(content)
    if end != len(payload):
        payload = np.concatenate(parts)
        payload.flags.writeable = False  # as that of a batch: kernels are compiled for it
        rows = replace(rows, values=Values(payload, rows.values.offsets))
    return rows, RecordNumbers(numbers[kept])


def _through_program(
    rows: Rows, numbers: RecordNumbers, program: ViewProgram, end: int
) -> tuple[RecordNumbers, Bytes]:
    """The numbers that are in the view, and the bytes of masked images, which begin at ``end`` of the payload."""
    records = rows.records
    width = int(rows.programs.widths[records[numbers[0], walk.SLOT]])
    changes = make_changes(program, rows, numbers)
    lines = changes.lines
    found = RecordNumbers(lines[:, RECORD].copy())
    now = np.where(lines[:, OP] == OP_READ, walk.OP_CREATE, lines[:, OP])
    is_other = records[found, walk.OP] != now
    records[found[is_other], walk.FLAGS] |= walk.NO_FOREIGN_KEY_CHECKS
    records[found, walk.OP] = now
    if program.masks is None:
        return found, np.empty(0, np.uint8)
    columns = np.arange(len(program.layout.table.columns))
    for image, offset in ((BEFORE, 0), (AFTER, width)):
        has = lines[:, image] >= 0
        there = records[found[has], walk.FIRST_CELL][:, None] + offset + columns
        cells = changes.cells[lines[has, image][:, None] + columns]
        cells[:, :, 1:] += end
        rows.cells[there] = cells
    return found, changes.payload


def _put_constants(rows: Rows, numbers: RecordNumbers, table: ViewedTable, end: int) -> None:
    """Let the cells of the added columns name the constants, which begin at ``end`` of the payload."""
    count, width = len(table.source.columns), len(table.layout.table.columns)
    firsts: Ints = rows.records[numbers, walk.FIRST_CELL]
    for place, constant in enumerate(table.constants):
        cell = (constant.kind, end, end + len(constant.content))
        for image in (0, width):
            rows.cells[firsts + image + count + place] = cell
        end += len(constant.content)
