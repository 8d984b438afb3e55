"""Converts control records to the plain dicts that Avro encodes, and back. Defines the field names on the wire.

Decoded fields are checked like any outside input: a missing field or a wrong type raises Fatal MR-6007, a text that is
not a GTID set Fatal MR-6001.
"""

from collections.abc import Mapping
from typing import NoReturn, TypeVar

from millrace.errors import Fatal
from millrace.schemas.gtid import Flavour, parse_gtid_set
from millrace.schemas.progress import OpenTransaction, Progress
from millrace.schemas.record.avro_codec import Plain
from millrace.schemas.record.avro_schema import SOURCE_VERSION, AvroSchema
from millrace.schemas.record.control import (
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
from millrace.schemas.snapshot import SnapshotState, TablePlace

_Kind = TypeVar("_Kind", str, int, bool)


def to_plain(record: ControlRecord) -> dict[str, Plain]:
    """The fields, by their names in the record's Avro schema."""
    head: dict[str, Plain] = {"control": kind_of(record).value}
    match record:
        case SchemaRecord():
            return head | _schema_fields(record)
        case DdlRecord():
            return head | _ddl_fields(record)
        case FenceRecord():
            return head | _progress_fields(record) | {"worker": record.worker}
        case ResolvedRecord():
            return head | _progress_fields(record)
        case SnapshotRecord():
            return head | _snapshot_fields(record)


def from_plain(kind: RecordKind, fields: Mapping[str, Plain]) -> ControlRecord:
    """The record of this kind; Fatal MR-6007, MR-6001."""
    if fields.get("control") != kind.value:
        _refuse(f"{fields.get('control')!r} instead of {kind.value!r}")
    match kind:
        case RecordKind.SCHEMA:
            return _schema(fields)
        case RecordKind.DDL:
            return _ddl(fields)
        case RecordKind.RESOLVED:
            return ResolvedRecord(*_progress(fields))
        case RecordKind.FENCE:
            return FenceRecord(*_progress(fields), _of(str, fields, "worker"))
        case RecordKind.SNAPSHOT:
            return _snapshot(fields)
        case RecordKind.ROW:
            return _refuse("it is a row")


def source_from_plain(fields: Mapping[str, Plain]) -> RecordSource:
    """From ``millrace.Source``; Fatal MR-6007."""
    return RecordSource(
        Origin(_flavour(fields, "connector"), _of(str, fields, "name"), _of(str, fields, "set")),
        _of(str, fields, "db"),
        _of(str, fields, "table"),
        EventPlace(
            _of(int, fields, "ts_ms"),
            _of(int, fields, "server_id"),
            _of(str, fields, "gtid"),
            _of(str, fields, "file"),
            _of(int, fields, "pos"),
            _of(int, fields, "event_flags"),
        ),
        _of(int, fields, "row"),
        _of(int, fields, "seq"),
        _of(str, fields, "snapshot") == "true",
    )


def transaction_from_plain(fields: Mapping[str, Plain]) -> RecordTransaction:
    """From ``millrace.Transaction``; Fatal MR-6007."""
    return RecordTransaction(
        _of(str, fields, "id"), _of(int, fields, "total_order"), _of(bool, fields, "last")
    )


def source_to_plain(source: RecordSource) -> dict[str, Plain]:
    """``millrace.Source``."""
    origin, place = source.origin, source.place
    return {
        "version": SOURCE_VERSION,
        "connector": origin.connector.value,
        "name": origin.task,
        "snapshot": "true" if source.is_snapshot else "false",
        "db": source.database,
        "table": source.table,
        "set": origin.set_name,
        "ts_ms": place.ts_ms,
        "server_id": place.server_id,
        "gtid": place.gtid,
        "file": place.file,
        "pos": place.pos,
        "row": source.row,
        "event_flags": place.flags,
        "seq": source.seq,
    }


def transaction_to_plain(transaction: RecordTransaction) -> dict[str, Plain]:
    """``millrace.Transaction``."""
    return {
        "id": transaction.gtid,
        "total_order": transaction.total_order,
        "last": transaction.is_last,
    }


def nested(fields: Mapping[str, Plain], name: str) -> dict[str, Plain]:
    """The record in a field; Fatal MR-6007 if it is not a record."""
    found = fields.get(name)
    return found if isinstance(found, dict) else _refuse(f"{name} is {found!r}")


def _schema_fields(record: SchemaRecord) -> dict[str, Plain]:
    key = record.key
    return {
        "subject": record.value.subject,
        "id": record.value.id,
        "fingerprint": record.value.schema.fingerprint,
        "schema": record.value.schema.text,
        "key_subject": key.subject if key else None,
        "key_id": key.id if key else None,
        "key_schema": key.schema.text if key else None,
        "db": record.database,
        "table": record.table,
        "seq": record.seq,
    }


def _schema(fields: Mapping[str, Plain]) -> SchemaRecord:
    schema = AvroSchema.parse(_of(str, fields, "schema"))
    if schema.fingerprint != _of(str, fields, "fingerprint"):
        _refuse(f"the fingerprint of schema {_of(int, fields, 'id')} does not match its text")
    key = None
    if fields.get("key_id") is not None:
        key = RegisteredSchema(
            _of(str, fields, "key_subject"),
            _of(int, fields, "key_id"),
            AvroSchema.parse(_of(str, fields, "key_schema")),
        )
    return SchemaRecord(
        RegisteredSchema(_of(str, fields, "subject"), _of(int, fields, "id"), schema),
        key,
        _of(str, fields, "db"),
        _of(str, fields, "table"),
        _of(int, fields, "seq"),
    )


def _ddl_fields(record: DdlRecord) -> dict[str, Plain]:
    statement, transaction = record.statement, record.transaction
    return {
        "source": source_to_plain(record.source),
        "sql": statement.sql,
        "kind": statement.kind,
        "tables": [{"db": database, "table": table} for database, table in statement.tables],
        "session": dict(statement.session),
        "ts_ms": record.ts_ms,
        "transaction": transaction_to_plain(transaction),
    }


def _ddl(fields: Mapping[str, Plain]) -> DdlRecord:
    tables, session = fields.get("tables"), nested(fields, "session")
    if not isinstance(tables, list):
        _refuse(f"tables is {tables!r}")
    return DdlRecord(
        source_from_plain(nested(fields, "source")),
        DdlStatement(
            _of(str, fields, "sql"),
            _of(str, fields, "kind"),
            tuple((_of(str, table, "db"), _of(str, table, "table")) for table in tables),
            {name: _of(str, session, name) for name in session},
        ),
        _of(int, fields, "ts_ms"),
        transaction_from_plain(nested(fields, "transaction")),
    )


def _progress_fields(record: ResolvedRecord | FenceRecord) -> dict[str, Plain]:
    progress = record.progress
    return {
        "gtid_set": str(progress.gtid_set),
        "open_gtid": progress.open.gtid if progress.open else None,
        "open_rows": progress.open.rows if progress.open else 0,
        "seq": progress.seq,
        "epoch": record.epoch,
        "ts_ms": record.ts_ms,
        "flavour": progress.gtid_set.flavour.value,
        "set": record.set_name,
        "snapshot": _state_fields(progress.snapshot),
    }


def _state_fields(state: SnapshotState | None) -> dict[str, Plain] | None:
    if state is None:
        return None
    at = state.at or TablePlace(("", ""))
    return {
        "id": state.id,
        "tables": list(state.tables),
        "where": state.where,
        "db": at.name[0],
        "table": at.name[1],
        "begun": at.is_open,
        "after": list(at.after),
        "chunks": at.chunks,
        "rows": at.rows,
    }


def _state(fields: Mapping[str, Plain]) -> SnapshotState | None:
    if fields.get("snapshot") is None:
        return None
    state = nested(fields, "snapshot")
    name = (_of(str, state, "db"), _of(str, state, "table"))
    at = TablePlace(
        name,
        _of(bool, state, "begun"),
        _texts(state, "after"),
        _of(int, state, "chunks"),
        _of(int, state, "rows"),
    )
    return SnapshotState(
        _of(str, state, "id"),
        _texts(state, "tables"),
        _of(str, state, "where"),
        at if name != ("", "") else None,
    )


def _snapshot_fields(record: SnapshotRecord) -> dict[str, Plain]:
    table = record.table
    return {
        "step": record.step.value,
        "id": table.id,
        "db": table.database,
        "table": table.table,
        "where": table.where,
        "gtid_set": record.gtid_set,
        "rows": record.rows,
        "seq": record.seq,
    }


def _snapshot(fields: Mapping[str, Plain]) -> SnapshotRecord:
    step = _of(str, fields, "step")
    if step not in tuple(SnapshotStep):
        _refuse(f"step is {step!r}")
    id_, database, table, where = (
        _of(str, fields, name) for name in ("id", "db", "table", "where")
    )
    return SnapshotRecord(
        SnapshotStep(step),
        SnapshotTable(id_, database, table, where),
        _of(str, fields, "gtid_set"),
        _of(int, fields, "rows"),
        _of(int, fields, "seq"),
    )


def _progress(fields: Mapping[str, Plain]) -> tuple[Progress, str, int, int]:
    gtid_set = parse_gtid_set(_flavour(fields, "flavour"), _of(str, fields, "gtid_set"))
    open_ = None
    if fields.get("open_gtid") is not None:
        open_ = OpenTransaction(_of(str, fields, "open_gtid"), _of(int, fields, "open_rows"))
    return (
        Progress(gtid_set, open_, _of(int, fields, "seq"), _state(fields)),
        _of(str, fields, "set"),
        _of(int, fields, "epoch"),
        _of(int, fields, "ts_ms"),
    )


def _texts(fields: Mapping[str, Plain], name: str) -> tuple[str, ...]:
    found = fields.get(name)
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        _refuse(f"{name} is {found!r}")
    return tuple(found)


def _flavour(fields: Mapping[str, Plain], name: str) -> Flavour:
    text = _of(str, fields, name)
    return Flavour(text) if text in tuple(Flavour) else _refuse(f"{name} is {text!r}")


def _of(kind: type[_Kind], fields: Mapping[str, Plain], name: str) -> _Kind:
    found = fields.get(name)
    return found if isinstance(found, kind) else _refuse(f"{name} is {found!r}")


def _refuse(why: str) -> NoReturn:
    raise Fatal("MR-6007", f"not a control record: {why}")
