"""Keeps the rows of a table from a topic of a Millrace publish task with `format: debezium-json`, in Spark SQL.

    pip install -r requirements.txt
    export PYSPARK_SUBMIT_ARGS="--packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 pyspark-shell"
    python program.py localhost:9092 - public.shop.orders          # the registry is not used

Each row is printed as JSON. Header `n` counts the records of each partition from 1, without gaps: a record that is
missing ends the program.
"""

import sys

from pyspark.sql import SparkSession

bootstrap, _, topic = sys.argv[1:]
spark = SparkSession.builder.appName("orders").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")

reader = spark.read.format("kafka").option("subscribe", topic)
reader = reader.option("kafka.bootstrap.servers", bootstrap).option("includeHeaders", True)
reader = reader.option("kafka.isolation.level", "read_committed").option("kafka.check.crcs", True)
reader.load().createOrReplaceTempView("topic")
spark.sql("""
    CREATE TEMPORARY VIEW records AS
    SELECT partition, CAST(key AS STRING) AS id, CAST(value AS STRING) AS value,
           BIGINT(STRING(filter(headers, header -> header.key = 'n')[0].value)) AS n
    FROM topic
""")
spark.sql("CACHE TABLE records")

jumps = spark.sql("""
    SELECT * FROM (
      SELECT partition, n, lag(n, 1, n - 1) OVER (PARTITION BY partition ORDER BY n) AS before
      FROM records)
    WHERE NOT n <=> before + 1
    LIMIT 1
""").collect()
for jump in jumps:
    sys.exit(f"partition {jump.partition}: n is {jump.n} after {jump.before}")

# A record without a value is a tombstone, which follows the delete of the same key.
rows = spark.sql("""
    SELECT row FROM (
      SELECT get_json_object(max_by(value, n), '$.after') AS row
      FROM records WHERE value IS NOT NULL
      GROUP BY id)
    WHERE row IS NOT NULL
""").collect()
count = spark.table("records").count()
for row in rows:
    print(row.row)
spark.stop()
print(f"{count} records, {len(rows)} rows", file=sys.stderr)
