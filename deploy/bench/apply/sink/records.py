"""Rows of a set topic as Debezium's MySQL connector writes them, for Kafka Connect's JsonConverter.

    key      {"id": 7}
    value    {"before": null, "after": {…}, "source": {…}, "op": "c", "ts_ms": 1700000000000}

One topic and one schema a table, as Debezium has them. The schema is not in the records: Connect's ``schema.content``
gives it once, which costs the sink less. Types are those of Debezium's default settings: DECIMAL is unscaled bytes in
base64, DATETIME(f) counts milliseconds (f up to 3) or microseconds since 1970 in UTC, BIT(1) is a boolean.

Not done here: column types that the bulk load does not have (Fatal MR-9001).
"""

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

from millrace.errors import Fatal
from millrace.schemas.record.record import Image, RowRecord
from millrace.schemas.record.row_layout import RowLayout
from millrace.schemas.table.structure import Column, ColumnType, TypeCode

Schema: TypeAlias = Mapping[str, object]  # Kafka Connect's, as JSON
Convert: TypeAlias = Callable[[Any], object]

VERSION = "3.5.0.Final"
_MS, _US = timedelta(milliseconds=1), timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - DATETIME has no zone
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_INTEGERS = {  # signed, unsigned
    TypeCode.TINY: ("int16", "int16"),
    TypeCode.SHORT: ("int16", "int32"),
    TypeCode.INT24: ("int32", "int32"),
    TypeCode.LONG: ("int32", "int64"),
    TypeCode.LONGLONG: ("int64", "int64"),
}
_SOURCE_FIELDS = {
    "version": "string",
    "connector": "string",
    "name": "string",
    "ts_ms": "int64",
    "db": "string",
    "table": "string",
    "server_id": "int64",
    "gtid": "string",
    "file": "string",
    "pos": "int64",
    "row": "int32",
}


@dataclass(frozen=True, slots=True)
class SinkTable:
    """The schemas of a table's keys and values, and how its rows become records of them."""

    key_schema: Schema
    value_schema: Schema
    converts: Mapping[str, Convert]

    @classmethod
    def of(cls, layout: RowLayout) -> "SinkTable":
        """For the rows of this layout; its primary key is the record's key."""
        table = layout.table
        name = f"{layout.set_name}.{table.full_name}"
        fields = [_field(column) for column in table.columns]
        keys = [fields[index] for index in table.primary_key]
        images = [
            {**_struct(f"{name}.Value", fields), "optional": True, "field": image}
            for image in ("before", "after")
        ]
        source = [
            {"type": kind, "optional": False, "field": field}
            for field, kind in _SOURCE_FIELDS.items()
        ]
        envelope = [
            *images,
            {**_struct("io.debezium.connector.mysql.Source", source), "field": "source"},
            {"type": "string", "optional": False, "field": "op"},
            {"type": "int64", "optional": True, "field": "ts_ms"},
        ]
        return cls(
            _struct(f"{name}.Key", keys),
            _struct(f"{name}.Envelope", envelope),
            {column.name: _convert(column.type) for column in table.columns},
        )

    def record(self, row: RowRecord) -> tuple[bytes, bytes]:
        """Key and value of a row. Fatal MR-9001 for a row without a primary key."""
        if row.key is None:
            raise Fatal("MR-9001", f"a row of {row.source.table} has no primary key")
        source, place = row.source, row.source.place
        value = {
            "before": self._plain(row.change.before),
            "after": self._plain(row.change.after),
            "source": {
                "version": VERSION,
                "connector": "mysql",
                "name": source.origin.set_name,
                "ts_ms": place.ts_ms,
                "db": source.database,
                "table": source.table,
                "server_id": place.server_id,
                "gtid": place.gtid,
                "file": place.file,
                "pos": place.pos,
                "row": source.row,
            },
            "op": row.change.op,
            "ts_ms": row.ts_ms,
        }
        return _encode(self._plain(row.key)), _encode(value)

    def _plain(self, image: Image | None) -> Mapping[str, object] | None:
        if image is None:
            return None
        converts = self.converts
        return {
            name: None if value is None else converts[name](value) for name, value in image.items()
        }


def _encode(plain: object) -> bytes:
    return _JSON.encode(plain).encode()


def _struct(name: str, fields: list[dict[str, object]]) -> dict[str, object]:
    return {"type": "struct", "name": name, "version": 1, "optional": False, "fields": fields}


def _field(column: Column) -> dict[str, object]:
    return {**_type(column.type), "optional": column.nullable, "field": column.name}


def _type(of: ColumnType) -> dict[str, object]:
    """The Connect type, with the name of Debezium's logical type."""
    if of.code in _INTEGERS:
        return {"type": _INTEGERS[of.code][of.is_unsigned]}
    if of.is_text:
        return {"type": "string"}
    match of.code:
        case TypeCode.FLOAT | TypeCode.DOUBLE:
            return {"type": "float" if of.code is TypeCode.FLOAT else "double"}
        case TypeCode.NEWDECIMAL:
            digits = {"scale": str(of.scale), "connect.decimal.precision": str(of.precision)}
            name = "org.apache.kafka.connect.data.Decimal"
            return {"type": "bytes", "name": name, "version": 1, "parameters": digits}
        case TypeCode.DATETIME2:
            name = "Timestamp" if of.fraction_digits <= 3 else "MicroTimestamp"
            return {"type": "int64", "name": f"io.debezium.time.{name}", "version": 1}
        case TypeCode.BIT if of.bit_count == 1:
            return {"type": "boolean"}
        case TypeCode.ENUM:
            allowed = {"allowed": ",".join(label or "" for label in of.labels)}
            name = "io.debezium.data.Enum"
            return {"type": "string", "name": name, "version": 1, "parameters": allowed}
        case TypeCode.JSON:
            return {"type": "string", "name": "io.debezium.data.Json", "version": 1}
    raise Fatal("MR-9001", f"the benchmark's sink has no type for {of.code.name}")


def _convert(of: ColumnType) -> Convert:
    match of.code:
        case TypeCode.LONGLONG if of.is_unsigned:
            return int
        case TypeCode.NEWDECIMAL:
            return _decimal
        case TypeCode.DATETIME2:
            unit = _MS if of.fraction_digits <= 3 else _US
            return lambda text: (datetime.fromisoformat(text) - _EPOCH) // unit
        case TypeCode.BIT:
            return lambda bits: bits != b"\x00"
    return _same


def _same(value: object) -> object:
    return value


def _decimal(value: Decimal) -> str:
    """The unscaled value as big-endian two's complement, in base64."""
    sign, digits, _ = value.as_tuple()
    unscaled = int("".join(map(str, digits)))
    if sign:
        unscaled = -unscaled
    return b64encode(unscaled.to_bytes(unscaled.bit_length() // 8 + 1, signed=True)).decode()
