"""Debezium's JDBC sink on Kafka Connect: writes topics of Debezium records with schemas into a database.

    write_with_sink(target, bootstrap, folder, [SinkTopic("public.shop.orders", "shop", "orders")])

Tables exist before: the sink alters nothing. It upserts by the record's key and deletes at tombstones.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from millrace.deploy.bench.apply.sink.connect import ConnectWorker, SinkJars, fetch_connector
from millrace.deploy.servers import DatabaseServer
from millrace.schemas.gtid import Flavour
from tests.kit.debezium.connectors import IVY_FILE, topic_records
from tests.kit.waiting import eventually

_JSON = "org.apache.kafka.connect.json.JsonConverter"
JSON_WITH_SCHEMAS = {
    "key.converter": _JSON,
    "key.converter.schemas.enable": "true",
    "value.converter": _JSON,
    "value.converter.schemas.enable": "true",
}
_URLS = {
    Flavour.MARIADB: "jdbc:mariadb://{address}",
    Flavour.MYSQL: "jdbc:mysql://{address}?sslMode=DISABLED&allowPublicKeyRetrieval=true",
}


@dataclass(frozen=True, slots=True)
class SinkTopic:
    """A topic and the table that its records go into."""

    topic: str
    database: str
    table: str


def fetch_sink() -> SinkJars:
    """Debezium's JDBC sink, fetched if it is missing."""
    return fetch_connector("debezium-sink", size_mb=53, ivy_file=IVY_FILE)


def write_with_sink(
    target: DatabaseServer,
    bootstrap: str,
    folder: Path,
    topics: Sequence[SinkTopic],
    *,
    jars: SinkJars | None = None,
    converters: Mapping[str, str] = JSON_WITH_SCHEMAS,
) -> dict[str, str]:
    """Returns when each topic is written, or its connector has failed; the first line of each failure by topic.

    ``jars``: the sink's, with what ``converters`` name.
    """
    worker = ConnectWorker(folder / "sink", jars or fetch_sink(), bootstrap)
    failures: dict[str, str] = {}
    try:
        worker.start()
        # a name is a consumer group of the broker, which may have offsets of an earlier run
        names = {each: f"sink-{time.time_ns()}" for each in topics}
        for each, name in names.items():
            worker.create(name, {**_settings(target, each), **converters})
            worker.resume_tasks(name)
        ends = {each.topic: _end(bootstrap, each.topic) for each in topics}
        for each, name in names.items():
            wanted = ends[each.topic]

            def is_written(name: str = name, topic: str = each.topic, wanted: int = wanted) -> bool:
                if failure := worker.failure(name):
                    failures[topic] = failure
                    return True
                return worker.committed(name) >= wanted

            eventually(is_written, every_s=0.2, what=f"the sink has written {each.topic}")
    finally:
        worker.discard()
    return failures


def _end(bootstrap: str, topic: str) -> int:
    """The offsets that the sink has committed at the end, summed over all partitions."""
    records = topic_records(bootstrap, topic, is_exact=True)
    return sum({record.partition: record.offset + 1 for record in records}.values())


def _settings(target: DatabaseServer, each: SinkTopic) -> dict[str, str]:
    address = f"{target.host}:{target.port}/{each.database}"
    return {
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        "tasks.max": "1",
        "topics": each.topic,
        "collection.name.format": each.table,
        "connection.url": _URLS[target.flavour].format(address=address),
        "connection.username": target.user,
        "connection.password": target.password,
        "insert.mode": "upsert",
        "delete.enabled": "true",
        "primary.key.mode": "record_key",
        "consumer.override.isolation.level": "read_committed",
        # Connect's default reads headers of changed keys as maps, which the sink refuses if values differ in type
        "header.converter": "org.apache.kafka.connect.storage.StringConverter",
    }
