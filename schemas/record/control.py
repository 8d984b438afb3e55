"""Control records: the records between the rows of a topic. Their layouts are fixed and independent of any table.

    schema     a schema before its first use in a run, with its id; so a topic contains the schemas that it needs
    ddl        a logged statement; has a ``seq`` like a row
    resolved   all source transactions up to here are delivered; ends every Kafka transaction
    fence      the same, and a new owner (``epoch``, ``worker``) begins
    snapshot   the rows of a snapshot of one table begin or end here

Each is an Avro record in namespace ``millrace.control``. Its first field is ``control``, the kind as a string. So byte
5 of a framed value is twice the length of the kind here; in a row it is 0 or 2 (the branch of ``before``):

    00 iiiiiiii 0c 736368656d61 …        schema          00 iiiiiiii 06 64646c …               ddl
    00 iiiiiiii 10 7265736f6c766564 …    resolved        00 iiiiiiii 0a 66656e6365 …           fence
    00 iiiiiiii 10 736e617073686f74 …    snapshot

Guarantees: an encoded record decodes to an equal value. The text of a schema here is part of the format and does not
change; the format grows only by new kinds. Not done here: framing (``schemas.record.framing``) and the Avro codec
(``schemas.record.avro_codec``).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TypeAlias

from millrace.schemas.gtid.position import Flavour
from millrace.schemas.progress import Progress
from millrace.schemas.record.avro_schema import SOURCE, TRANSACTION, AvroSchema, Json
from millrace.schemas.sql.tokens import SqlMode

CONTROL_NAMESPACE = "millrace.control"


class RecordKind(StrEnum):
    """The kind of a record in a topic; in a control record also the content of the first field."""

    ROW = "row"
    SCHEMA = "schema"
    DDL = "ddl"
    RESOLVED = "resolved"
    FENCE = "fence"
    SNAPSHOT = "snapshot"


class SnapshotStep(StrEnum):
    """The statement of a ``snapshot`` record about its table."""

    BEGIN = "begin"  # its rows follow
    END = "end"  # all of them are before this record
    STOP = "stop"  # no more of them follow: it was stopped, or begins again


@dataclass(frozen=True, slots=True)
class Origin:
    """The capture task, its set and the kind of server: the same in every record of a task."""

    connector: Flavour
    task: str
    set_name: str


@dataclass(frozen=True, slots=True)
class EventPlace:
    """The binlog event of a record; ``ts_ms`` is the time in its header, ``pos`` its start in the binlog file."""

    ts_ms: int
    server_id: int
    gtid: str
    file: str
    pos: int
    flags: int


@dataclass(frozen=True, slots=True)
class RecordSource:
    """``millrace.Source``. ``row`` counts from 0 in the event, ``seq`` from 1 in the topic without gaps.

    ``is_snapshot``: a row of a snapshot. Its ``place`` has the id of the snapshot, the number of the chunk,
    and the time of reading.
    """

    origin: Origin
    database: str
    table: str
    place: EventPlace
    row: int
    seq: int
    is_snapshot: bool = False


@dataclass(frozen=True, slots=True)
class RecordTransaction:
    """``millrace.Transaction``. ``total_order`` counts from 1 before any filter; a filtered row leaves a gap."""

    gtid: str
    total_order: int
    is_last: bool


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema with the id that framed records carry."""

    subject: str
    id: int
    schema: AvroSchema


@dataclass(frozen=True, slots=True)
class SchemaRecord:
    """``key`` is set for tables with a primary key. ``database`` and ``table`` are "" for the control schemas."""

    value: RegisteredSchema
    key: RegisteredSchema | None
    database: str
    table: str
    seq: int


@dataclass(frozen=True, slots=True)
class DdlStatement:
    """``session`` holds the variables, by name, that affect its meaning; ``tables`` holds (database, table)."""

    sql: str
    kind: str
    tables: tuple[tuple[str, str], ...]
    session: Mapping[str, str]

    @property
    def default_database(self) -> str:
        """ "" if it had none."""
        return self.session.get("default_database", "")

    @property
    def sql_mode(self) -> SqlMode:
        """The parts of ``sql_mode`` that the classifier needs."""
        modes = self.session.get("sql_mode", "").split(",")
        return SqlMode("ANSI_QUOTES" in modes, "NO_BACKSLASH_ESCAPES" in modes)


@dataclass(frozen=True, slots=True)
class DdlRecord:
    """A logged statement, at its position among the rows."""

    source: RecordSource
    statement: DdlStatement
    ts_ms: int
    transaction: RecordTransaction


