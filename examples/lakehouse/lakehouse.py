"""Keeps a Delta or Iceberg table for each topic of a publish task with `format: json`, exactly once.

    pip install -r requirements.txt      # PySpark 4.1, because Iceberg has no build for 4.2; Java 17
    spark-submit --properties-file lakehouse.properties lakehouse.py delta 127.0.0.1:9092 tables.json

Or `iceberg`. The tables are in /data/lake, see lakehouse.properties. With `once` as the last word,
the program stops where the topics end now.

A row has its place in the set topic, and MERGE takes only a later one, in the commit that writes it.
So records that come again change nothing: after a kill, with an old checkpoint or without one. A
deleted row stays in the table for this: read `WHERE NOT mr_deleted`.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

lake, bootstrap, tables_file, *once = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
folder, rows_max = map(spark.conf.get, ("spark.sql.catalog.lake.warehouse", "spark.lakehouse.rows"))
table = ("lake.{}" if lake == "iceberg" else f"delta.`{folder}/{{}}`").format
place = "mr_partition INT, mr_n BIGINT, mr_seq BIGINT, mr_part BIGINT, mr_deleted BOOLEAN"
number = "CAST(CAST(map_from_entries(headers)['{0}'] AS STRING) AS BIGINT) AS mr_{0}".format
record = ["key", "CAST(coalesce(value, key) AS STRING) AS text", "value IS NULL AS mr_deleted"]
record += ["partition AS mr_partition", *map(number, ("n", "seq", "part"))]
tables = json.loads(Path(tables_file).read_text())  # topic: [table, columns of the key, columns]
for name, _, columns in tables.values():
    spark.sql(f"CREATE TABLE IF NOT EXISTS {table(name)} ({columns}, {place}) USING {lake}")


def write(batch: DataFrame, _: int) -> None:
    """Merge the records of each topic into its table. Fails at a gap in `n`."""
    sql = batch.persist().sparkSession.sql
    for topic, (name, key, columns) in tables.items():
        batch.where(f"topic = '{topic}'").selectExpr(*record).createOrReplaceTempView("records")
        gaps = sql(f"""SELECT mr_partition, done, count(DISTINCT mr_n), max(mr_n) FROM records
            LEFT JOIN (SELECT mr_partition, max(mr_n) AS done FROM {table(name)} GROUP BY 1)
            USING (mr_partition) WHERE mr_n > coalesce(done, 0) GROUP BY 1, 2
            HAVING count(DISTINCT mr_n) <> max(mr_n) - coalesce(done, 0)""").collect()
        if gaps:
            raise RuntimeError(f"{topic}: records are missing: {gaps}")
        row = f"from_json(last.text, '{columns}', map('mode', 'FAILFAST'))"
        sql(f"""MERGE INTO {table(name)} t USING (SELECT inline(array({row})), last.mr_partition,
                last.mr_n, last.mr_seq, last.mr_part, last.mr_deleted FROM (
                SELECT max_by(struct(*), (mr_seq, mr_part)) AS last FROM records GROUP BY key)
            ) r ON {" AND ".join(f"t.{column} = r.{column}" for column in key)}
            WHEN MATCHED AND (r.mr_seq, r.mr_part) > (t.mr_seq, t.mr_part) THEN UPDATE SET *
            WHEN NOT MATCHED THEN INSERT *""")
    batch.unpersist()


options = {"subscribe": ",".join(tables), "kafka.bootstrap.servers": bootstrap}
options |= {"startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}
options |= {"includeHeaders": "true", "maxOffsetsPerTrigger": rows_max}
stream = spark.readStream.format("kafka").options(**options).load().writeStream.foreachBatch(write)
trigger = {"availableNow": True} if once else {"processingTime": "1 second"}
stream = stream.trigger(**trigger).option("checkpointLocation", f"{folder}/_checkpoint")
stream.start().awaitTermination()
