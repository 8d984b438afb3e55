"""The Avro schemas of a table's records: ``Envelope`` (value) and ``Key``, with the table's structure in them.

    Envelope, namespace millrace.<set>.<database>.<table>      (docs/record.md describes every field)
      before       null | Row        one field per column, in table order, named by ``names.escape_name``
      after        null | Row
      source       millrace.Source   string fields first; identical for every table
      op           string            c, u, d, r
      ts_ms        long              commit time
      transaction  millrace.Transaction      ``last`` is the last byte of the record
    Key, same namespace                                        the primary-key columns, never null

A nullable column is a union with null first. The branches are in the order of ``column_branches``; the kernels write
their numbers. Properties (``millrace.…``) on ``Row`` and its fields carry everything that ``TableSchema`` holds, so
``schemas.record.row_layout`` can restore it completely.

Guarantees: equal set names and tables give the same text, byte for byte. A schema's identity is the SHA-256 of its
text, including the properties. Not done here: encoding records (producer's kernels), registering (``registry``).
"""

import json
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, TypeAlias

from millrace.errors import Fatal
from millrace.schemas.json_input import load_json
from millrace.schemas.record.names import escape_name, namespace
from millrace.schemas.table.structure import (
    FRACTION_CODES,
    TEMPORAL_CODES,
    Column,
    TableSchema,
    TypeCode,
)
from millrace.schemas.table.type_text import length_characters, type_text

Json: TypeAlias = "str | int | bool | list[Json] | dict[str, Json] | None"

NAMESPACE = "millrace"
SOURCE_VERSION = "0.1.0"  # ``source.version``: the version of the record layout, not of the program

_INT = frozenset({TypeCode.TINY, TypeCode.SHORT, TypeCode.INT24, TypeCode.YEAR})
_DECIMAL_OF_UNSIGNED_64 = (20, 0)


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A schema as it is registered; ``text`` is canonical JSON, ``fingerprint`` its SHA-256 in hex."""

    full_name: str
    text: str
    fingerprint: str

    @classmethod
    def of(cls, definition: "dict[str, Json]") -> "AvroSchema":
        """From a record definition with ``namespace`` and ``name``."""
        text = canonical_text(definition)
        full_name = f"{definition['namespace']}.{definition['name']}"
        return cls(full_name, text, sha256(text.encode()).hexdigest())

    @classmethod
    def parse(cls, text: str) -> "AvroSchema":
        """From a stored text, which is not changed; the fingerprint is that of this text. Fatal MR-6010."""
        try:
            definition: Any = load_json(text)
            full_name = f"{definition['namespace']}.{definition['name']}"
        except (ValueError, LookupError, TypeError) as error:
            raise Fatal("MR-6010", f"not a named Avro schema: {text[:80]!r}") from error
        return cls(full_name, text, sha256(text.encode()).hexdigest())

    def subject(self, topic: str) -> str:
        """The subject under which it is registered: topic and record name."""
        return f"{topic}-{self.full_name}"


def canonical_text(definition: Json) -> str:
    """JSON without blanks, with names and properties in the given order and text in UTF-8."""
    return json.dumps(definition, separators=(",", ":"), ensure_ascii=False)


def _record(name: str, fields: "list[Json]") -> "dict[str, Json]":
    return {"type": "record", "name": name, "namespace": NAMESPACE, "fields": fields}


def _fields(type_: str, *names: str) -> "list[Json]":
    return [{"name": name, "type": type_} for name in names]


SOURCE: "dict[str, Json]" = _record(
    "Source",
    [
        *_fields("string", "version", "connector", "name", "snapshot", "db", "table", "set"),
        *_fields("long", "ts_ms", "server_id"),
        *_fields("string", "gtid", "file"),
        *_fields("long", "pos"),
        *_fields("int", "row", "event_flags"),
        *_fields("long", "seq"),
    ],
)
TRANSACTION: "dict[str, Json]" = _record(
    "Transaction",
    [*_fields("string", "id"), *_fields("long", "total_order"), *_fields("boolean", "last")],
)


def envelope_schema(set_name: str, table: TableSchema) -> AvroSchema:
    """The schema of the table's row record values."""
    row: dict[str, Json] = {
        "type": "record",
        "name": "Row",
        "millrace.set": set_name,
        "millrace.database": table.database,
        "millrace.table": table.table,
        "millrace.primary_key": [table.columns[index].name for index in table.primary_key],
    }
    if any(table.primary_key_prefixes):
        row["millrace.primary_key_prefixes"] = list(table.primary_key_prefixes)
    if table.omitted:
        row["millrace.omitted"] = list(table.omitted)
    row["fields"] = [_column_field(column, column.nullable) for column in table.columns]
    return AvroSchema.of(
        {
            "type": "record",
            "name": "Envelope",
            "namespace": namespace(set_name, table.database, table.table),
            "fields": [
                {"name": "before", "type": ["null", row], "default": None},
                {"name": "after", "type": ["null", "Row"], "default": None},
                {"name": "source", "type": SOURCE},
                {"name": "op", "type": "string"},
                {"name": "ts_ms", "type": "long"},
                {"name": "transaction", "type": TRANSACTION},
            ],
        }
    )


