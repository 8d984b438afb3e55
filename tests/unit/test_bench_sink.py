"""The benchmark's Debezium sink: records as Debezium writes them, Kafka Connect's answers, and missing artifacts."""

import json
import sys
import threading
from base64 import b64decode
from collections.abc import Iterator, Mapping
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from millrace.deploy.bench.apply.sink.connect import (
    IVY_FILE,
    ConnectWorker,
    SinkJars,
    committed_count,
    connector_jars,
    failure_of,
    is_stopped,
)
from millrace.deploy.bench.apply.sink.peer import SINK, fetch_sink
from millrace.deploy.bench.apply.sink.records import VERSION, SinkTable
from millrace.deploy.bench.figure import Figure, Group, Size, run_groups
from millrace.errors import Fatal
from millrace.schemas.gtid import Flavour
from millrace.schemas.record.control import EventPlace, Origin, RecordSource, RecordTransaction
from millrace.schemas.record.record import RowChange, RowRecord
from millrace.schemas.record.row_layout import RowLayout
from millrace.schemas.table.structure import Column, ColumnType, TableSchema, TextEncoding, TypeCode

_FAKE_IVY = """#!{python}
import pathlib, sys, tarfile
after = lambda option: sys.argv[sys.argv.index(option) + 1]
conf = after("-confs")
open({log!r}, "a").write(conf + " ")
folder = pathlib.Path(after("-retrieve").partition("[conf]")[0]) / conf
folder.mkdir()
jar = folder / "a.jar"
jar.write_bytes(b"a jar")
if conf == "debezium-jdbc":
    with tarfile.open(folder / "connector.tar.gz", "w:gz") as archive:
        archive.add(jar, "debezium-connector-jdbc/a.jar")
"""
UTF8 = TextEncoding("utf8mb4", 45)
C = TypeCode
ID = Column("id", ColumnType(C.LONGLONG, is_unsigned=True), False)


def _layout(*columns: Column, key: tuple[int, ...] = (0,)) -> RowLayout:
    return RowLayout.of("shop", TableSchema("bench", "orders", columns, key, (0,) * len(key)))


def _row(
    layout: RowLayout,
    op: str,
    *,
    before: Mapping[str, object] | None = None,
    after: Mapping[str, object] | None = None,
) -> RowRecord:
    place = EventPlace(1_700_000_000_000, 7, "0-1-5", "bin.000001", 42, 0)
    source = RecordSource(Origin(Flavour.MARIADB, "task", "shop"), "bench", "orders", place, 3, 9)
    image = after or before or {}
    key = {"id": image["id"]} if layout.table.primary_key else None
    transaction = RecordTransaction("0-1-5", 1, True)
    change = RowChange(before, after, op)
    return RowRecord(key, change, source, 1_700_000_000_123, transaction, layout)


def _stored(column_type: ColumnType, value: object) -> tuple[Any, Any]:
    """The field of the column in the schema, and its value in the record."""
    layout = _layout(ID, Column("v", column_type, True))
    table = SinkTable.of(layout)
    _, body = table.record(_row(layout, "c", after={"id": Decimal(1), "v": value}))
    fields: Any = table.value_schema["fields"]
    after = next(field for field in fields if field["field"] == "after")
    return after["fields"][1], json.loads(body)["after"]["v"]


