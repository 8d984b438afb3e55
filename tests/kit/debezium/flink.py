"""Flink SQL reads topics of a publish task with one of its formats, in one JVM that Python drives.

Each topic is read up to its end. The changes that Flink makes of it, applied in order, are the table. Columns of
Debezium's formats are declared as BIGINT, INT, STRING, BOOLEAN or DOUBLE, in Avro as DECIMAL, too: Flink does not read
Debezium's types of other columns.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from millrace.deploy.servers.fetch import fetch_jars
from millrace.deploy.servers.programs import pyspark_jars
from millrace.jvm import java_program

IVY_FILE = Path(__file__).with_name("flink-ivy.xml")
SIZE_MB = 146
_OPENED = (
    *("java.lang", "java.util", "java.net", "java.io", "java.time"),
    *("java.util.concurrent", "java.util.stream"),
)
_ADDED = ("+I", "+U")
_CHUNK = 10_000  # changes in one answer of the JVM
WITH_SCHEMAS = {"format": "debezium-json", "debezium-json.schema-include": "true"}


class FlinkReader:
    """Tables over topics of one broker."""

    def __init__(self, gateway: JavaGateway, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._java = gateway.jvm.java.util
        api = gateway.jvm.org.apache.flink.table.api
        settings = api.EnvironmentSettings.newInstance().inStreamingMode().build()
        self._tables = api.TableEnvironment.create(settings)
        self._tables.getConfig().set("parallelism.default", "1")

    def rows(
        self, topic: str, columns: Mapping[str, str], options: Mapping[str, str] = WITH_SCHEMAS
    ) -> list[tuple[object, ...]]:
        """The table that the topic's records make, in the order of its first column. ``options``: of the format."""
        changes = self._changes(self._table(topic, columns, options), "*")
        rows: list[tuple[object, ...]] = []
        while changes.hasNext():
            change = changes.next()
            row = tuple(change.getField(place) for place in range(change.getArity()))
            if change.getKind().shortString() in _ADDED:
                rows.append(row)
            else:
                rows.remove(row)
        return sorted(rows, key=lambda row: str(row[0]))

    def texts(
        self, topic: str, columns: Mapping[str, str], options: Mapping[str, str]
    ) -> list[dict[str, str | None]]:
        """As ``rows``, for large topics: every value as Flink's text, in any order."""
        values = ", ".join(f"'{name}' VALUE CAST(`{name}` AS STRING)" for name in columns)
        table = self._table(topic, columns, options)
        rows = Counter[str]()
        for kind, row in self._rows_as_json(self._changes(table, f"JSON_OBJECT({values})")):
            rows[row] += 1 if kind in _ADDED else -1
            assert rows[row] >= 0, f"{kind} of a row that is not in the table: {row}"
        return [json.loads(row) for row in rows.elements()]

    def _table(self, topic: str, columns: Mapping[str, str], options: Mapping[str, str]) -> str:
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
        return name

    def _changes(self, table: str, selected: str) -> Any:
        return self._tables.executeSql(f"SELECT {selected} FROM {table}").collect()

    def _rows_as_json(self, changes: Any) -> Iterator[tuple[str, str]]:
        """Kind and JSON of each change. Java prints a list of them as ``[+I[{…}], -D[{…}]]``."""
        decoder = json.JSONDecoder()
        while changes.hasNext():
            remaining = self._java.Spliterators.spliteratorUnknownSize(changes, 0)
            chunk = self._java.stream.StreamSupport.stream(remaining, False).limit(_CHUNK)
            text, place = str(chunk.toList().toString()), 1
            while place < len(text):
                _, end = decoder.raw_decode(text, place + 3)
                yield text[place : place + 2], text[place + 3 : end]
                place = end + len("], ")


@contextmanager
def flink(bootstrap: str) -> Iterator[FlinkReader]:
    """Flink in a JVM that ends with the block. AssertionError with Java's trace if Flink fails."""
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
    except Py4JJavaError as error:  # its text is in the JVM
        raise AssertionError(str(error)) from error
    finally:
        gateway.shutdown()
