"""Flink's own maxwell-json and canal-json read topics of a publish task; the tables that it makes equal the source."""

from contextlib import suppress
from dataclasses import replace
from datetime import datetime, time, timedelta
from pathlib import Path

import pytest

from millrace.schemas.documents import OutputTopics
from millrace.schemas.gtid import Flavour
from millrace.schemas.view.format_options import DecimalMode, FormatName, FormatOptions
from millrace.schemas.view.view import TableRule, View
from tests.fixtures.servers import NewServer
from tests.kit.binlog.session import logged
from tests.kit.debezium.connectors import patient_broker
from tests.kit.debezium.flink import flink
from tests.kit.debezium.sink_script import SOURCE, sink_script
from tests.kit.debezium.whole_way import CopiedTopic, publish

OPTIONS = {
    FormatName.MAXWELL_JSON: replace(
        FormatOptions.of(FormatName.MAXWELL_JSON), decimal=DecimalMode.STRING
    ),
    FormatName.CANAL_JSON: replace(FormatOptions.of(FormatName.CANAL_JSON), tombstones=True),
}
NUMBERS = {
    "id": "INT",
    **dict.fromkeys(("ti", "tu", "si", "su", "mi", "i"), "INT"),
    **dict.fromkeys(("iu", "bi"), "BIGINT"),
    "bu": "DECIMAL(20, 0)",
}
TABLES = {
    "numbers": NUMBERS,
    "decimals": {"id": "INT", "d1": "DECIMAL(5, 2)", "d2": "DECIMAL(38, 19)", "d": "DOUBLE"},
    "times": {
        "id": "INT",
        "da": "DATE",
        "ti": "TIME",
        "dt": "TIMESTAMP(0)",
        "d3": "TIMESTAMP(3)",
        "d6": "TIMESTAMP(6)",
    },
    "texts": {"id": "INT", **dict.fromkeys(("c", "v", "t", "lt", "la"), "STRING")},
    "moves": {"id": "INT", "v": "STRING"},
    "pairs": {"a": "BIGINT", "b": "STRING", "v": "INT"},
}
DROPPED = "v"  # a column that some updates change alone
VIEW = View((TableRule(f"{SOURCE}.pairs", drop=(DROPPED,)), TableRule("*.*")))


@pytest.mark.usefixtures("trusting")
@pytest.mark.parametrize("name", OPTIONS, ids=str)
def test_flink_makes_the_tables_of_the_source(
    name: FormatName, new_server: NewServer, tmp_path: Path
) -> None:
    """Also of updates whose changed columns the view leaves out; a tombstone changes nothing."""
    server = new_server(Flavour.MYSQL)
    with patient_broker(tmp_path) as kafka, logged(server, SOURCE) as source:
        source.run(*sink_script())
        topic = CopiedTopic.of(source.conversion(), kafka.bootstrap)
        pattern = "flink.{database}.{table}"
        publish(
            topic,
            topics=OutputTopics(pattern=pattern, partitions=1),
            format=OPTIONS[name],
            view=VIEW,
        )
        with flink(kafka.bootstrap) as reader:
            for table, columns in TABLES.items():
                chosen = {
                    column: type_
                    for column, type_ in columns.items()
                    if table != "pairs" or column != DROPPED
                }
                rows = reader.rows(f"flink.{SOURCE}.{table}", chosen, {"format": name.value})
                wanted = server.execute(f"SELECT {', '.join(chosen)} FROM {SOURCE}.{table}")
                assert [_plain(row) for row in rows] == sorted(
                    (_plain(row) for row in wanted), key=lambda row: str(row[0])
                ), table
                assert rows


def _plain(row: tuple[object, ...]) -> tuple[str, ...]:
    """Values of Java and of Python as texts."""
    return tuple(map(_text, row))


def _text(value: object) -> str:
    """Times in ISO 8601, with seconds and six digits or none."""
    if isinstance(value, timedelta):
        return (datetime.fromisoformat("1970-01-01") + value).time().isoformat()
    text = value.isoformat() if isinstance(value, datetime) else str(value)
    for read in (datetime.fromisoformat, time.fromisoformat):
        if "T" in text or ":" in text:
            with suppress(ValueError):
                return read(text).isoformat()
    return text
