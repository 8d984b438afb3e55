"""Records from bytes: framing, kinds without a schema, and a stream that carries its schemas."""

import json
from dataclasses import replace
from decimal import Decimal

import pytest

from millrace.errors import Fatal
from millrace.schemas.gtid import Flavour, GtidSet, MariadbGtidSet
from millrace.schemas.progress import OpenTransaction, Progress
from millrace.schemas.record.avro_codec import Plain, encode
from millrace.schemas.record.avro_schema import AvroSchema, envelope_schema, key_schema
from millrace.schemas.record.control import (
    CONTROL_SCHEMAS,
    ControlRecord,
    DdlRecord,
    DdlStatement,
    EventPlace,
    FenceRecord,
    Origin,
    RecordKind,
    RecordSource,
    RecordTransaction,
    RegisteredSchema,
    ResolvedRecord,
    SchemaRecord,
    SnapshotRecord,
    SnapshotStep,
    SnapshotTable,
    kind_of,
)
from millrace.schemas.record.framing import frame, peek_kind, unframe
from millrace.schemas.record.record import (
    KnownSchemas,
    RowRecord,
    decode_control,
    decode_record,
    encode_control,
)
from millrace.schemas.snapshot import SnapshotState, TablePlace
from millrace.schemas.table.structure import Column, ColumnType, TableSchema, TextEncoding, TypeCode

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
TABLE = TableSchema(
    "shop",
    "order-line",
    (
        Column("id", ColumnType(TypeCode.LONGLONG, is_unsigned=True), False),
        Column("2nd name", ColumnType(TypeCode.VARCHAR, 40, text=TextEncoding("latin1", 8)), True),
        Column("price", ColumnType(TypeCode.NEWDECIMAL, 10 << 8 | 2), True),
        Column(
            "kind",
            ColumnType(TypeCode.ENUM, 1, text=TextEncoding("latin1", 8), labels=("a",)),
            False,
        ),
    ),
    (0,),
    (0,),
)
ENVELOPE = envelope_schema("s", TABLE)
SOURCE = RecordSource(
    Origin(Flavour.MYSQL, "task", "s"),
    "shop",
    "order-line",
    EventPlace(1000, 7, f"{UUID}:6", "b.1", 4, 2),
    0,
    9,
)
PROGRESS = Progress(GtidSet.parse(f"{UUID}:1-5"), OpenTransaction(f"{UUID}:6", 3), 17)
WHOLE = Progress(MariadbGtidSet.parse("0-1-5"), None, 17)
STATE = SnapshotState(
    "initial", ("shop.*",), "a = 'ü'", TablePlace(("shop", "ü.t"), True, ("41", "7"), 3, 900)
)


def key_of(table: TableSchema) -> AvroSchema:
    """Return the key schema of a table that has one."""
    schema = key_schema("s", table)
    assert schema is not None
    return schema


CONTROLS: list[ControlRecord] = [
    SchemaRecord(
        RegisteredSchema("t-a", 5, ENVELOPE),
        RegisteredSchema("t-b", 6, key_of(TABLE)),
        "shop",
        "order-line",
        16,
    ),
    SchemaRecord(RegisteredSchema("t-c", 1, CONTROL_SCHEMAS[RecordKind.SCHEMA]), None, "", "", 0),
    DdlRecord(
        SOURCE,
        DdlStatement("DROP TABLE a", "drop_table", (("shop", "a"),), {"sql_mode": ""}),
        1234,
        RecordTransaction(f"{UUID}:6", 1, True),
    ),
    ResolvedRecord(PROGRESS, "s", 99, 1234),
    ResolvedRecord(WHOLE, "s", 99, 1234),
    FenceRecord(PROGRESS, "s", 99, 1234, "worker-1"),
    ResolvedRecord(replace(WHOLE, snapshot=STATE), "s", 99, 1234),
    FenceRecord(replace(WHOLE, snapshot=replace(STATE, at=None)), "s", 99, 1234, "worker-1"),
    SnapshotRecord(
        SnapshotStep.END, SnapshotTable("initial", "shop", "ü.t", "id > 5"), "0-1-5", 3, 17
    ),
]


