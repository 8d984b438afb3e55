"""Keeps the rows of a table from a topic of a Millrace publish task with `format: avro`, and prints them as JSON.

    pip install -r requirements.txt
    python program.py localhost:9092 http://localhost:8081 public.shop.orders

Header `n` counts the records of each partition from 1, without gaps: a record that is missing ends the program.
"""

import json
import sys

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

bootstrap, registry, topic = sys.argv[1:]
decode = AvroDeserializer(SchemaRegistryClient({"url": registry}))
in_key = SerializationContext(topic, MessageField.KEY)
in_value = SerializationContext(topic, MessageField.VALUE)
consumer = Consumer(
    {
        "bootstrap.servers": bootstrap,
        "group.id": "example-python",  # must be set; without commits the broker stores nothing
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "enable.partition.eof": True,  # reports the end of each partition
        "check.crcs": True,
    }
)
partitions = set(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])

rows, count, last_n = {}, 0, {}
while partitions:
    for message in consumer.consume(1000, timeout=1):
        partition = message.partition()
        if error := message.error():
            if error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            partitions.discard(partition)
            continue
        n = int(dict(message.headers())["n"])
        if n != last_n.get(partition, n - 1) + 1:
            sys.exit(f"partition {partition}: n is {n} after {last_n[partition]}")
        last_n[partition], count = n, count + 1
        key = json.dumps(decode(message.key(), in_key))
        value = decode(message.value(), in_value)  # None is a tombstone
        if value is None or value["after"] is None:
            rows.pop(key, None)
        else:
            rows[key] = value["after"]
consumer.close()

for row in rows.values():
    print(json.dumps(row, ensure_ascii=False, default=str))
print(f"{count} records, {len(rows)} rows", file=sys.stderr)
