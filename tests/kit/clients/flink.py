"""Flink SQL as a client: the table that it makes of a topic with Debezium's records, in JSON or Avro."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from millrace.deploy.servers.fetch import fetch_jars
from millrace.schemas.view.format_options import FormatName
from tests.kit.clients.client import ClientTopic
from tests.kit.clients.manifests import versions_of
from tests.kit.debezium.flink import IVY_FILE, SIZE_MB, flink

_COLUMNS = {
    "id": "BIGINT",
    "customer": "STRING",
    "price": "DECIMAL(12, 2)",
    "paid": "INT",
    "created": "BIGINT",
    "note": "STRING",
}


@dataclass(frozen=True, slots=True)
class FlinkSql:
    """``reader``: Flink's name of the format. ``library``: the jar that has it."""

    format: FormatName
    reader: str
    library: str

    @property
    def name(self) -> str:
        """With the format."""
        return f"Flink SQL: {self.reader}"

    def missing(self) -> str:
        """Nothing: all parts are fetched."""
        return ""

    def prepare(self) -> None:
        """Fetch Flink."""
        fetch_jars("flink", size_mb=SIZE_MB, ivy_file=IVY_FILE)

    def versions(self) -> str:
        """The planner, the connector for Kafka and the format."""
        versions = versions_of(IVY_FILE)
        names = ("flink-table-planner-loader", "flink-sql-connector-kafka", self.library)
        return ", ".join(f"{name} {versions[name]}" for name in names)

    def rows(self, topic: ClientTopic) -> Iterable[Mapping[str, object]]:
        """As texts of Flink."""
        options = {"format": self.reader}
        if self.format is FormatName.DEBEZIUM_AVRO:
            options[f"{self.reader}.url"] = topic.registry
        with flink(topic.bootstrap) as reader:
            return reader.texts(topic.topic, _COLUMNS, options)
