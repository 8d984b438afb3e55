"""Converts Avro bodies to plain Python values and back, given the schema's text. The only module that uses fastavro.

Records are dicts, decimals ``Decimal``, bytes ``bytes``. This is the reference decoder. It favors correctness and
decodes tens of thousands of rows a second; the kernels of producer and consumer are the fast decoders. Invalid and
trailing bytes raise Fatal MR-6007.

A schema can come from an untrusted place. If a schema contains itself, or has an array of items without bytes, a few
bytes can cause recursion of any depth (which ends the process) or any number of values. Such a schema is refused with
Fatal MR-6010.
"""

from collections.abc import Mapping
from functools import lru_cache
from io import BytesIO
from typing import TypeAlias, cast

import fastavro
from fastavro.schema import SchemaParseException
from fastavro.types import Schema

from millrace.errors import Fatal
from millrace.schemas.json_input import load_json

# str, int, float, bool, bytes, Decimal, None, list of these, dict of str to these
Plain: TypeAlias = object
DEPTH_MAX = 50  # Millrace's schemas have 5
_WRONG_SCHEMA = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
_WRONG_BYTES = (EOFError, ValueError, LookupError, TypeError, OverflowError, StopIteration)


def encode(schema_text: str, record: Mapping[str, Plain]) -> bytes:
    """The Avro body of ``record``."""
    out = BytesIO()
    fastavro.schemaless_writer(out, _parsed(schema_text), record)
    return out.getvalue()


def decode(schema_text: str, body: bytes) -> dict[str, Plain]:
    """The record in ``body``; Fatal MR-6007 unless ``body`` holds exactly one."""
    stream = BytesIO(body)
    try:
        record = fastavro.schemaless_reader(stream, _bounded(schema_text), None)
    except _WRONG_BYTES as error:
        raise Fatal("MR-6007", f"{len(body)} bytes don't match their schema: {error}") from error
    if stream.tell() != len(body):
        raise Fatal("MR-6007", f"{len(body) - stream.tell()} of {len(body)} bytes are left over")
    return cast(dict[str, Plain], record)


def check_schema(schema_text: str) -> None:
    """Fatal MR-6010 if it is not an Avro schema."""
    _parsed(schema_text)


@lru_cache(maxsize=1024)
def _bounded(schema_text: str) -> Schema:
    schema = _parsed(schema_text)
    _smallest(schema, {}, 0)
    return schema


def _smallest(schema: Schema, named: dict[str, int | None], depth: int) -> int:
    """The smallest size of a value in bytes; ``named`` holds that of named types, None while one is being checked."""
    if depth > DEPTH_MAX:
        raise Fatal("MR-6010", f"a schema is nested deeper than {DEPTH_MAX}")
    if isinstance(schema, str):
        found = named.get(schema, 0 if schema == "null" else 1)
        if found is None:
            raise Fatal("MR-6010", f"the schema of {schema[:200]} contains itself")
        return found
    if isinstance(schema, list):
        for branch in schema:
            _smallest(branch, named, depth + 1)
        return 1
    kind, name = schema["type"], str(schema.get("name", ""))
    if kind in ("record", "error"):
        named[name] = None
        size = sum(_smallest(field["type"], named, depth + 1) for field in schema["fields"])
    elif kind == "array":
        if _smallest(schema["items"], named, depth + 1) == 0:
            raise Fatal("MR-6010", "the items of an array take no bytes")
        return 1
    elif kind == "map":
        _smallest(schema["values"], named, depth + 1)
        return 1
    elif kind == "fixed":
        size = int(schema["size"])
    elif kind == "enum":
        size = 1
    else:
        return _smallest(kind, named, depth + 1)
    named[name] = size
    return size


@lru_cache(maxsize=1024)
def _parsed(schema_text: str) -> Schema:
    try:
        return fastavro.parse_schema(cast(Schema, load_json(schema_text)), named_schemas={})
    except (SchemaParseException, *_WRONG_SCHEMA) as error:
        raise Fatal("MR-6010", f"not an Avro schema: {error}"[:500]) from error
