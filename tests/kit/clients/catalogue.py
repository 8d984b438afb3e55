"""The clients of the table in ``docs/subscribers.md``."""

from collections.abc import Mapping, Sequence

from millrace.schemas.view.format_options import FormatName
from tests.kit.clients.client import Client
from tests.kit.clients.flink import FlinkSql
from tests.kit.clients.program import (
    PROGRAMS_FOLDER,
    ExampleProgram,
    go_program,
    java_program,
    node_program,
    python_program,
    rust_program,
    spark_program,
)
from tests.kit.clients.sink import JdbcSink

PROGRAMS: Sequence[ExampleProgram] = (
    python_program("Python: confluent-kafka", "python", FormatName.AVRO),
    python_program("Python: Quix Streams", "quixstreams", FormatName.AVRO),
    python_program("ClickHouse: chdb", "clickhouse", FormatName.DEBEZIUM_JSON),
    python_program(
        "ClickHouse: chdb, AvroConfluent", f"{PROGRAMS_FOLDER}/clickhouse-avro", FormatName.AVRO
    ),
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
    go_program(
        "Go: confluent-kafka-go, avrov2", f"{PROGRAMS_FOLDER}/confluent-go", FormatName.AVRO
    ),
    node_program("Node: kafkajs, confluent-schema-registry", "node", FormatName.AVRO),
    node_program(
        "Node: kafkajs, lossless-json", f"{PROGRAMS_FOLDER}/kafkajs", FormatName.DEBEZIUM_JSON
    ),
    java_program("Java: kafka-clients, Avro", "java", FormatName.AVRO),
    java_program(
        "Kafka Connect: Apicurio's AvroConverter",
        f"{PROGRAMS_FOLDER}/connect",
        FormatName.DEBEZIUM_AVRO,
    ),
    rust_program("Rust: rdkafka, schema_registry_converter", "rust", FormatName.AVRO),
)
# programs that fail at the table of awkward types, each with its error
ODD_ERRORS: Mapping[str, str] = {
    "ClickHouse: chdb, AvroConfluent": "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff",
    "Go: confluent-kafka-go, avrov2": "ID: avro: int64 is unsupported for Avro int",  # a struct for orders
}
# programs that fail at a topic whose table was altered, each with its error
ALTERED_ERRORS: Mapping[str, str] = {
    "ClickHouse: chdb, AvroConfluent": "The number of leaves in record doesn't match the number of elements in tuple",
}
CLIENTS: Sequence[Client] = (
    *PROGRAMS,
    JdbcSink(),
    FlinkSql(FormatName.DEBEZIUM_JSON, "debezium-json", "flink-json"),
    FlinkSql(
        FormatName.DEBEZIUM_AVRO, "debezium-avro-confluent", "flink-sql-avro-confluent-registry"
    ),
)
