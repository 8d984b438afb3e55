"""Debezium's heartbeats: how far the topics of a task are. Apart: their bytes are tested without a task.

    {"serverName":"shop-public"}
    {"ts_ms":1700000000123}

``ts_ms`` is not the time of writing, as in Debezium, but the source's commit of the last record that the set topic has
before the heartbeat: then it promises something.
"""

import json
from dataclasses import dataclass

from millrace.consumer.format.avro_data import AvroSchemas
from millrace.consumer.format.avro_format import Register, encoded
from millrace.consumer.format.connect_schema import heartbeat_key, heartbeat_value, schema_text
from millrace.schemas.record.avro_schema import canonical_text
from millrace.schemas.record.framing import frame
from millrace.schemas.view.format_options import FormatOptions


@dataclass(frozen=True, slots=True)
class HeartbeatFormat:
    """``schemas``: as JSON with Connect's schemas. ``ids``: in Avro; the IDs of the schemas of key and value."""

    schemas: bool = False
    ids: tuple[int, int] | None = None

    def record(self, name: str, ts_ms: int) -> tuple[bytes, bytes]:
        """Key and value. ``name``: the task's."""
        if self.ids is not None:
            key, value = self.ids
            return frame(key, encoded(name)), frame(value, encoded(ts_ms))
        plain = ({"serverName": name}, {"ts_ms": ts_ms})
        if not self.schemas:
            return _json(plain[0]), _json(plain[1])
        schemas = (heartbeat_key(), heartbeat_value())
        key_json, value_json = (
            f'{{"schema":{schema_text(schema)},"payload":'.encode() + _json(one) + b"}"
            for schema, one in zip(schemas, plain, strict=True)
        )
        return key_json, value_json


def make_heartbeat_format(
    options: FormatOptions, topic: str, register: Register
) -> HeartbeatFormat:
    """The format of the topic's records. ``register``: for Avro, as ``avro_format``."""
    if not options.name.is_avro:
        return HeartbeatFormat(options.schemas)
    key, value = (
        canonical_text(AvroSchemas().of(schema)) for schema in (heartbeat_key(), heartbeat_value())
    )
    return HeartbeatFormat(ids=(register(f"{topic}-key", key), register(f"{topic}-value", value)))


def _json(plain: object) -> bytes:
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=False).encode()
