"""Flink's own debezium-json reads topics of a publish task; the tables that it makes of them equal the source."""

from pathlib import Path

import pytest

from millrace.schemas.documents import OutputTopics
from millrace.schemas.gtid import Flavour
from millrace.schemas.view.format_options import DecimalMode, FormatName, FormatOptions, TimeMode
from tests.fixtures.servers import NewServer
from tests.kit.binlog.session import logged
from tests.kit.debezium.connectors import patient_broker
from tests.kit.debezium.flink import flink
from tests.kit.debezium.sink_script import SOURCE, sink_script
from tests.kit.debezium.whole_way import CopiedTopic, publish

FORMAT = FormatOptions(
    FormatName.DEBEZIUM_JSON, schemas=True, decimal=DecimalMode.STRING, time=TimeMode.ISOSTRING
)
TABLES = {  # the columns that Flink has a type for
    "numbers": {
        "id": "INT",
        **dict.fromkeys(("ti", "tu", "si", "su", "mi", "i"), "INT"),
        **dict.fromkeys(("iu", "bi"), "BIGINT"),
    },
    "decimals": {"id": "INT", "d1": "STRING", "d2": "STRING", "d3": "STRING", "d": "DOUBLE"},
    "texts": {"id": "INT", **dict.fromkeys(("c", "v", "t", "lt", "la", "e", "s"), "STRING")},
    "moves": {"id": "INT", "v": "STRING"},
    "pairs": {"a": "BIGINT", "b": "STRING", "v": "INT"},
}


@pytest.mark.usefixtures("trusting")
@pytest.mark.parametrize("flavour", [Flavour.MYSQL, Flavour.MARIADB], ids=str)
def test_flink_makes_the_tables_of_the_source(
    flavour: Flavour, new_server: NewServer, tmp_path: Path
) -> None:
    """A changed key takes the old row out; a tombstone changes nothing."""
    server = new_server(flavour)
    with patient_broker(tmp_path) as kafka, logged(server, SOURCE) as source:
        source.run(*sink_script())
        topic = CopiedTopic.of(source.conversion(), kafka.bootstrap)
        pattern = "flink.{database}.{table}"
        publish(topic, topics=OutputTopics(pattern=pattern, partitions=1), format=FORMAT)
        with flink(kafka.bootstrap) as reader:
            for table, columns in TABLES.items():
                selected = ", ".join(
                    f"CAST({name} AS CHAR)" if name[0] == "d" and type_ == "STRING" else name
                    for name, type_ in columns.items()
                )
                wanted = server.execute(f"SELECT {selected} FROM {SOURCE}.{table}")
                rows = reader.rows(f"flink.{SOURCE}.{table}", columns)
                assert rows == sorted(wanted, key=lambda row: str(row[0])), table
                assert rows