def key_schema(set_name: str, table: TableSchema) -> AvroSchema | None:
    """The schema of the table's record keys: whole values of the primary-key columns. None without a primary key."""
    if not table.primary_key:
        return None
    return AvroSchema.of(
        {
            "type": "record",
            "name": "Key",
            "namespace": namespace(set_name, table.database, table.table),
            "fields": [_column_field(table.columns[index], False) for index in table.primary_key],
        }
    )


def column_branches(column: Column) -> tuple[str, ...]:
    """The Avro types of a column's values in branch order, "null" first if the column is nullable.

    A single branch is written without a number. A text column has ("string", "bytes"): bytes if the value is not valid
    text. An ENUM has ("string", "int") and a SET ("string", "long"): the number if there is no label.
    """
    values = _value_branches(column)
    return ("null", *values) if column.nullable else values


def _value_branches(column: Column) -> tuple[str, ...]:
    type_ = column.type
    if type_.code in _INT:
        return ("int",)
    if type_.code is TypeCode.LONG:
        return ("long",) if type_.is_unsigned else ("int",)
    if type_.code is TypeCode.LONGLONG:
        return ("bytes",) if type_.is_unsigned else ("long",)
    if type_.code is TypeCode.FLOAT:
        return ("float",)
    if type_.code is TypeCode.DOUBLE:
        return ("double",)
    if type_.code in TEMPORAL_CODES or type_.code is TypeCode.JSON:
        return ("string",)
    if type_.code is TypeCode.ENUM:
        return ("string", "int")
    if type_.code is TypeCode.SET:
        return ("string", "long")
    return ("string", "bytes") if type_.is_text else ("bytes",)


def decimal_digits(column: Column) -> tuple[int, int] | None:
    """(precision, scale) of a column that is encoded as an Avro decimal, else None."""
    if column.type.code is TypeCode.NEWDECIMAL:
        return column.type.precision, column.type.scale
    if column.type.code is TypeCode.LONGLONG and column.type.is_unsigned:
        return _DECIMAL_OF_UNSIGNED_64
    return None


def _column_field(column: Column, nullable: bool) -> Json:
    values: list[Json] = [_branch(branch, column) for branch in _value_branches(column)]
    field: dict[str, Json] = {"name": escape_name(column.name)}
    if nullable:
        field |= {"type": ["null", *values], "default": None}
    else:
        field["type"] = values if len(values) > 1 else values[0]
    return field | column_properties(column)


def _branch(branch: str, column: Column) -> Json:
    digits = decimal_digits(column)
    if branch != "bytes" or digits is None:
        return branch
    return {"type": "bytes", "logicalType": "decimal", "precision": digits[0], "scale": digits[1]}


def column_properties(column: Column) -> "dict[str, Json]":
    """A column's properties next to the Avro type; ``code`` and ``parameter`` as in ``schemas.table.structure``."""
    type_ = column.type
    found: dict[str, Json] = {
        "millrace.name": column.name,
        "millrace.type": type_text(type_),
        "millrace.code": int(type_.code),
    }
    if type_.parameter:
        found["millrace.parameter"] = type_.parameter
    if length := length_characters(type_):
        found["millrace.length"] = length
    if type_.code is TypeCode.NEWDECIMAL:
        found |= {"millrace.precision": type_.precision, "millrace.scale": type_.scale}
    if type_.code in FRACTION_CODES:
        found["millrace.fraction_digits"] = type_.fraction_digits
    if type_.text is not None:
        found |= {
            "millrace.charset": type_.text.charset,
            "millrace.collation": type_.text.collation_id,
        }
    if type_.labels:
        found["millrace.labels"] = list(type_.labels)
    if type_.extent:
        found["millrace.extent"] = type_.extent
    if type_.is_unsigned:
        found["millrace.unsigned"] = True
    if not column.is_visible:
        found["millrace.visible"] = False
    return found
