"""Rows of a record stream in Avro, with a registry in memory: records read by fastavro."""

import base64
import io
import json
from dataclasses import dataclass, field
from typing import Any

import fastavro
import numpy as np

from consumer.format.encoded import PART, SEQ, Encoded
from consumer.format.formats import make_format
from consumer.records.numbers import RecordNumbers
from consumer.view.changes import make_changes
from consumer.view.program import make_view_program, view_of
from schemas.record.framing import unframe
from schemas.table.structure import TableSchema
from schemas.view.format_options import FormatOptions
from schemas.view.view import View
from tests.kit.apply.topic import RecordStream
from tests.kit.format_rows import ALL, NAMES, Sent, walked

FIRST_ID = 0x01020304  # four bytes that differ


@dataclass(slots=True)
class MemoryRegistry:
    """IDs of schemas, and the subjects in the order of their registration."""

    texts: dict[int, str] = field(default_factory=dict)
    subjects: list[str] = field(default_factory=list)

    def register(self, subject: str, text: str) -> int:
        """The ID of a schema; the same for an equal one."""
        self.subjects.append(subject)
        known = next((number for number, each in self.texts.items() if each == text), 0)
        number = known or FIRST_ID + len(self.texts)
        self.texts[number] = text
        return number


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


def read_one(octets: bytes | None, registry: MemoryRegistry, *, logical: bool) -> object:
    """One key or value; None for none. All bytes belong to it."""
    if octets is None:
        return None
    number, body = unframe(octets)
    schema: Any = json.loads(registry.texts[number])
    stream = io.BytesIO(body)
    if logical:
        value: object = fastavro.schemaless_reader(stream, fastavro.parse_schema(schema), None)
    else:
        plain = _without_logical(schema)
        value = _shown(fastavro.schemaless_reader(stream, fastavro.parse_schema(plain), None))
    assert stream.read() == b""
    return value


def _without_logical(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical(each) for each in schema]
    if isinstance(schema, dict):
        plain = {name: _without_logical(each) for name, each in schema.items()}
        plain.pop("logicalType", None)
        return plain
    return schema


def _shown(value: object) -> object:
    """A value as JSON has it."""
    if isinstance(value, dict):
        return {name: _shown(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_shown(each) for each in value]
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value
