"""``debezium-json`` and ``json``: one pass of a kernel over all changes of a batch.

``make_json_format`` compiles options, view and structure into arrays, once for each table and schema.
"""

from collections.abc import Sequence

import numpy as np

from millrace.consumer.format import connect_schema
from millrace.consumer.format.connect_schema import ordered, schema_text
from millrace.consumer.format.json_object import (
    FixedTexts,
    FormatColumn,
    check_columns,
    format_columns,
    quoted,
    text_bytes,
)
from millrace.consumer.format.record_format import RecordArrays, RecordFormat, RecordKernel
from millrace.consumer.format.table_format import FormatNames
from millrace.consumer.format.undecodable import undecoded
from millrace.consumer.kernel import json_records as kernel
from millrace.consumer.kernel.record_parts import KEY_TAIL
from millrace.consumer.records.numbers import Ints
from millrace.schemas.record.row_layout import RowLayout
from millrace.schemas.view.format_options import FormatName, FormatOptions
from millrace.schemas.view.table_view import TableView

_KERNEL = RecordKernel(kernel.encode, kernel.count_events)


def make_json_format(
    options: FormatOptions, view: TableView, layout: RowLayout, names: FormatNames
) -> RecordFormat:
    """The records of a table in a view; Fatal MR-6532, MR-6533."""
    check_columns(options, view, layout)
    columns = format_columns(options, view, layout)
    key = [columns[at] for at in view.key]
    fixed = FixedTexts()
    lead = '{"schema":' + schema_text(key_schema(key, names)) + ',"payload":'
    lead, trail = (lead, "}") if options.schemas else ("", "")
    keys, key_tail = fixed.program(key, lead + "{")
    row, row_tail = fixed.program(columns, "{")
    pieces = {
        KEY_TAIL: key_tail + trail,
        kernel.ROW_TAIL: row_tail,
    }
    if options.name is FormatName.DEBEZIUM_JSON:
        schema = schema_text(value_schema(columns, names)) if options.schemas else ""
        pieces |= _envelope(view, names, schema)
    places: Ints = np.zeros((kernel.PIECES_MAX, 2), np.int64)
    for piece, text in pieces.items():
        places[piece] = fixed.add(text)
    settings: Ints = np.zeros(kernel.SETTINGS, np.int64)
    settings[kernel.IS_ENVELOPE] = options.name is FormatName.DEBEZIUM_JSON
    settings[kernel.HAS_TOMBSTONES] = options.tombstones
    settings[kernel.KEY_LEAD], settings[kernel.KEY_TRAIL] = len(lead.encode()), len(trail)
    # the names and constants of an image are in both
    fixed_bytes = (
        2 * text_bytes(row)
        + 2 * text_bytes(keys)
        + sum(len(text.encode()) for text in pieces.values())
        + len(row_tail.encode())
    )
    arrays = RecordArrays(row, keys, fixed.array(), places, settings, fixed_bytes)
    texts = undecoded(options, view, layout)
    return RecordFormat(layout.table.full_name, len(layout.table.columns), _KERNEL, arrays, texts)


def _envelope(view: TableView, names: FormatNames, schema: str) -> dict[int, str]:
    """The fixed texts of a record of Debezium."""
    database, table = view.name
    return {
        kernel.VALUE: f'{{"schema":{schema},"payload":{{"before":' if schema else '{"before":',
        kernel.AFTER: ',"after":',
        kernel.SOURCE: ',"source":{"version":',
        kernel.CONNECTOR: ',"connector":',
        kernel.NAME: f',"name":{quoted(names.prefix)},"ts_ms":',
        kernel.SNAPSHOT: ',"snapshot":"',
        kernel.DB: f'","db":{quoted(database)},"sequence":null,"ts_us":',
        kernel.TS_NS: ',"ts_ns":',
        kernel.TABLE: f',"table":{quoted(table)},"server_id":',
        kernel.GTID: ',"gtid":',
        kernel.FILE: ',"file":',
        kernel.POS: ',"pos":',
        kernel.ROW: ',"row":',
        kernel.END_SOURCE: ',"thread":null,"query":null},"transaction":',
        kernel.TRANSACTION: '{"id":',
        kernel.TOTAL_ORDER: ',"total_order":',
        kernel.COLLECTION_ORDER: ',"data_collection_order":',
        kernel.OP: ',"op":"',
        kernel.OP_END: '","ts_ms":',
        kernel.TS_US: ',"ts_us":',
        kernel.TAIL: "}}" if schema else "}",
    }


def key_schema(key: Sequence[FormatColumn], names: FormatNames) -> connect_schema.Schema:
    """The Connect schema of a key."""
    fields = [ordered(column.value.schema, optional=False, field=column.name) for column in key]
    return ordered(connect_schema.struct(fields, f"{names.topic}.Key"), optional=False)


def value_schema(columns: Sequence[FormatColumn], names: FormatNames) -> connect_schema.Schema:
    """The Connect schema of a value."""
    fields = [
        ordered(column.value.schema, optional=column.nullable, field=column.name)
        for column in columns
    ]
    row = connect_schema.struct(fields, f"{names.topic}.Value")
    return connect_schema.envelope(row, names.connector, f"{names.topic}.Envelope")
