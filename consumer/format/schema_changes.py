"""Debezium's records about the structures of tables, as its topic of schema changes has them.

    {"databaseName":"shop"}
    {"source":{…},"ts_ms":…,"databaseName":"shop","schemaName":null,"ddl":"ALTER TABLE …","tableChanges":[
      {"type":"ALTER","id":"\\"shop\\".\\"orders\\"","table":{"defaultCharsetName":null,"primaryKeyColumnNames":["id"],
       "columns":[{"name":"id","jdbcType":-5,"typeName":"BIGINT",…}],"comment":null}}]}

A structure is that of the rows. What only the DDL says, which Millrace does not parse, is null.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millrace.consumer.format.avro_data import AvroSchemas
from millrace.consumer.format.avro_format import Register
from millrace.consumer.format.connect_schema import (
    schema_change_key,
    schema_change_value,
    schema_text,
)
from millrace.consumer.format.flat_columns import mysql_type
from millrace.schemas.record.avro_codec import Plain, encode
from millrace.schemas.record.avro_schema import canonical_text
from millrace.schemas.record.framing import frame
from millrace.schemas.table.structure import BINARY, LABELLED_CODES, Column, TypeCode
from millrace.schemas.view.format_options import FormatOptions
from millrace.schemas.view.table_view import TableView

Struct = Mapping[str, Plain]
_TYPE = re.compile(r"(\w+)(?:\((\d+)(?:,(\d+))?\))?((?: \w+)*)")
# java.sql.Types, as Debezium takes them
_JDBC_TYPES = {
    **dict.fromkeys(("tinyint", "smallint"), 5),
    **dict.fromkeys(("mediumint", "int", "year"), 4),
    "bigint": -5,
    "float": 6,
    "double": 8,
    "decimal": 3,
    "bit": -7,
    "date": 91,
    "time": 92,
    "datetime": 93,
    "timestamp": 2014,
    **dict.fromkeys(("char", "enum", "set"), 1),
    **dict.fromkeys(("varchar", "tinytext", "text", "mediumtext", "longtext"), 12),
    "binary": -2,
    "varbinary": -3,
    **dict.fromkeys(("tinyblob", "blob", "mediumblob", "longblob"), 2004),
}
_OTHER = 1111


@dataclass(frozen=True, slots=True)
class TableChange:
    """``type``: CREATE, ALTER or DROP. ``table``: database and table in the view; ``structure``: None if not known."""

    type: str
    table: tuple[str, str]
    structure: TableView | None = None


@dataclass(frozen=True, slots=True)
class SchemaChangeFormat:
    """``schemas``: as JSON with Connect's schemas. ``ids`` and ``texts``: in Avro, of key and value."""

    connector: str
    schemas: bool = False
    ids: tuple[int, int] | None = None
    texts: tuple[str, str] = ("", "")

    def record(
        self, source: Struct, text: str, changes: Sequence[TableChange]
    ) -> tuple[bytes, bytes]:
        """Key and value. ``source``: as in records of rows; ``text``: "" for none."""
        database = source["db"]
        value: Struct = {
            "source": dict(source),
            "ts_ms": source["ts_ms"],
            "databaseName": database,
            "schemaName": None,
            "ddl": text or None,
            "tableChanges": [_change(change) for change in changes],
        }
        key: Struct = {"databaseName": database}
        if self.ids is not None:
            pairs = zip(self.ids, self.texts, (key, value), strict=True)
            key_octets, value_octets = (frame(id_, encode(one, plain)) for id_, one, plain in pairs)
            return key_octets, value_octets
        if not self.schemas:
            return _json(key), _json(value)
        with_schemas = (
            (schema_change_key(self.connector), key),
            (schema_change_value(self.connector), value),
        )
        key_json, value_json = (
            f'{{"schema":{schema_text(schema)},"payload":'.encode() + _json(plain) + b"}"
            for schema, plain in with_schemas
        )
        return key_json, value_json


def make_schema_change_format(
    options: FormatOptions, topic: str, connector: str, register: Register
) -> SchemaChangeFormat:
    """The format of the topic's records. ``register``: for Avro, as ``avro_format``."""
    if not options.name.is_avro:
        return SchemaChangeFormat(connector, options.schemas)
    key, value = (
        canonical_text(AvroSchemas().of(schema))
        for schema in (schema_change_key(connector), schema_change_value(connector))
    )
    ids = (register(f"{topic}-key", key), register(f"{topic}-value", value))
    return SchemaChangeFormat(connector, ids=ids, texts=(key, value))


def _change(change: TableChange) -> Plain:
    database, table = (name.replace('"', '""') for name in change.table)
    structure = None if change.structure is None else _structure(change.structure)
    return {"type": change.type, "id": f'"{database}"."{table}"', "table": structure}


def _structure(view: TableView) -> Plain:
    return {
        "defaultCharsetName": None,
        "primaryKeyColumnNames": [view.columns[at].name for at in view.key],
        "columns": [_column(at, one.column) for at, one in enumerate(view.columns, 1)],
        "comment": None,
    }


def _column(position: int, column: Column) -> Plain:
    parts = _TYPE.match(mysql_type(column.type))
    assert parts is not None
    base, digits, scale, more = parts.groups()
    name = (base + more).upper()
    encoding, labels = column.type.text, column.type.labels
    length = int(digits) if digits else None
    if (
        column.type.code in LABELLED_CODES
    ):  # one of ENUM; of SET, as Debezium counts, all with commas
        length = 1 if column.type.code is TypeCode.ENUM else 2 * len(labels) - 1
    return {
        "name": column.name,
        "jdbcType": _JDBC_TYPES.get(base, _OTHER),
        "nativeType": None,
        "typeName": name,
        "typeExpression": name,
        "charsetName": encoding.charset if encoding and encoding.charset != BINARY else None,
        "length": length,
        "scale": int(scale) if scale else None,
        "position": position,
        "optional": column.nullable,
        "autoIncremented": None,
        "generated": None,
        "comment": None,
        "defaultValueExpression": None,
        "enumValues": [_quoted(label or "") for label in labels] if labels else None,
    }


def _quoted(label: str) -> str:
    return "'" + label.replace("'", "''") + "'"


def _json(plain: object) -> bytes:
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=False).encode()
