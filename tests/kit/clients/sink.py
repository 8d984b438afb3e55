"""Debezium's JDBC sink as a client: on Kafka Connect it writes a topic into a database, whose rows are the answer.

It reads Avro with Apicurio's converter, because Maven does not serve Confluent's.
"""

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from millrace.deploy.bench.apply.sink import connect
from millrace.deploy.servers import Account, DatabaseServer
from millrace.schemas.gtid import Flavour
from millrace.schemas.view.format_options import FormatName
from tests.kit.clients.client import ClientTopic
from tests.kit.clients.manifests import versions_of
from tests.kit.clients.tables import CREATE_ORDERS, ORDERS, ORDERS_SELECT, SOURCE
from tests.kit.debezium import avro_converter, connectors
from tests.kit.debezium.sink import SinkTopic, fetch_sink, write_with_sink

_ACCOUNT = Account("sink", "sink-secret")
_LIBRARIES = {
    "debezium-connector-jdbc": connectors.IVY_FILE,
    "connect-runtime": connect.IVY_FILE,
    "apicurio-registry-utils-converter": avro_converter.IVY_FILE,
}


@dataclass(frozen=True, slots=True)
class JdbcSink:
    """The target is a MariaDB that lives as long as a call."""

    name: str = "Kafka Connect: Debezium's JDBC sink, Apicurio's converter"
    format: FormatName = FormatName.DEBEZIUM_AVRO

    def missing(self) -> str:
        """Nothing: all parts are fetched."""
        return ""

    def prepare(self) -> None:
        """Fetch the sink and the converter."""
        fetch_sink()
        avro_converter.fetch_converter()

    def versions(self) -> str:
        """The sink, Kafka Connect and the converter."""
        return ", ".join(f"{name} {versions_of(path)[name]}" for name, path in _LIBRARIES.items())

    def rows(self, topic: ClientTopic) -> Iterable[Mapping[str, object]]:
        """The rows that the sink has written, ``created`` in microseconds as in the records."""
        with tempfile.TemporaryDirectory(prefix="millrace-sink-") as folder:
            target = DatabaseServer.of(Flavour.MARIADB, Path(folder) / "target")
            target.start()
            try:
                target.create_account(_ACCOUNT, "ALL PRIVILEGES")
                target.execute(f"CREATE DATABASE {SOURCE}")
                target.execute(CREATE_ORDERS)
                _write(topic, target, Path(folder))
                rows = target.execute(ORDERS_SELECT)
            finally:
                target.discard()
        names = ("id", "customer", "price", "paid", "created", "note")
        return [dict(zip(names, (*row[:4], row[-1], row[5]), strict=True)) for row in rows]


def _write(topic: ClientTopic, target: DatabaseServer, folder: Path) -> None:
    jars = fetch_sink()
    failures = write_with_sink(
        target,
        topic.bootstrap,
        folder,
        [SinkTopic(topic.topic, SOURCE, ORDERS)],
        jars=replace(jars, plugins=avro_converter.plugins(folder / "plugins", jars.plugins)),
        converters=avro_converter.reading_settings("key", topic.registry)
        | avro_converter.reading_settings("value", topic.registry),
    )
    assert not failures, failures[topic.topic]
