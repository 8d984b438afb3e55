"""``debezium-avro`` and ``avro``: one pass of a kernel over all changes of a batch, as ``json_format``.

``make_avro_format`` registers the schemas of a table under ``<topic>-key`` and ``<topic>-value``, and compiles options,
view and structure into arrays, once for each table and schema. The registry gives one schema the same ID again, so a
replay gives equal bytes. Errors of the registry are those of ``registry.client``: no record is written before.
"""

import json
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from millrace.consumer.format.avro_data import DECIMAL, AvroSchemas, full_name
from millrace.consumer.format.connect_schema import Schema
from millrace.consumer.format.json_format import key_schema, value_schema
from millrace.consumer.format.json_object import (
    FormatColumn,
    check_columns,
    format_columns,
    text_bytes,
)
from millrace.consumer.format.record_format import RecordArrays, RecordFormat, RecordKernel
from millrace.consumer.format.table_format import FormatNames
from millrace.consumer.format.undecodable import undecoded
from millrace.consumer.kernel import avro_records as kernel
from millrace.consumer.kernel import json_values
from millrace.consumer.kernel.avro_values import AVRO_COLUMN_WIDTH, RAW
from millrace.consumer.kernel.compiled import Bytes
from millrace.consumer.kernel.record_parts import KEY_TAIL
from millrace.consumer.records.numbers import Ints
from millrace.schemas.record.avro_schema import SOURCE, TRANSACTION, Json, canonical_text
from millrace.schemas.record.framing import frame
from millrace.schemas.record.names import escape_name
from millrace.schemas.record.row_layout import RowLayout
from millrace.schemas.view.format_options import FormatName, FormatOptions
from millrace.schemas.view.table_view import TableView

Register = Callable[[str, str], int]  # subject and schema to ID
_TYPES = {"int16": "int", "int32": "int", "int64": "long"}


_KERNEL = RecordKernel(kernel.encode, kernel.count_events)


def make_avro_format(
    options: FormatOptions,
    view: TableView,
    layout: RowLayout,
    names: FormatNames,
    register: Register,
) -> RecordFormat:
    """The records of a table in a view; Fatal MR-6532. Registers its schemas."""
    check_columns(options, view, layout)
    columns = format_columns(options, view, layout)
    key = [columns[at] for at in view.key]
    is_debezium = options.name is FormatName.DEBEZIUM_AVRO
    schema_of = _debezium_schemas if is_debezium else _own_schemas
    key_text, value_text = schema_of(key, columns, names)
    frames = {kernel.VALUE_FRAME: frame(register(f"{names.topic}-value", value_text), b"")}
    if key:
        frames[kernel.KEY_FRAME] = frame(register(f"{names.topic}-key", key_text), b"")
    fixed = _FixedBytes()
    keys, key_tail = fixed.program(key, is_key=True)
    row, row_tail = fixed.program(columns)
    database, table = (encoded(name) for name in view.name)
    pieces = frames | {
        KEY_TAIL: key_tail,
        kernel.ROW_TAIL: row_tail,
        kernel.NAME: encoded(names.prefix),
        kernel.DB: database,
        kernel.TABLE: (b"\x02" if is_debezium else b"") + table,
    }
    places: Ints = np.zeros((kernel.PIECES_MAX, 2), np.int64)
    for piece, octets in pieces.items():
        places[piece] = fixed.add(octets)
    settings: Ints = np.zeros(kernel.SETTINGS, np.int64)
    settings[kernel.LAYOUT] = kernel.DEBEZIUM if is_debezium else kernel.OWN
    settings[kernel.HAS_TOMBSTONES] = options.tombstones
    # the constants of an image are in both
    fixed_bytes = (
        2 * text_bytes(row) + text_bytes(keys) + len(row_tail) + sum(map(len, pieces.values()))
    )
    arrays = RecordArrays(row, keys, fixed.array(), places, settings, fixed_bytes)
    texts = undecoded(options, view, layout)
    return RecordFormat(layout.table.full_name, len(layout.table.columns), _KERNEL, arrays, texts)


