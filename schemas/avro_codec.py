"""Avro bodies to plain Python values and back, by the text of the schema: the one module that knows fastavro.

Records are dicts, decimals ``Decimal``, bytes ``bytes``. This is the reference decoder: right first, tens of
thousands of rows a second; the kernels of producer and consumer are the fast ones. Wrong bytes are Fatal MR-6007,
also bytes left over.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from io import BytesIO
from typing import TypeAlias, cast

import fastavro
from fastavro.schema import SchemaParseException
from fastavro.types import Schema

from millrace.errors import Fatal

Plain: TypeAlias = (
    object  # str, int, float, bool, bytes, Decimal, None, list of these, dict of str to these
)
_WRONG_BYTES = (EOFError, ValueError, LookupError, TypeError, OverflowError, StopIteration)


def encode(schema_text: str, record: Mapping[str, Plain]) -> bytes:
    """The Avro body of ``record``."""
    out = BytesIO()
    fastavro.schemaless_writer(out, _parsed(schema_text), record)
    return out.getvalue()


def decode(schema_text: str, body: bytes) -> dict[str, Plain]:
    """The record in ``body``, all of it; Fatal MR-6007."""
    stream = BytesIO(body)
    try:
        record = fastavro.schemaless_reader(stream, _parsed(schema_text), None)
    except _WRONG_BYTES as error:
        raise Fatal("MR-6007", f"{len(body)} bytes don't fit their schema: {error}") from error
    if stream.tell() != len(body):
        raise Fatal("MR-6007", f"{len(body) - stream.tell()} of {len(body)} bytes are left over")
    return cast(dict[str, Plain], record)


def check_schema(schema_text: str) -> None:
    """Fatal MR-6010 if it is not an Avro schema."""
    _parsed(schema_text)


@lru_cache(maxsize=1024)
def _parsed(schema_text: str) -> Schema:
    try:
        return fastavro.parse_schema(json.loads(schema_text), named_schemas={})
    except (SchemaParseException, ValueError, LookupError) as error:
        raise Fatal("MR-6010", f"not an Avro schema: {error}") from error
