"""The masks of a view over one table: actions for ``kernel.masks``, and the changes with their masked values."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millrace.consumer.kernel import masks as kernel
from millrace.consumer.kernel import sha256, walk
from millrace.consumer.kernel.changes import AFTER, BEFORE, RECORD
from millrace.consumer.kernel.digits import NUMBER_BYTES_MAX, WORK
from millrace.consumer.records.numbers import Ints
from millrace.consumer.records.row_schemas import KINDS, is_decimal
from millrace.consumer.records.rows import Rows
from millrace.consumer.view.mask_keys import MaskKeys
from millrace.errors import Fatal
from millrace.schemas.record.row_layout import RowLayout
from millrace.schemas.table.structure import INTEGER_CODES, LABELLED_CODES, Column, TypeCode
from millrace.schemas.view.table_view import TableView
from millrace.schemas.view.view import Mask, MaskKind

Bytes = npt.NDArray[np.uint8]

_BYTES_OF_ZERO = {"int": 1, "long": 1, "float": 4, "double": 8}


@dataclass(frozen=True, slots=True)
class Masks:
    """``keys`` has the states of each HMAC key. ``more_bytes``: written beside those of an image, at most."""

    actions: Ints
    keys: npt.NDArray[np.uint32]
    more_bytes: int

    @property
    def hmac_count(self) -> int:
        """The columns with an HMAC."""
        return int((self.actions[:, 0] == kernel.HMAC).sum())


def make_masks(view: TableView, layout: RowLayout, keys: MaskKeys) -> Masks | None:
    """None if no column has a mask. Reads the secrets of the masks: errors as ``MaskKeys``."""
    if not any(column.mask for column in view.columns):
        return None
    actions = np.zeros((len(layout.table.columns), kernel.ACTION_WIDTH), np.int64)
    states: list[npt.NDArray[np.uint32]] = []
    for column in view.columns:
        if column.source < 0:
            continue
        source = layout.table.columns[column.source]
        branches = layout.branches[column.source]
        if column.mask is None:
            actions[column.source, 0] = kernel.COPY
        elif column.mask.kind is MaskKind.HMAC:
            actions[column.source] = _hmac_action(source, len(states))
            states.append(keys.states(column.mask))
        else:
            actions[column.source] = _action(column.mask, source, branches)
    more_bytes = sum(
        int(number) if action == kernel.EMPTY else kernel.HMAC_BYTES
        for action, _, number, _ in actions.tolist()
        if action in (kernel.EMPTY, kernel.HMAC)
    )
    return Masks(actions, np.array(states, np.uint32).reshape(-1, 2, sha256.WORDS), more_bytes)


def _hmac_action(column: Column, key: int) -> list[int]:
    code, scale = column.type.code, column.type.scale
    if code is TypeCode.YEAR:
        form = kernel.YEAR
    elif code is TypeCode.BIT:
        form = kernel.BIT
    elif code in LABELLED_CODES:
        form = kernel.LABEL
    elif column.type.is_text:
        form = kernel.TEXT
    elif is_decimal(column) or code in INTEGER_CODES:
        form = kernel.NUMBER
    else:
        form = kernel.OCTETS
    return [kernel.HMAC, form, scale, key]


def _action(mask: Mask, column: Column, branches: tuple[str, ...]) -> list[int]:
    if mask.kind is MaskKind.TRUNCATE:
        return [kernel.TRUNCATE, 0, mask.length, 0]
    if column.nullable:
        return [kernel.NULLED, 0, 0, 0]
    if is_decimal(column):
        return [kernel.EMPTY, walk.DECIMAL, 1, 0]
    if column.type.code is TypeCode.STRING and branches == ("bytes",):  # BINARY, which is padded
        return [kernel.EMPTY, walk.BYTES, column.type.length_bytes_max, 0]
    branch = branches[0]
    return [kernel.EMPTY, KINDS[branch], _BYTES_OF_ZERO.get(branch, 0), 0]


def masked(masks: Masks, layout: RowLayout, rows: Rows, lines: Ints) -> tuple[Bytes, Ints]:
    """Payload and cells of the images of ``lines``, which then name these cells. Fatal MR-5202."""
    image_count = int((lines[:, [BEFORE, AFTER]] >= 0).sum())
    sizes = rows.values.sizes()[lines[:, RECORD]]
    payload = np.empty(int(sizes.sum()) + image_count * masks.more_bytes, np.uint8)
    cells = np.empty((image_count * len(masks.actions), walk.CELL_WIDTH), np.int64)
    jobs = np.empty((image_count * masks.hmac_count, kernel.JOB_WIDTH), np.int64)
    messages = np.empty(int(sizes.sum()) + len(jobs) * NUMBER_BYTES_MAX, np.uint8)
    data = rows.values.payload
    work = np.empty(WORK, np.uint64)
    size, job_count, stopped, column = kernel.put_images(
        lines, masks.actions, data, rows.cells, cells, payload, jobs, messages, work
    )
    if stopped >= 0:
        table = layout.table
        raise Fatal(
            "MR-5202",
            f"the mask of {table.columns[column].name} of {table.full_name} needs a text, and the value is not valid",
            seq=int(rows.records[stopped, walk.SEQ]),
        )
    jobs = jobs[:job_count]
    order = np.argsort((jobs[:, 1] + 8) // sha256.BLOCK_BYTES, kind="stable")
    sha256.put_hmacs(messages, jobs, order, masks.keys, payload)
    return payload[:size], cells