@dataclass(frozen=True, slots=True)
class ResolvedRecord:
    """Everything up to ``progress`` is before this record in the partition."""

    progress: Progress
    set_name: str
    epoch: int
    ts_ms: int


@dataclass(frozen=True, slots=True)
class FenceRecord:
    """A resolved record after which only the owner with ``epoch`` writes."""

    progress: Progress
    set_name: str
    epoch: int
    ts_ms: int
    worker: str


@dataclass(frozen=True, slots=True)
class SnapshotTable:
    """A table in a snapshot. ``where``: the condition of its rows as SQL; "" for all of them."""

    id: str
    database: str
    table: str
    where: str


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """``gtid_set``: the source transactions delivered before it. ``rows``: published since ``begin``."""

    step: SnapshotStep
    table: SnapshotTable
    gtid_set: str
    rows: int
    seq: int


ControlRecord: TypeAlias = SchemaRecord | DdlRecord | ResolvedRecord | FenceRecord | SnapshotRecord


def _control(name: str, fields: "list[Json]") -> AvroSchema:
    first: Json = {"name": "control", "type": "string"}
    return AvroSchema.of(
        {"type": "record", "name": name, "namespace": CONTROL_NAMESPACE, "fields": [first, *fields]}
    )


def _field(name: str, type_: Json) -> Json:
    return {"name": name, "type": type_}


_PROGRESS: "list[Json]" = [
    _field("gtid_set", "string"),
    _field("open_gtid", ["null", "string"]),
    _field("open_rows", "long"),
    _field("seq", "long"),
    _field("epoch", "long"),
    _field("ts_ms", "long"),
    _field("flavour", "string"),
    _field("set", "string"),
    _field(
        "snapshot",
        [
            "null",
            {
                "type": "record",
                "name": "SnapshotState",
                "fields": [
                    _field("id", "string"),
                    _field("tables", {"type": "array", "items": "string"}),
                    _field("where", "string"),
                    _field("db", "string"),
                    _field("table", "string"),
                    _field("begun", "boolean"),
                    _field("after", {"type": "array", "items": "string"}),
                    _field("chunks", "long"),
                    _field("rows", "long"),
                ],
            },
        ],
    ),
]

SCHEMA_SCHEMA = _control(
    "Schema",
    [
        _field("subject", "string"),
        _field("id", "int"),
        _field("fingerprint", "string"),
        _field("schema", "string"),
        _field("key_subject", ["null", "string"]),
        _field("key_id", ["null", "int"]),
        _field("key_schema", ["null", "string"]),
        _field("db", "string"),
        _field("table", "string"),
        _field("seq", "long"),
    ],
)
DDL_SCHEMA = _control(
    "Ddl",
    [
        _field("source", SOURCE),
        _field("sql", "string"),
        _field("kind", "string"),
        _field(
            "tables",
            {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "TableName",
                    "fields": [_field("db", "string"), _field("table", "string")],
                },
            },
        ),
        _field("session", {"type": "map", "values": "string"}),
        _field("ts_ms", "long"),
        _field("transaction", TRANSACTION),
    ],
)
RESOLVED_SCHEMA = _control("Resolved", _PROGRESS)
FENCE_SCHEMA = _control("Fence", [*_PROGRESS, _field("worker", "string")])
SNAPSHOT_SCHEMA = _control(
    "Snapshot",
    [
        _field("step", "string"),
        _field("id", "string"),
        _field("db", "string"),
        _field("table", "string"),
        _field("where", "string"),
        _field("gtid_set", "string"),
        _field("rows", "long"),
        _field("seq", "long"),
    ],
)

CONTROL_SCHEMAS: Mapping[RecordKind, AvroSchema] = MappingProxyType(
    {
        RecordKind.SCHEMA: SCHEMA_SCHEMA,
        RecordKind.DDL: DDL_SCHEMA,
        RecordKind.RESOLVED: RESOLVED_SCHEMA,
        RecordKind.FENCE: FENCE_SCHEMA,
        RecordKind.SNAPSHOT: SNAPSHOT_SCHEMA,
    }
)


def kind_of(record: ControlRecord) -> RecordKind:
    """The kind, which is the key of its layout in ``CONTROL_SCHEMAS``."""
    match record:
        case SchemaRecord():
            return RecordKind.SCHEMA
        case DdlRecord():
            return RecordKind.DDL
        case ResolvedRecord():
            return RecordKind.RESOLVED
        case FenceRecord():
            return RecordKind.FENCE
        case SnapshotRecord():
            return RecordKind.SNAPSHOT
