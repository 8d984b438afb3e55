"""Schemas of Kafka Connect as Avro schemas: those that Confluent's and Apicurio's AvroConverter register.

A Connect schema is a mapping of ``connect_schema``. What Avro has no place for becomes a property: ``connect.version``,
``connect.parameters``, ``connect.default``, ``connect.name``, and ``connect.type`` of a number that Avro does not have.
An optional type is a union with null first, or with null last if it has a default. A record is described where it is
first used, then named. The order of members is that of Avro's Java library, so equal schemas have equal texts.
"""

import re
from typing import cast

from millrace.consumer.format.connect_schema import Schema
from millrace.schemas.record.avro_schema import Json
from millrace.schemas.record.names import escape_name

DECIMAL = "org.apache.kafka.connect.data.Decimal"
_TYPES = {
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "string": "string",
    "bytes": "bytes",
}
_LOGICAL_TYPES = {
    DECIMAL: "decimal",
    "org.apache.kafka.connect.data.Date": "date",
    "org.apache.kafka.connect.data.Time": "time-millis",
    "org.apache.kafka.connect.data.Timestamp": "timestamp-millis",
}
_NOT_OF_A_NAME = re.compile("[^A-Za-z0-9_]")


def full_name(name: str) -> str:
    """A name with dots as Avro allows it: other characters, and a digit at the begin of a part, become ``_``."""
    parts = (_NOT_OF_A_NAME.sub("_", part) for part in name.split("."))
    return ".".join("_" + part[1:] if part[:1].isdigit() or not part else part for part in parts)


class AvroSchemas:
    """Converts the parts of one schema. Names of the records that are described are kept."""

    def __init__(self) -> None:
        self._described: set[str] = set()

    def of(self, schema: Schema, namespace: str = "") -> Json:
        """The Avro schema. ``namespace``: that of the record around it."""
        base = self._base(schema, namespace)
        if not schema.get("optional"):
            return base
        return [base, "null"] if "default" in schema else ["null", base]

    def _base(self, schema: Schema, namespace: str) -> Json:
        kind = cast(str, schema["type"])
        if kind == "struct":
            return self._record(schema, namespace)
        if kind == "array":
            items = self.of(cast(Schema, schema["items"]), namespace)
            return {"type": "array", "items": items} | _properties(schema)
        properties = _properties(schema)
        return {"type": _TYPES[kind], **properties} if properties else _TYPES[kind]

    def _record(self, schema: Schema, namespace: str) -> Json:
        whole = full_name(cast(str, schema["name"]))
        own_space, _, name = whole.rpartition(".")
        if whole in self._described:
            return name if own_space == namespace else whole
        self._described.add(whole)
        record: Schema = {"type": "record", "name": name}
        if own_space != namespace:
            record["namespace"] = own_space
        record["fields"] = [
            self._field(cast(Schema, field), own_space)
            for field in cast("list[Json]", schema["fields"])
        ]
        return record | _properties(schema | {"name": whole})

    def _field(self, schema: Schema, namespace: str) -> Json:
        field: Schema = {
            "name": escape_name(cast(str, schema["field"])),
            "type": self.of(schema, namespace),
        }
        if "default" in schema:
            field["default"] = schema["default"]
        elif schema.get("optional"):
            field["default"] = None
        return field


def _properties(schema: Schema) -> Schema:
    """The properties in the order in which the converters add them."""
    name = schema.get("name")
    properties: Schema = {}
    if name == DECIMAL:
        parameters = cast(Schema, schema["parameters"])
        properties["scale"] = int(cast(str, parameters["scale"]))
        properties["precision"] = int(cast(str, parameters["connect.decimal.precision"]))
    for member in ("doc", "version", "parameters", "default", "name"):
        if member in schema:
            properties[f"connect.{member}"] = schema[member]
    if schema["type"] in ("int8", "int16"):
        properties["connect.type"] = schema["type"]
    if name in _LOGICAL_TYPES:
        properties["logicalType"] = _LOGICAL_TYPES[name]
    return properties
