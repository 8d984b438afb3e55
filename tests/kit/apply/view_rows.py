"""Rows of one table as records, and what a view makes of them, as Python values."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from millrace.consumer.kernel import walk
from millrace.consumer.records.numbers import Ints, RecordNumbers
from millrace.consumer.records.row_schemas import RowSchemas, make_programs
from millrace.consumer.records.rows import Bytes, Rows, walk_values
from millrace.consumer.view.changes import Changes, make_changes
from millrace.consumer.view.program import make_view_program, view_of
from millrace.schemas.documents.fields import Fields
from millrace.schemas.documents.view import take_view
from millrace.schemas.record.avro_schema import envelope_schema
from millrace.schemas.table.structure import TableSchema
from millrace.schemas.view.view import View
from tests.kit.apply.topic import SET, RecordStream
from tests.kit.apply.values import values_of

Image = Mapping[str, object]


@dataclass(frozen=True)
class Row:
    """A record: ``op`` is its letter."""

    op: str
    before: Image | None = None
    after: Image | None = None


def view_from(**rule: object) -> View:
    """A view with one rule, which matches all tables unless it has ``from``."""
    problems: list[object] = []
    view = take_view(Fields({"tables": [{"from": "*.*", **rule}]}, "", problems))  # type: ignore[arg-type]
    assert problems == []
    return view


def walked(table: TableSchema, rows: Sequence[Row]) -> Rows:
    """The records of these rows, with the seqs 1, 2, …"""
    stream = RecordStream()
    for row in rows:
        if row.op == "u":
            stream.update(table, row.before or {}, row.after or {})
        elif row.op == "d":
            stream.delete(table, row.before or {})
        else:
            write = stream.insert if row.op == "c" else stream.snapshot
            write(table, row.after or {})
    values = [value for value in stream.values if value[5] in (0, 2)]
    programs = make_programs(RowSchemas({100: envelope_schema(SET, table).text}))
    batch = walk_values(values_of(values), programs)
    assert batch.status == walk.OK
    return batch


def changes_of(view: View, rows: Rows) -> Changes:
    """The changes of all rows, whose table is in the view."""
    (layout,) = rows.programs.layouts
    table_view = view_of(view, layout)
    assert table_view is not None
    program = make_view_program(table_view, layout)
    return make_changes(program, rows, RecordNumbers(np.arange(len(rows))))


def image(changes: Changes, first: int, width: int) -> tuple[object, ...] | None:
    """The values of one image; ABSENT for a column that is not in the view."""
    if first < 0:
        return None
    return tuple(
        value_of(changes.payload, changes.cells, first + column) for column in range(width)
    )


ABSENT = "absent"


def value_of(payload: Bytes, cells: Ints, cell: int) -> object:
    """The value of a cell."""
    kind, start, end = map(int, cells[cell])
    content = payload[start:end].tobytes()
    if kind < 0 or kind == walk.NULL:
        return ABSENT if kind < 0 else None
    if kind == walk.INT:
        value, stop = walk.read_long(payload, start, end)
        assert stop == end
        return int(value)
    if kind == walk.DECIMAL:
        return int.from_bytes(content, "big", signed=True)
    if kind in (walk.FLOAT, walk.DOUBLE):
        return struct.unpack("<f" if kind == walk.FLOAT else "<d", content)[0]
    return content.decode() if kind == walk.STRING else content