@pytest.mark.parametrize(
    ("column_type", "value", "connect_type", "name", "stored"),
    [
        (ColumnType(C.TINY), -1, "int16", None, -1),
        (ColumnType(C.LONG), -5, "int32", None, -5),
        (ColumnType(C.LONG, is_unsigned=True), 2**32 - 1, "int64", None, 2**32 - 1),
        (ColumnType(C.LONGLONG, is_unsigned=True), Decimal(7), "int64", None, 7),
        (ColumnType(C.DOUBLE, 8), 0.1, "double", None, 0.1),
        (ColumnType(C.VARCHAR, 40, text=UTF8), "Łódź", "string", None, "Łódź"),
        (ColumnType(C.BIT, 1), b"\x01", "boolean", None, True),
        (ColumnType(C.BIT, 1), b"\x00", "boolean", None, False),
        (ColumnType(C.ENUM, labels=("a", "b")), "b", "string", "io.debezium.data.Enum", "b"),
        (ColumnType(C.JSON), '{"a": 1}', "string", "io.debezium.data.Json", '{"a": 1}'),
        (
            ColumnType(C.DATETIME2, 6),
            "1970-01-02 00:00:01.000002",
            "int64",
            "io.debezium.time.MicroTimestamp",
            86_401_000_002,
        ),
        (
            ColumnType(C.DATETIME2),
            "1969-12-31 23:59:59",
            "int64",
            "io.debezium.time.Timestamp",
            -1_000,
        ),
    ],
)
def test_column_has_the_type_and_value_of_debezium(
    column_type: ColumnType, value: object, connect_type: str, name: str | None, stored: object
) -> None:
    """Debezium's default settings; the sink chooses its SQL by these names."""
    field, found = _stored(column_type, value)
    assert (field["type"], field.get("name"), field["optional"]) == (connect_type, name, True)
    assert found == stored
    assert _stored(column_type, None)[1] is None


@pytest.mark.parametrize("text", ["0.00", "1.28", "-1.28", "-1.29", "999999999999.99"])
def test_decimal_is_its_unscaled_bytes(text: str) -> None:
    """Big-endian two's complement, with the scale in the schema."""
    field, found = _stored(ColumnType(C.NEWDECIMAL, 14 << 8 | 2), Decimal(text))
    assert field["name"] == "org.apache.kafka.connect.data.Decimal"
    assert field["parameters"] == {"scale": "2", "connect.decimal.precision": "14"}
    unscaled = int.from_bytes(b64decode(found), signed=True)
    assert Decimal(unscaled).scaleb(-2) == Decimal(text)


def test_record_is_an_envelope_keyed_by_the_primary_key() -> None:
    """The sink knows Debezium's records by the name of their schema; a delete has no after image."""
    layout = _layout(ID, Column("n", ColumnType(C.LONG), False))
    table = SinkTable.of(layout)
    assert table.value_schema["name"] == "shop.bench.orders.Envelope"
    keys: Any = table.key_schema["fields"]
    assert [(field["field"], field["optional"]) for field in keys] == [("id", False)]
    before = {"id": Decimal(2**40), "n": 1}
    key, body = table.record(_row(layout, "d", before=before))
    assert json.loads(key) == {"id": 2**40}
    value = json.loads(body)
    assert (value["op"], value["before"], value["after"]) == ("d", {"id": 2**40, "n": 1}, None)
    fields: Any = table.value_schema["fields"]
    names = [field["field"] for field in fields]
    assert names == list(value)
    source = next(field for field in fields if field["field"] == "source")
    assert [field["field"] for field in source["fields"]] == list(value["source"])


def test_unknown_column_type_is_refused() -> None:
    """Rather than a benchmark of wrong rows."""
    with pytest.raises(Fatal, match="no type for GEOMETRY"):
        SinkTable.of(_layout(ID, Column("g", ColumnType(C.GEOMETRY), True)))


def test_row_without_a_primary_key_is_refused() -> None:
    """The sink writes by key."""
    layout = _layout(ID, key=())
    with pytest.raises(Fatal, match="no primary key"):
        SinkTable.of(layout).record(_row(layout, "c", after={"id": Decimal(1)}))


def test_committed_count_is_the_sum_of_the_offsets() -> None:
    """None before the first commit."""
    found = [
        {
            "partition": {"kafka_topic": "t", "kafka_partition": 0},
            "offset": {"kafka_offset": count},
        }
        for count in (300, 7)
    ]
    assert committed_count({"offsets": found}) == 307
    assert committed_count({"offsets": []}) == 0