def encoded(value: str | int) -> bytes:
    """A text or a number in Avro's encoding."""
    if isinstance(value, str):
        octets = value.encode()
        return encoded(len(octets)) + octets
    rest = (value << 1 ^ value >> 63) & (1 << 64) - 1
    octets = b""
    while rest >= 0x80:
        octets += bytes((rest & 0x7F | 0x80,))
        rest >>= 7
    return octets + bytes((rest,))


class _FixedBytes:
    """Collects the bytes that are the same in all records; equal ones once."""

    def __init__(self) -> None:
        self._octets = bytearray()
        self._places: dict[bytes, tuple[int, int]] = {b"": (0, 0)}

    def add(self, octets: bytes) -> tuple[int, int]:
        """Their start and end."""
        if octets not in self._places:
            start = len(self._octets)
            self._octets += octets
            self._places[octets] = (start, len(self._octets))
        return self._places[octets]

    def program(
        self, columns: Sequence[FormatColumn], *, is_key: bool = False
    ) -> tuple[Ints, bytes]:
        """Lines of ``kernel.avro_values`` for the columns of a record, and the constants after the last one."""
        lines = []
        constants = b""
        for column in columns:
            if column.source < 0:
                constants += encoded(cast("str | int", json.loads(column.constant)))
                continue
            value = column.value
            is_raw = value.form == json_values.BINARY and value.schema["type"] == "bytes"
            form = (column.source, RAW if is_raw else value.form, value.parameter, column.fallback)
            epoch = encoded(cast("str | int", json.loads(value.epoch or "0")))
            is_nullable = column.nullable and not is_key
            lines.append((*form, *self.add(constants), *self.add(epoch), is_nullable))
            constants = b""
        array: Ints = np.array(lines, np.int64).reshape(-1, AVRO_COLUMN_WIDTH)
        return array, constants

    def array(self) -> Bytes:
        """All bytes."""
        return np.frombuffer(bytes(self._octets) or b" ", np.uint8)


def _debezium_schemas(
    key: Sequence[FormatColumn], columns: Sequence[FormatColumn], names: FormatNames
) -> tuple[str, str]:
    """The texts of the schemas of key and value."""
    texts = [
        canonical_text(AvroSchemas().of(schema))
        for schema in (key_schema(key, names), value_schema(columns, names))
    ]
    return texts[0], texts[1]


def _own_schemas(
    key: Sequence[FormatColumn], columns: Sequence[FormatColumn], names: FormatNames
) -> tuple[str, str]:
    """The same for the envelope of the set topic, in the namespace of the output topic."""
    space = full_name(names.topic)
    row: Json = {
        "type": "record",
        "name": "Row",
        "fields": [_own_field(column, nullable=column.nullable) for column in columns],
    }
    envelope: list[Json] = [
        {"name": "before", "type": ["null", row], "default": None},
        {"name": "after", "type": ["null", "Row"], "default": None},
        {"name": "source", "type": SOURCE},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": "long"},
        {"name": "transaction", "type": TRANSACTION},
    ]
    fields = {"Key": [_own_field(column, nullable=False) for column in key], "Envelope": envelope}
    texts = [
        canonical_text({"type": "record", "name": name, "namespace": space, "fields": each})
        for name, each in fields.items()
    ]
    return texts[0], texts[1]


def _own_field(column: FormatColumn, *, nullable: bool) -> Json:
    type_ = _own_type(column.value.schema)
    name = escape_name(column.name)
    field: Schema = {"name": name, "type": ["null", type_] if nullable else type_}
    if nullable:
        field["default"] = None
    return field if name == column.name else field | {"millrace.name": column.name}


def _own_type(schema: Schema) -> Json:
    """A type of Avro without the names and parameters of Connect."""
    kind = cast(str, schema["type"])
    kind = _TYPES.get(kind, kind)
    if schema.get("name") == DECIMAL:
        parameters = cast(Schema, schema["parameters"])
        return {
            "type": kind,
            "logicalType": "decimal",
            "precision": int(cast(str, parameters["connect.decimal.precision"])),
            "scale": int(cast(str, parameters["scale"])),
        }
    if "logicalType" in schema:
        return {"type": kind, "logicalType": schema["logicalType"]}
    return kind
