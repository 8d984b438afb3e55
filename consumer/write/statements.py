"""The division of rows into statements: one row, or many with limited rows and bytes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from millrace.consumer.kernel.merge import OP_ABSENT
from millrace.consumer.kernel.walk import OP, OP_CREATE, OP_DELETE, OP_UPDATE
from millrace.consumer.records.numbers import Ints
from millrace.consumer.records.rows import Rows
from millrace.consumer.tables.table_plan import Pieces
from millrace.consumer.write.changes import OP_MOVE, OP_REPLACE, OP_RESTORE
from millrace.drivers.mysql.catalog import Inventory

STATEMENT_ROWS_MAX = 1000  # with more, a statement gains little and its locks and plan cost more
STATEMENT_BYTES_MAX = 1 << 20

OPS = {OP_CREATE: "insert", OP_UPDATE: "update", OP_DELETE: "delete"}
OPS |= {OP_ABSENT: "insert and delete", OP_REPLACE: "replace"}
OPS |= {OP_RESTORE: "restore", OP_MOVE: "move"}


@dataclass(frozen=True, slots=True)
class Single:
    """A statement for one row. ``number``: the record whose flags count; ``firsts``: see ``Rows.firsts``."""

    number: int
    firsts: Ints
    what: str

    @classmethod
    def of(cls, rows: Rows, number: int, what: str = "") -> "Single":
        """For the change of one record, or for another template."""
        return cls(
            number, rows.firsts(np.array([number])), what or OPS[int(rows.records[number, OP])]
        )


def statement_bytes(inventory: Inventory) -> int:
    """The limit of the bytes of a statement for many rows, and of a packet of LOAD DATA."""
    return min(STATEMENT_BYTES_MAX, inventory.packet_bytes_max // 2)


def byte_parts(texts: Sequence[bytes], inventory: Inventory) -> Iterator[Sequence[bytes]]:
    """Split texts of rows into statements below the limits, as ``statement_parts``."""
    bytes_max, first, size = statement_bytes(inventory), 0, 0
    for number, text in enumerate(texts):
        if number > first and (
            size + len(text) > bytes_max or number - first == STATEMENT_ROWS_MAX
        ):
            yield texts[first:number]
            first, size = number, 0
        size += len(text) + 1
    yield texts[first:]


def statement_parts(
    rows: Rows,
    firsts: Ints,
    pieces: Pieces,
    inventory: Inventory,
    rows_max: int = STATEMENT_ROWS_MAX,
) -> Iterator[Ints]:
    """Split a run into statements below the limits. A row that exceeds them gets its own statement."""
    if not len(firsts):
        return
    bytes_max = statement_bytes(inventory)
    ends = np.cumsum(rows.text_sizes(firsts, pieces.shape) + len(pieces.shape) + 8)
    first, base = 0, 0
    while first < len(firsts):
        last = int(np.searchsorted(ends, base + bytes_max, side="right"))
        last = min(max(last, first + 1), first + rows_max)
        yield firsts[first:last]
        first, base = last, int(ends[last - 1])
