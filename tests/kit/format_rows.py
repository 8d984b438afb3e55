"""Rows of a record stream in a format: keys and values as JSON has them, read by Python's json or by fastavro."""

import json
from dataclasses import dataclass

import numpy as np

from millrace.consumer.format.encoded import PART, SEQ, Encoded
from millrace.consumer.format.formats import make_format
from millrace.consumer.format.table_format import FormatNames, TableFormat
from millrace.consumer.kernel import walk
from millrace.consumer.records.numbers import RecordNumbers
from millrace.consumer.records.row_schemas import RowSchemas, make_programs
from millrace.consumer.records.rows import Rows, walk_values
from millrace.consumer.view.changes import make_changes
from millrace.consumer.view.program import make_view_program, view_of
from millrace.schemas.record.avro_schema import envelope_schema
from millrace.schemas.record.row_layout import RowLayout
from millrace.schemas.table.structure import TableSchema
from millrace.schemas.view.format_options import FormatOptions
from millrace.schemas.view.table_view import apply_view
from millrace.schemas.view.view import TableRule, View
from tests.kit.apply.topic import SET, RecordStream
from tests.kit.apply.values import values_of
from tests.kit.memory_registry import MemoryRegistry, read_one

NAMES = FormatNames("pre.shop.t", "pre")
FIRST_ID = 100  # of a ``RecordStream``
ALL = View((TableRule("*.*"),))
REGISTRY = MemoryRegistry()  # of all records in Avro


@dataclass(frozen=True, slots=True)
class Sent:
    """One record; ``value`` is None for a tombstone."""

    seq: int
    part: int
    key: object
    value: object


def walked(stream: RecordStream, table: TableSchema) -> Rows:
    """The rows of a stream that has only this table."""
    values = [value for value in stream.values if value[5] in (0, 2)]
    rows = walk_values(
        values_of(values), make_programs(RowSchemas({FIRST_ID: envelope_schema(SET, table).text}))
    )
    assert len(rows) == len(values), walk.REASONS[rows.status]
    return rows


def format_of(options: FormatOptions, table: TableSchema, view: View = ALL) -> TableFormat:
    """The format of a table in a view."""
    shown = apply_view(view, table)
    assert shown is not None
    return make_format(options, shown, RowLayout.of(SET, table), NAMES)


def encoded(
    options: FormatOptions, table: TableSchema, stream: RecordStream, view: View = ALL
) -> Encoded:
    """The rows of a stream that has only this table, in a view."""
    rows = walked(stream, table)
    layout = rows.programs.layouts[0]
    shown = view_of(view, layout)
    assert shown is not None
    numbers = RecordNumbers(np.arange(len(rows), dtype=np.int64))
    changes = make_changes(make_view_program(shown, layout), rows, numbers)
    return make_format(options, shown, layout, NAMES, REGISTRY.register).encode(rows, changes)


def sent(options: FormatOptions, table: TableSchema, stream: RecordStream) -> list[Sent]:
    """The same, read as JSON."""
    return list(read(encoded(options, table, stream)))


def read(records: Encoded) -> list[Sent]:
    """Records as JSON has them."""
    return [
        Sent(
            int(records.lines[number, SEQ]),
            int(records.lines[number, PART]),
            _parsed(records.key(number)),
            _parsed(records.value(number)),
        )
        for number in range(len(records))
    ]


def _parsed(octets: bytes | None) -> object:
    if octets is None or octets[:1] != b"\0":
        return json.loads(octets) if octets is not None else None
    return read_one(octets, REGISTRY, logical=False)