@pytest.mark.parametrize("record", CONTROLS, ids=lambda record: type(record).__name__)
def test_control_records_round_trip_without_known_schemas(record: ControlRecord) -> None:
    """The layouts are part of the format: a reader that starts at the tail needs nothing else."""
    value = encode_control(record, schema_id=12)
    assert unframe(value)[0] == 12
    assert peek_kind(value) is kind_of(record)
    assert decode_control(value) == record


def row_value(schema_id: int, *, before: object = None) -> bytes:
    """Return an insert, or an update with a before image."""
    row: dict[str, Plain] = {
        "id": Decimal(2**64 - 1),
        "_u0032_nd_u0020_name": b"\x81",
        "price": None,
        "kind": 0,
    }
    source: dict[str, Plain] = {
        "version": "1", "connector": "mysql", "name": "task", "snapshot": "false", "db": "shop",
        "table": "order-line", "set": "s", "ts_ms": 1000, "server_id": 7, "gtid": f"{UUID}:6", "file": "b.1",
        "pos": 4, "row": 0, "event_flags": 2, "seq": 9,
    }  # fmt: skip
    transaction: dict[str, Plain] = {"id": f"{UUID}:6", "total_order": 1, "last": True}
    record: dict[str, Plain] = {
        "before": before, "after": row, "source": source, "op": "c", "ts_ms": 5, "transaction": transaction,
    }  # fmt: skip
    return frame(schema_id, encode(ENVELOPE.text, record))


def test_stream_carries_its_own_schemas() -> None:
    """After its schema record a row needs no registry; names and values are the original ones."""
    known = KnownSchemas()
    decode_record(None, encode_control(CONTROLS[0], schema_id=1), known)
    key = frame(6, encode(key_of(TABLE).text, {"id": Decimal(2**64 - 1)}))
    record = decode_record(key, row_value(5), known)
    assert isinstance(record, RowRecord)
    assert record.change.before is None
    assert record.change.after == {
        "id": Decimal(18446744073709551615),
        "2nd name": b"\x81",
        "price": None,
        "kind": 0,
    }
    assert record.key == {"id": Decimal(18446744073709551615)}
    assert record.source == SOURCE
    assert record.layout.table == TABLE
    assert record.transaction.is_last


def test_unknown_schema_id_is_looked_up_once_or_refused() -> None:
    """The registry is a fallback."""
    with pytest.raises(Fatal, match="MR-6009 schema id 5"):
        decode_record(None, row_value(5), KnownSchemas())
    asked: list[int] = []

    def look_up(schema_id: int) -> str:
        asked.append(schema_id)
        return ENVELOPE.text

    known = KnownSchemas(look_up)
    for _ in range(2):
        assert isinstance(decode_record(None, row_value(5), known), RowRecord)
    assert asked == [5]


def _explained(known: KnownSchemas, table: TableSchema) -> None:
    """Make id 5 known."""
    registered = RegisteredSchema("t", 5, envelope_schema("s", table))
    record = SchemaRecord(registered, None, table.database, table.table, 0)
    decode_control(encode_control(record, schema_id=1), known)


def test_last_schema_record_of_an_id_wins() -> None:
    """Ids start over with another registry; every run repeats the schema records before their first use."""
    known = KnownSchemas()
    *others, kind = TABLE.columns
    for label in ("a", "b"):
        changed = replace(kind, type=replace(kind.type, labels=(label,)))
        _explained(known, replace(TABLE, columns=(*others, changed)))
        record = decode_record(None, row_value(5), known)
        assert isinstance(record, RowRecord)
        assert record.layout.table.columns[-1].type.labels == (label,)


