"""Flink SQL reads topics of a publish task with one of its formats, in one JVM that Python drives.

Each topic is read up to its end. The changes that Flink makes of it, applied in order, are the table. Columns are
declared as BIGINT, INT, STRING, BOOLEAN or DOUBLE: Flink does not read Debezium's types of other columns.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from deploy.servers.fetch import fetch_jars
from deploy.servers.programs import pyspark_jars
from millrace.jvm import java_program

IVY_FILE = Path(__file__).with_name("flink-ivy.xml")
SIZE_MB = 123
_OPENED = ("java.lang", "java.util", "java.net", "java.io", "java.time", "java.util.concurrent")
_ADDED = ("+I", "+U")
WITH_SCHEMAS = {"format": "debezium-json", "debezium-json.schema-include": "true"}


class FlinkReader:
    """Tables over topics of one broker."""

    def __init__(self, gateway: JavaGateway, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        api = gateway.jvm.org.apache.flink.table.api
        settings = api.EnvironmentSettings.newInstance().inStreamingMode().build()
        self._tables = api.TableEnvironment.create(settings)
        self._tables.getConfig().set("parallelism.default", "1")

    def rows(
        self, topic: str, columns: Mapping[str, str], options: Mapping[str, str] = WITH_SCHEMAS
    ) -> list[tuple[object, ...]]:
        """The table that the topic's records make, in the order of its first column. ``options``: of the format."""
        name = "t_" + topic.replace(".", "_").replace("-", "_")
        declared = ", ".join(f"`{column}` {type_}" for column, type_ in columns.items())
        settings = {
            "connector": "kafka",
            "topic": topic,
            "properties.bootstrap.servers": self._bootstrap,
            "properties.isolation.level": "read_committed",
            "scan.startup.mode": "earliest-offset",
            "scan.bounded.mode": "latest-offset",
            **options,
        }
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in settings.items())
        self._tables.executeSql(f"CREATE TABLE {name} ({declared}) WITH ({listed})")
        changes = self._tables.executeSql(f"SELECT * FROM {name}").collect()
        rows: list[tuple[object, ...]] = []
        while changes.hasNext():
            change = changes.next()
            row = tuple(change.getField(place) for place in range(change.getArity()))
            if change.getKind().shortString() in _ADDED:
                rows.append(row)
            else:
                rows.remove(row)
        return sorted(rows, key=lambda row: str(row[0]))


@contextmanager
def flink(bootstrap: str) -> Iterator[FlinkReader]:
    """Flink in a JVM that ends with the block."""
    jars = fetch_jars("flink", size_mb=SIZE_MB, ivy_file=IVY_FILE)
    (bridge,) = pyspark_jars().glob("py4j-*.jar")
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    port: Any = launch_gateway(
        classpath=f"{jars}/*:{bridge}",
        jarpath=str(bridge),
        java_path=str(java_program()),
        javaopts=["-Xmx1g", *opened],
        die_on_exit=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    try:
        yield FlinkReader(gateway, bootstrap)
    finally:
        gateway.shutdown()