def test_status_shows_failed_and_stopped_connectors() -> None:
    """A failed task ends the benchmark with its trace; a connector is stopped when its tasks are gone."""
    running = {"id": 0, "state": "RUNNING"}
    failed = {"id": 1, "state": "FAILED", "trace": "java.sql.SQLException: no table"}
    connector = {"state": "RUNNING"}
    assert failure_of({"connector": connector, "tasks": [running]}) is None
    found = failure_of({"connector": connector, "tasks": [running, failed]})
    assert found == "java.sql.SQLException: no table"
    assert failure_of({"connector": {"state": "FAILED"}, "tasks": []}) == "no trace"
    stopped = {"state": "STOPPED"}
    assert is_stopped({"connector": stopped, "tasks": []})
    assert not is_stopped({"connector": stopped, "tasks": [running]})
    assert not is_stopped({"connector": connector, "tasks": []})


def test_missing_artifacts_leave_the_line_out(capsys: pytest.CaptureFixture[str]) -> None:
    """A sentence on standard error says why; standard output is for figures."""

    def fetch() -> SinkJars:
        raise Fatal("MR-8003", "Ivy found no artifact")

    assert connector_jars(SINK, fetch) is None
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "debezium-jdbc" in printed.err
    assert "Ivy found no artifact" in printed.err


def test_fetch_unpacks_the_connector_once_and_prints_no_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Standard output is for figures; a second run fetches nothing."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(_FAKE_IVY.format(python=sys.executable, log=str(tmp_path / "fetched")))
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    jars = fetch_sink()
    assert jars.classpath == str(tmp_path / "jars" / "connect" / "*")
    assert [path.name for path in jars.plugins.glob("*/*")] == ["a.jar"]
    assert fetch_sink() == jars
    assert (tmp_path / "fetched").read_text().split() == ["connect", "debezium-jdbc"]
    assert capsys.readouterr().out == ""


def test_records_name_the_version_that_is_fetched() -> None:
    """The peer's name in the figures has it, too."""
    (found,) = (
        each.get("rev")
        for each in ElementTree.parse(IVY_FILE).iter("dependency")
        if each.get("org") == "io.debezium"
    )
    assert found == VERSION


def test_failed_group_is_a_line_with_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """The lines that it has printed stay, and the other groups are measured."""

    def fails(_: Size) -> Iterator[Figure]:
        yield Figure("a", 1.0, "s")
        raise TimeoutError("timed out")

    groups = [Group(("a", "b"), fails), Group(("c",), lambda _: iter([Figure("c", 2.0, "s")]))]
    with pytest.raises(Fatal, match="1 line could not be measured: b"):
        run_groups(groups, Size(Flavour.MYSQL))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["name"] for line in lines] == ["a", "b", "c"]
    assert lines[1] == {"name": "b", "error": "timed out"}


class _SlowConnect(BaseHTTPRequestHandler):
    """Leaves the first request without an answer, though it does what was asked; then it is busy once."""

    asked: list[str]  # of the server

    def do_POST(self) -> None:
        """Create the connector."""
        self.server.asked.append("POST")  # type: ignore[attr-defined]
        if self.server.asked.count("POST") == 1:  # type: ignore[attr-defined]
            self.close_connection = True
            return
        self._answer(409, b"Connector t already exists")

    def do_GET(self) -> None:
        """The connectors, or the state of one."""
        self.server.asked.append("GET")  # type: ignore[attr-defined]
        if self.server.asked.count("GET") == 1:  # type: ignore[attr-defined]
            self._answer(409, b"rebalance in progress")
        elif self.path == "/connectors":
            self._answer(200, b'["t"]')
        else:
            self._answer(200, b'{"connector": {"state": "STOPPED"}, "tasks": []}')

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


def test_request_without_an_answer_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy worker answers late or not at all; a connector that was created then exists already."""
    jars = SinkJars("", tmp_path)
    server = HTTPServer(("127.0.0.1", 0), _SlowConnect)
    server.asked = []  # type: ignore[attr-defined]
    monkeypatch.setattr(
        "millrace.deploy.bench.apply.sink.connect.free_port", lambda: server.server_port
    )
    worker = ConnectWorker(tmp_path, jars, "")
    monkeypatch.setattr(ConnectWorker, "process", SimpleNamespace(is_alive=lambda: True))
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        worker.create("t", {})
    finally:
        server.shutdown()
        server.server_close()
        serving.join()
    assert server.asked == ["POST", "POST", "GET", "GET", "GET"]  # type: ignore[attr-defined]
