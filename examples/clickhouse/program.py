"""Keeps the rows of a table from a topic of a Millrace publish task with `format: debezium-json`, in ClickHouse.

    pip install -r requirements.txt
    python program.py localhost:9092 - public.shop.orders          # the registry is not used

Each row is printed as JSON. Header `n` counts the records of each partition from 1, without gaps: a record that is
missing ends the program. Python reads the topic and hands the records to chdb, which is ClickHouse in this process.
"""

import sys

import chdb
import pyarrow
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

bootstrap, _, topic = sys.argv[1:]
consumer = Consumer(
    {
        "bootstrap.servers": bootstrap,
        "group.id": "example-clickhouse",  # must be set; without commits the broker stores nothing
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "enable.partition.eof": True,  # reports the end of each partition
        "check.crcs": True,
    }
)
partitions = set(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
lines = []
while partitions:
    for message in consumer.consume(1000, timeout=1):
        if error := message.error():
            if error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            partitions.discard(message.partition())
            continue
        n, value = int(dict(message.headers())["n"]), message.value() or b""  # a tombstone has none
        lines.append((message.partition(), n, message.key().decode(), value.decode()))
consumer.close()

names = ("partition", "n", "id", "value")
records = pyarrow.table(dict(zip(names, map(list, zip(*lines, strict=True)), strict=True)))
jumps = chdb.query(
    """
    SELECT format('partition {}: n is {} after {}', partition, n, before) FROM (
      SELECT partition, n, lagInFrame(n, 1, n - 1) OVER (PARTITION BY partition ORDER BY n) AS before
      FROM Python(records))
    WHERE n != before + 1 LIMIT 1""",
    "LineAsString",
).data()
if jumps:
    sys.exit(jumps)
rows = chdb.query(
    """
    SELECT argMax(JSONExtractRaw(value, 'after'), n) AS row
    FROM Python(records) WHERE value != '' GROUP BY id HAVING row != 'null'""",
    "LineAsString",
).data()
print(rows, end="")
print(f"{len(lines)} records, {rows.count(chr(10))} rows", file=sys.stderr)
