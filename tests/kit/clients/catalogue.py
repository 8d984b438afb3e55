"""The clients of the table in ``docs/subscribers.md``."""

from collections.abc import Sequence

from schemas.view.format_options import FormatName
from tests.kit.clients.client import Client
from tests.kit.clients.program import (
    ExampleProgram,
    go_program,
    node_program,
    python_program,
    spark_program,
)

PROGRAMS: Sequence[ExampleProgram] = (
    python_program("Python: confluent-kafka", "python", FormatName.AVRO),
    python_program("Python: Quix Streams", "quixstreams", FormatName.AVRO),
    python_program("ClickHouse: chdb", "clickhouse", FormatName.DEBEZIUM_JSON),
    spark_program("Spark SQL", "spark-sql", FormatName.DEBEZIUM_JSON),
    ExampleProgram(
        "Shell: kcat, SQLite",
        "kcat/packages.txt",
        FormatName.JSON,
        needs=("kcat", "sqlite3"),
        build=(),
        command=("bash", "program.sh"),
    ),
    go_program("Go: franz-go, sr, hamba/avro", "go", FormatName.AVRO),
    node_program("Node: kafkajs, confluent-schema-registry", "node", FormatName.AVRO),
)
CLIENTS: Sequence[Client] = (*PROGRAMS,)
