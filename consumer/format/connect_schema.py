"""Schemas of Kafka Connect as its JsonConverter writes them into each record.

    {"schema": {"type": "struct", "fields": […], "optional": false, "name": …}, "payload": …}

The order of the members is JsonConverter's: the type and its parts, ``optional``, ``name``, ``version``, ``doc``,
``parameters``, ``default``, and ``field`` at the end. A schema here is a plain mapping whose order does not matter.
"""

import json
from collections.abc import Sequence

from millrace.schemas.record.avro_schema import Json

_ORDER = ("type", "items", "fields", "optional", "name", "version", "doc", "parameters", "default")

Schema = dict[str, Json]
_SNAPSHOTS = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"


def schema_text(schema: Schema) -> str:
    """JSON without blanks, as ``schema`` of a record has it."""
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False)


def ordered(schema: Schema, *, optional: bool, field: str = "") -> Schema:
    """One schema with its members in order; as a field of a struct, with its name."""
    whole: Schema = schema | {"optional": optional}
    result: Schema = {name: whole[name] for name in _ORDER if name in whole}
    return result | {"field": field} if field else result


def struct(fields: "Sequence[Json]", name: str, version: int = 0) -> Schema:
    """A struct of ordered fields; ``name`` may be ""."""
    schema: Schema = {"type": "struct", "fields": list(fields)}
    if name:
        schema["name"] = name
    return schema | {"version": version} if version else schema


def envelope(row: Schema, connector: str, name: str) -> Schema:
    """The schema of a value: images of ``row``, whose order the fields have."""
    fields: list[Json] = [
        ordered(row, optional=True, field="before"),
        ordered(row, optional=True, field="after"),
        ordered(_source(connector), optional=False, field="source"),
        ordered(_transaction(), optional=True, field="transaction"),
        _field("string", "op", optional=False),
        *(_field("int64", time, optional=True) for time in ("ts_ms", "ts_us", "ts_ns")),
    ]
    return ordered(struct(fields, name, 2), optional=False)


def _field(type_: str, name: str, *, optional: bool) -> Json:
    return ordered({"type": type_}, optional=optional, field=name)


def _source(connector: str) -> Schema:
    snapshot: Schema = {
        "type": "string",
        "name": "io.debezium.data.Enum",
        "version": 1,
        "parameters": {"allowed": _SNAPSHOTS},
        "default": "false",
    }
    fields: list[Json] = [
        *(_field("string", name, optional=False) for name in ("version", "connector", "name")),
        _field("int64", "ts_ms", optional=False),
        ordered(snapshot, optional=True, field="snapshot"),
        _field("string", "db", optional=False),
        _field("string", "sequence", optional=True),
        _field("int64", "ts_us", optional=True),
        _field("int64", "ts_ns", optional=True),
        _field("string", "table", optional=True),
        _field("int64", "server_id", optional=False),
        _field("string", "gtid", optional=True),
        _field("string", "file", optional=False),
        _field("int64", "pos", optional=False),
        _field("int32", "row", optional=False),
        _field("int64", "thread", optional=True),
        _field("string", "query", optional=True),
    ]
    return struct(fields, f"io.debezium.connector.{connector}.Source", 1)


def _transaction() -> Schema:
    fields: list[Json] = [
        _field("string", "id", optional=False),
        _field("int64", "total_order", optional=False),
        _field("int64", "data_collection_order", optional=False),
    ]
    return struct(fields, "event.block", 1)


def schema_change_key(connector: str) -> Schema:
    """The schema of a record in the topic of schema changes."""
    name = f"io.debezium.connector.{connector}.SchemaChangeKey"
    return ordered(
        struct([_field("string", "databaseName", optional=False)], name, 1), optional=False
    )


def schema_change_value(connector: str) -> Schema:
    """The schema of a record in the topic of schema changes."""
    change: list[Json] = [
        _field("string", "type", optional=False),
        _field("string", "id", optional=False),
        ordered(_table(), optional=True, field="table"),
    ]
    item: Json = ordered(struct(change, "io.debezium.connector.schema.Change", 1), optional=False)
    fields: list[Json] = [
        ordered(_source(connector), optional=False, field="source"),
        _field("int64", "ts_ms", optional=False),
        *(_field("string", name, optional=True) for name in ("databaseName", "schemaName", "ddl")),
        ordered({"type": "array", "items": item}, optional=False, field="tableChanges"),
    ]
    name = f"io.debezium.connector.{connector}.SchemaChangeValue"
    return ordered(struct(fields, name, 1), optional=False)


def _table() -> Schema:
    text: Json = ordered({"type": "string"}, optional=False)
    column: list[Json] = [
        _field("string", "name", optional=False),
        _field("int32", "jdbcType", optional=False),
        _field("int32", "nativeType", optional=True),
        _field("string", "typeName", optional=False),
        *(_field("string", name, optional=True) for name in ("typeExpression", "charsetName")),
        *(_field("int32", name, optional=True) for name in ("length", "scale")),
        _field("int32", "position", optional=False),
        *(
            _field("boolean", name, optional=True)
            for name in ("optional", "autoIncremented", "generated")
        ),
        *(_field("string", name, optional=True) for name in ("comment", "defaultValueExpression")),
        ordered({"type": "array", "items": text}, optional=True, field="enumValues"),
    ]
    columns: Json = ordered(
        struct(column, "io.debezium.connector.schema.Column", 1), optional=False
    )
    fields: list[Json] = [
        _field("string", "defaultCharsetName", optional=True),
        ordered({"type": "array", "items": text}, optional=True, field="primaryKeyColumnNames"),
        ordered({"type": "array", "items": columns}, optional=False, field="columns"),
        _field("string", "comment", optional=True),
    ]
    return struct(fields, "io.debezium.connector.schema.Table", 1)


def heartbeat_key() -> Schema:
    """The schema of a heartbeat."""
    name = "io.debezium.connector.common.ServerNameKey"
    return ordered(
        struct([_field("string", "serverName", optional=False)], name, 1), optional=False
    )


def heartbeat_value() -> Schema:
    """The schema of a heartbeat."""
    name = "io.debezium.connector.common.Heartbeat"
    return ordered(struct([_field("int64", "ts_ms", optional=False)], name, 1), optional=False)


def transaction_key() -> Schema:
    """The schema of a record in the transaction topic."""
    name = "io.debezium.connector.common.TransactionMetadataKey"
    return ordered(struct([_field("string", "id", optional=False)], name, 1), optional=False)


def transaction_value() -> Schema:
    """The schema of a record in the transaction topic."""
    count: list[Json] = [
        _field("string", "data_collection", optional=False),
        _field("int64", "event_count", optional=False),
    ]
    items: Json = ordered(struct(count, "event.collection", 1), optional=True)
    fields: list[Json] = [
        _field("string", "status", optional=False),
        _field("string", "id", optional=False),
        _field("int64", "event_count", optional=True),
        ordered({"type": "array", "items": items}, optional=True, field="data_collections"),
        _field("int64", "ts_ms", optional=False),
    ]
    name = "io.debezium.connector.common.TransactionMetadataValue"
    return ordered(struct(fields, name, 1), optional=False)
