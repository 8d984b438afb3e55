"""Keeps the rows of a table from a topic of a Millrace publish task with `format: avro`, with Quix Streams.

    pip install -r requirements.txt
    python program.py localhost:9092 http://localhost:8081 public.shop.orders

Each row is printed as JSON. Header `n` counts the records of each partition from 1, without gaps: a record that is
missing ends the program. Quix Streams does not report the end of a partition, so the program ends when no record has
come for thirty seconds.
"""

import json
import sys
from uuid import uuid4

from quixstreams import Application, message_context
from quixstreams.models.serializers.avro import AvroDeserializer
from quixstreams.models.serializers.schema_registry import SchemaRegistryClientConfig

bootstrap, registry, topic = sys.argv[1:]
app = Application(
    broker_address=bootstrap,
    consumer_group=f"example-quixstreams-{uuid4()}",  # begins with the first record
    auto_offset_reset="earliest",
    auto_create_topics=False,
    consumer_extra_config={"isolation.level": "read_committed", "check.crcs": True},
    loglevel="WARNING",
)
schemas = SchemaRegistryClientConfig(url=registry)
source = app.topic(
    topic,
    key_deserializer=AvroDeserializer(schema_registry_client_config=schemas),
    value_deserializer=AvroDeserializer(schema_registry_client_config=schemas),
)
rows, last_n, jumps = {}, {}, []


def keep(value, key, _timestamp, headers):
    """Remember the row of a key, or forget it; the value of a tombstone is None."""
    partition, n = message_context().partition, int(dict(headers)["n"])
    if n != last_n.get(partition, n - 1) + 1:
        jumps.append(f"partition {partition}: n is {n} after {last_n[partition]}")
        app.stop()
    last_n[partition] = n
    text = json.dumps(key)
    if value is None or value["after"] is None:
        rows.pop(text, None)
    else:
        rows[text] = value["after"]


app.dataframe(source).update(keep, metadata=True)
app.run(timeout=30, collect=False)
if jumps:
    sys.exit(jumps[0])
for row in rows.values():
    print(json.dumps(row, ensure_ascii=False, default=str))
print(f"{sum(last_n.values())} records, {len(rows)} rows", file=sys.stderr)
