"""Keeps the rows of a table from a topic of `format: avro` with ClickHouse's own decoder AvroConfluent.

Python reads the topic and writes the values to a file, as they are. ClickHouse asks the registry for their schemas.
"""

import sys
import tempfile

import chdb
import pyarrow
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

bootstrap, registry, topic = sys.argv[1:]
consumer = Consumer(
    {
        "bootstrap.servers": bootstrap,
        "group.id": "clickhouse-avro",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "check.crcs": True,
    }
)
partitions = set(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
last_n, count, places = {}, 0, []
with tempfile.NamedTemporaryFile(suffix=".avro") as file:
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
            if message.value() is not None:  # else a tombstone, which follows a delete
                file.write(message.value())
                places.append((len(places), message.key(), n))
    consumer.close()
    file.flush()
    names = ("place", "id", "n")
    keys = pyarrow.table(dict(zip(names, map(list, zip(*places, strict=True)), strict=True)))
    rows = chdb.query(
        f"""
        SELECT toJSONString(argMax(tuple(after), n).1) AS row
        FROM (SELECT _row_number AS place, after FROM file('{file.name}', AvroConfluent)) AS records
        JOIN Python(keys) AS keys ON keys.place = records.place
        GROUP BY id HAVING row != 'null'
        SETTINGS format_avro_schema_registry_url = '{registry}',
                 output_format_decimal_trailing_zeros = 1""",
        "LineAsString",
    ).data()
print(rows, end="")
print(f"{count} records, {rows.count(chr(10))} rows", file=sys.stderr)
