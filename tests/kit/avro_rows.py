"""Rows of a record stream in Avro, each time with a new registry: records read by fastavro."""

import numpy as np

from millrace.consumer.format.encoded import PART, SEQ, Encoded
from millrace.consumer.format.formats import make_format
from millrace.consumer.records.numbers import RecordNumbers
from millrace.consumer.view.changes import make_changes
from millrace.consumer.view.program import make_view_program, view_of
from millrace.schemas.table.structure import TableSchema
from millrace.schemas.view.format_options import FormatOptions
from millrace.schemas.view.view import View
from tests.kit.apply.topic import RecordStream
from tests.kit.format_rows import ALL, NAMES, Sent, walked
from tests.kit.memory_registry import MemoryRegistry, read_one


def avro_records(
    options: FormatOptions, table: TableSchema, stream: RecordStream, view: View = ALL
) -> tuple[Encoded, MemoryRegistry]:
    """The rows of a stream that has only this table, in a view, and the registry with their schemas."""
    registry = MemoryRegistry()
    rows = walked(stream, table)
    layout = rows.programs.layouts[0]
    shown = view_of(view, layout)
    assert shown is not None
    numbers = RecordNumbers(np.arange(len(rows), dtype=np.int64))
    changes = make_changes(make_view_program(shown, layout), rows, numbers)
    format_ = make_format(options, shown, layout, NAMES, registry.register)
    return format_.encode(rows, changes), registry


def read_avro(records: Encoded, registry: MemoryRegistry, *, logical: bool = False) -> list[Sent]:
    """Records as values of fastavro. ``logical``: as its logical types; otherwise as JSON has them, bytes in base64."""
    return [
        Sent(
            int(records.lines[number, SEQ]),
            int(records.lines[number, PART]),
            read_one(records.key(number), registry, logical=logical),
            read_one(records.value(number), registry, logical=logical),
        )
        for number in range(len(records))
    ]
