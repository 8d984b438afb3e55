"""Debezium's JDBC sink writes topics of a publish task into a database, which then equals the source."""

from pathlib import Path

import pytest

from millrace.deploy.servers import DatabaseServer
from millrace.schemas.documents import OutputTopics
from millrace.schemas.gtid import Flavour
from millrace.schemas.view.format_options import BigintUnsigned, FormatName, FormatOptions
from tests.fixtures.servers import NewServer
from tests.kit.binlog.session import logged
from tests.kit.debezium.connectors import patient_broker
from tests.kit.debezium.sink import SinkTopic, write_with_sink
from tests.kit.debezium.sink_script import SOURCE, TABLES, sink_script
from tests.kit.debezium.whole_way import CopiedTopic, publish

COPY = "sink_copy"
FORMAT = FormatOptions(
    FormatName.DEBEZIUM_JSON, schemas=True, bigint_unsigned=BigintUnsigned.PRECISE
)


@pytest.mark.usefixtures("trusting")
@pytest.mark.parametrize("flavour", [Flavour.MYSQL, Flavour.MARIADB], ids=str)
def test_sink_makes_a_copy_of_the_source(
    flavour: Flavour, new_server: NewServer, tmp_path: Path
) -> None:
    """Inserts, updates, changed keys and deletes, of every type that the sink can write."""
    server = new_server(flavour)
    with patient_broker(tmp_path) as kafka, logged(server, SOURCE) as source:
        source.run(*sink_script())
        server.execute(f"CREATE DATABASE {COPY}")
        for table in TABLES:
            server.execute(f"CREATE TABLE {COPY}.{table} LIKE {SOURCE}.{table}")
        topic = CopiedTopic.of(source.conversion(), kafka.bootstrap)
        pattern = "sink.{database}.{table}"
        publish(topic, topics=OutputTopics(pattern=pattern, partitions=1), format=FORMAT)
        failures = write_with_sink(
            server,
            kafka.bootstrap,
            tmp_path,
            [SinkTopic(f"sink.{SOURCE}.{table}", COPY, table) for table in TABLES],
        )
        assert not failures, "\n".join(failures.values())
        for table in TABLES:
            wanted, rows = (_rows(server, name, table) for name in (SOURCE, COPY))
            assert rows == wanted, table
            assert wanted


def _rows(server: DatabaseServer, database: str, table: str) -> list[tuple[object, ...]]:
    return server.execute(f"SELECT * FROM {database}.{table} ORDER BY 1, 2")
