"""Maxwell's records of binlog files: its classes for events, DDL and records, without a server and without Kafka.

The loop is that of Maxwell's ``BinlogConnectorReplicator``: rows of a source transaction wait for its end, which gives
them ``xid`` and ``commit``. The schema is what Maxwell's own parser makes of the DDL in the files. What it can't parse
or convert is left out, and named in ``MaxwellFiles.errors``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from py4j.java_gateway import set_field
from py4j.protocol import Py4JJavaError

from millrace.schemas.view.format_options import FormatOptions, KeyFormat
from tests.kit.flat.jvm import Judged, file_events, without_metadata

_ROWS = ("WRITE_ROWS", "UPDATE_ROWS", "DELETE_ROWS")
_FIELDS = {
    "output_commit_info": "includesCommitInfo",
    "output_xoffset": "includesXOffset",
    "output_binlog_position": "includesBinlogPosition",
    "output_gtid_position": "includesGtidPosition",
    "output_server_id": "includesServerId",
    "output_primary_keys": "includesPrimaryKeys",
    "output_primary_key_columns": "includesPrimaryKeyColumns",
    "output_nulls": "includesNulls",
}


@dataclass
class MaxwellFiles:
    """Reads files one after the other. ``jvm``: of ``judge_jvm``."""

    jvm: Any
    options: FormatOptions
    errors: list[str] = field(default_factory=list)

    def records(self, files: Sequence[Path]) -> Iterator[Judged]:
        """The records of all rows, in the order of the binlog."""
        maxwell = self.jvm.com.zendesk.maxwell
        sensitivity = maxwell.CaseSensitivity.CASE_SENSITIVE
        databases = self.jvm.java.util.ArrayList()
        self._schema = maxwell.schema.Schema(databases, "utf8mb4", sensitivity)
        self._config = maxwell.producer.MaxwellOutputConfig()
        for name, other in _FIELDS.items():
            set_field(self._config, other, getattr(self.options, name))
        formats = getattr(maxwell.row, "RowMap$KeyFormat")
        is_hash = self.options.kafka_key_format is KeyFormat.HASH
        self._key_format = formats.HASH if is_hash else formats.ARRAY
        for path in files:
            yield from self._records(path)

    def _records(self, path: Path) -> Iterator[Judged]:
        tables: dict[int, Any] = {}
        gtid, rows, begin = "", [], None
        for event in self._events(path):
            kind = str(event.getHeader().getEventType())
            data = event.getData()
            if kind == "GTID":
                gtid = data.getGtid()
            elif kind == "MARIADB_GTID":
                number = data.getSequence()
                gtid = f"{data.getDomainId()}-{data.getServerId()}-{number}"
                begin = event
            elif kind == "TABLE_MAP":
                database = self._schema.findDatabase(data.getDatabase())
                tables[data.getTableId()] = database and database.findTable(data.getTable())
            elif kind.removeprefix("EXT_") in _ROWS:
                rows += self._rows(event, path.name, gtid, tables.get(data.getTableId()))
            elif kind == "XID" or (kind == "QUERY" and data.getSql() == "COMMIT"):
                yield from self._transaction(rows, gtid, begin, data if kind == "XID" else None)
                rows = []
            elif kind == "QUERY" and data.getSql() == "BEGIN":
                begin = event
            elif kind == "QUERY":
                self._change_schema(data.getDatabase(), data.getSql())

    def _events(self, path: Path) -> Iterator[Any]:
        binlog = self.jvm.com.github.shyiko.mysql.binlog
        deserialization = binlog.event.deserialization
        deserializer = deserialization.EventDeserializer()
        modes = getattr(deserialization, "EventDeserializer$CompatibilityMode")
        more = self.jvm.java.lang.reflect.Array.newInstance(
            self.jvm.java.lang.Class.forName(
                "com.github.shyiko.mysql.binlog.event.deserialization.EventDeserializer$CompatibilityMode"
            ),
            2,
        )
        more[0], more[1] = (
            modes.CHAR_AND_BINARY_AS_BYTE_ARRAY,
            modes.INVALID_DATE_AND_TIME_AS_MIN_VALUE,
        )
        deserializer.setCompatibilityMode(modes.DATE_AND_TIME_AS_LONG_MICRO, more)
        stream = self.jvm.com.github.shyiko.mysql.binlog.io.ByteArrayInputStream
        for octets in map(without_metadata, file_events(path)):
            try:
                event = deserializer.nextEvent(stream(octets))
            except Py4JJavaError as problem:
                self._note(problem)
                continue
            yield event

    def _rows(self, event: Any, file: str, gtid: str, table: Any) -> list[Any]:
        if table is None:
            return []
        replication = self.jvm.com.zendesk.maxwell.replication
        of_maxwell = replication.BinlogConnectorEvent(event, file, gtid, gtid, self._config)
        try:
            return list(of_maxwell.jsonMaps(table, 0, None))
        except Py4JJavaError as problem:
            self._note(problem)
            return []

    def _transaction(self, rows: list[Any], gtid: str, begin: Any, end: Any) -> Iterator[Judged]:
        for number, row in enumerate(rows):
            row.setXoffset(number)
            if begin is not None:
                row.setServerId(begin.getHeader().getServerId())
            if end is not None:
                row.setXid(end.getXid())
            if number == len(rows) - 1:
                row.setTXCommit()
            try:
                key, value = row.pkToJson(self._key_format), row.toJSON(self._config)
            except Py4JJavaError as problem:
                self._note(problem, row.getTable())
                continue
            yield Judged(row.getDatabase(), row.getTable(), (gtid, number), key, value)

    def _change_schema(self, database: str, sql: str) -> None:
        try:
            changes = self.jvm.com.zendesk.maxwell.schema.ddl.SchemaChange.parse(database, sql)
            for change in changes or ():
                resolved = change.resolve(self._schema)
                if resolved is not None:
                    resolved.apply(self._schema)
        except Py4JJavaError as problem:
            self._note(problem, sql)

    def _note(self, problem: Py4JJavaError, what: str = "") -> None:
        exception = problem.java_exception
        while exception.getCause() is not None:
            exception = exception.getCause()
        self.errors.append(f"{exception.toString()[:200]} {what[:120]}".strip())