def test_row_is_never_decoded_by_another_tables_schema() -> None:
    """The id meant another table when it was written; a table of the same structure would show no difference."""
    known = KnownSchemas()
    _explained(known, replace(TABLE, table="renamed"))
    with pytest.raises(Fatal, match=r"belongs to shop\.renamed, the row to shop\.order-line"):
        decode_record(None, row_value(5), known)


def test_rows_and_control_records_differ_without_a_schema() -> None:
    """Byte 5 decides: the branch of ``before``, or twice the length of the kind."""
    before: dict[str, Plain] = {
        "id": Decimal(1),
        "_u0032_nd_u0020_name": "x",
        "price": None,
        "kind": "a",
    }
    assert row_value(5)[5] == 0
    assert row_value(5, before=before)[5] == 2
    assert peek_kind(row_value(5, before=before)) is RecordKind.ROW
    starts = {
        kind: encode_control(record, schema_id=1)[5]
        for record in CONTROLS
        for kind in [kind_of(record)]
    }
    assert starts == {
        "schema": 12,
        "ddl": 6,
        "resolved": 16,
        "fence": 10,
        "snapshot": 16,
    }


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\0",
        b"\0\0\0\0\1",
        b"\1\0\0\0\1\0",
        b'{"a":1}',
        b"\0\0\0\0\1\x0cschemo",
        b"\0\0\0\0\1\4",
    ],
)
def test_foreign_record_is_refused(value: bytes) -> None:
    """The topic has bytes of another producer."""
    with pytest.raises(Fatal, match="MR-6007"):
        peek_kind(value)


def test_damaged_record_is_refused() -> None:
    """A record cut anywhere, one with extra bytes, or one with the wrong fingerprint is refused."""
    known = KnownSchemas()
    decode_control(encode_control(CONTROLS[0], schema_id=1), known)
    for whole in (row_value(5), *(encode_control(record, schema_id=1) for record in CONTROLS)):
        for wrong in [*(whole[:end] for end in range(len(whole))), whole + b"\0"]:
            with pytest.raises(Fatal, match="MR-60"):
                decode_record(None, wrong, known)
    value = encode_control(CONTROLS[0], schema_id=1)
    fingerprint = ENVELOPE.fingerprint.encode()
    with pytest.raises(Fatal, match=r"MR-6007 .*fingerprint"):
        decode_control(value.replace(fingerprint, b"0" * len(fingerprint)), known)


def test_row_is_not_read_as_control_record() -> None:
    """A request to read it as one is refused."""
    with pytest.raises(Fatal, match="MR-6007"):
        decode_control(row_value(5))


def test_control_record_layouts_are_fixed() -> None:
    """They are part of the format: a change here is a new format, so it must be deliberate."""
    fields = {
        kind: [field["name"] for field in json.loads(schema.text)["fields"]]
        for kind, schema in CONTROL_SCHEMAS.items()
    }
    progress = [
        "control",
        "gtid_set",
        "open_gtid",
        "open_rows",
        "seq",
        "epoch",
        "ts_ms",
        "flavour",
        "set",
        "snapshot",
    ]
    assert fields == {
        "schema": [
            "control", "subject", "id", "fingerprint", "schema", "key_subject", "key_id", "key_schema", "db",
            "table", "seq",
        ],
        "ddl": ["control", "source", "sql", "kind", "tables", "session", "ts_ms", "transaction"],
        "resolved": progress,
        "fence": [*progress, "worker"],
        "snapshot": ["control", "step", "id", "db", "table", "where", "gtid_set", "rows", "seq"],
    }  # fmt: skip
    assert {str(kind): schema.full_name for kind, schema in CONTROL_SCHEMAS.items()} == {
        "schema": "millrace.control.Schema",
        "ddl": "millrace.control.Ddl",
        "resolved": "millrace.control.Resolved",
        "fence": "millrace.control.Fence",
        "snapshot": "millrace.control.Snapshot",
    }
