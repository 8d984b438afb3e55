"""A registry in memory, and fastavro as the reader of what was written with its IDs."""

import base64
import io
import json
from dataclasses import dataclass, field
from typing import Any

import fastavro

from millrace.schemas.record.framing import unframe

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
