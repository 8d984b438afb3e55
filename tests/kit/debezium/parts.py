"""Keys and values of records as schema and payload, for the comparison.

    JSON    as Kafka Connect's JsonConverter writes it, with or without its schema
    Avro    a byte 0, the ID of the schema in four bytes, Avro; bytes are read as base64

An Avro schema is read in the form of a Connect schema: ``fields`` with ``field``, the properties ``connect.…`` under
their names in Connect, and under names of their own what only Avro has.
"""

import base64
import io
import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import cache
from typing import Any, TypeAlias

import fastavro

Json: TypeAlias = Any
Parse: TypeAlias = Callable[[bytes | None], tuple[Json, Json]]  # schema (None for none) and payload
AVRO_FRAME = b"\0"
_CONNECT = "connect."
_AVRO_NAMES = {"name": "avro name", "namespace": "avro namespace", "default": "avro default"}


def json_parts(part: bytes | None) -> tuple[Json, Json]:
    """Read JSON. The schema is None if the converter wrote none."""
    if part is None:
        return None, None
    read = json.loads(part, parse_float=Decimal)
    if isinstance(read, dict) and read.keys() == {"schema", "payload"}:
        return read["schema"], read["payload"]
    return None, read


def avro_parts(schema_of: Callable[[int], Json]) -> Parse:
    """Reads Avro, whose schemas ``schema_of`` knows by their ID."""

    @cache
    def schemas(number: int) -> tuple[Json, Json]:
        schema = schema_of(number)
        return _as_connect(schema), fastavro.parse_schema(_without_logical(schema))

    def parts(part: bytes | None) -> tuple[Json, Json]:
        if part is None:
            return None, None
        assert part.startswith(AVRO_FRAME)
        connect, schema = schemas(int.from_bytes(part[1:5], "big"))
        stream = io.BytesIO(part[5:])
        value = fastavro.schemaless_reader(stream, schema, None)
        assert not stream.read(), "bytes after the record"
        return connect, _shown(value)

    return parts


def _without_logical(schema: Json) -> Json:
    if isinstance(schema, list):
        return [_without_logical(each) for each in schema]
    if isinstance(schema, dict):
        return {
            name: _without_logical(value) for name, value in schema.items() if name != "logicalType"
        }
    return schema


def _shown(value: object) -> object:
    if isinstance(value, dict):
        return {name: _shown(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_shown(each) for each in value]
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _as_connect(schema: Json) -> dict[str, Json]:
    if isinstance(schema, str):
        return {"type": schema}
    if isinstance(schema, list):
        (inner,) = (each for each in schema if each != "null")
        return _as_connect(inner) | {"optional": "null first" if schema[0] == "null" else "last"}
    read: dict[str, Json] = {}
    for name, value in schema.items():
        if name == "fields":
            read[name] = [_field(field) for field in value]
        elif name.startswith(_CONNECT) and name != "connect.type":
            read[name.removeprefix(_CONNECT)] = value
        else:
            read[_AVRO_NAMES.get(name, name)] = value
    return read


def _field(field: Mapping[str, Json]) -> Json:
    others = {
        _AVRO_NAMES.get(name, name): value
        for name, value in field.items()
        if name not in ("name", "type")
    }
    return _as_connect(field["type"]) | others | {"field": field["name"]}
