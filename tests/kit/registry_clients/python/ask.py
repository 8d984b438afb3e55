"""Asks a registry with Confluent's client: ask.py REGISTRY TOPIC FRAME (in hex). Prints what it got as JSON."""

import json
import sys
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext


def main(registry: str, topic: str, frame: str) -> dict[str, Any]:
    """The answers, each by another call."""
    octets, subject = bytes.fromhex(frame), f"{topic}-value"
    deserialize = AvroDeserializer(SchemaRegistryClient({"url": registry}))
    row = deserialize(octets, SerializationContext(topic, MessageField.VALUE))
    client = SchemaRegistryClient({"url": registry})  # the other one remembers
    schema = client.get_schema(int.from_bytes(octets[1:5], "big"), subject)
    assert schema.schema_str is not None
    return {
        "row": row,
        "schema": json.loads(schema.schema_str),
        "latest": client.get_latest_version(subject).schema_id,
        "first": client.get_version(subject, 1).schema_id,
        "subjects": client.get_subjects(),
        "versions": client.get_versions(subject),
        "id": client.lookup_schema(subject, schema).schema_id,
        "compatible": client.test_compatibility(subject, schema),
        "level": client.get_compatibility(subject),
    }


if __name__ == "__main__":
    try:
        print(json.dumps(main(*sys.argv[1:])))
    except (KafkaException, SchemaRegistryError) as error:
        sys.exit(str(error))
