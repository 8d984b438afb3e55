"""Decodes any record of a topic to Python values, and encodes control records. The reference decoder of rows.

``KnownSchemas`` learns schemas from the stream: decode every record in order with one object, and it knows the schema
of every row. The first ``schema`` record of a stream describes its own layout. It is read with the layout that is part
of the format (``schemas.record.control``).

    unknown id of a row             the look-up of ``KnownSchemas`` (a registry), else Fatal MR-6009
    unknown id of a control record  the fixed layout, so a reader that starts at the tail needs no schema
    an id introduced again          the last schema record before a record counts; another registry restarts its ids

Not done here: reading Kafka, checking ``seq``, speed (the kernels of producer and consumer are fast).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from millrace.errors import Fatal
from millrace.schemas.record.avro_codec import Plain, decode, encode
from millrace.schemas.record.control import (
    CONTROL_SCHEMAS,
    ControlRecord,
    DdlRecord,
    FenceRecord,
    RecordKind,
    RecordSource,
    RecordTransaction,
    ResolvedRecord,
    SchemaRecord,
    SnapshotRecord,
    kind_of,
)
from millrace.schemas.record.control_fields import (
    from_plain,
    nested,
    source_from_plain,
    to_plain,
    transaction_from_plain,
)
from millrace.schemas.record.framing import frame, peek_kind, unframe
from millrace.schemas.record.row_end import read_row_end
from millrace.schemas.record.row_layout import RowLayout, parse_row_layout

Image: TypeAlias = Mapping[str, Plain]  # by original column name

LookUp: TypeAlias = Callable[[int], str]  # schema id to schema text; Fatal MR-6009


@dataclass(frozen=True, slots=True)
class RowChange:
    """Images of one row by original column names; None is an absent image, SQL NULL is None inside it."""

    before: Image | None
    after: Image | None
    op: str


@dataclass(frozen=True, slots=True)
class RowRecord:
    """One row of a rows event, or of a snapshot.

    ``key`` holds the primary key by original column names; None without one.
    """

    key: Image | None
    change: RowChange
    source: RecordSource
    ts_ms: int
    transaction: RecordTransaction
    layout: RowLayout


Record: TypeAlias = RowRecord | ControlRecord


class KnownSchemas:
    """Schema texts by id, learned from ``schema`` records and never dropped."""

    def __init__(self, look_up: LookUp | None = None) -> None:
        self._look_up = look_up
        self._texts: dict[int, str] = {}
        self._names: dict[int, str] = {}  # full record names of learned schemas
        self._layouts: dict[int, RowLayout] = {}

    def learn(self, record: SchemaRecord) -> None:
        """Store the schemas of a schema record, in place of earlier ones with the same ids."""
        for registered in (record.value, record.key):
            if registered is not None and self._texts.get(registered.id) != registered.schema.text:
                self._texts[registered.id] = registered.schema.text
                self._names[registered.id] = registered.schema.full_name
                self._layouts.pop(registered.id, None)

    def text(self, schema_id: int) -> str:
        """The schema's text; Fatal MR-6009."""
        found = self._texts.get(schema_id)
        if found is None:
            if self._look_up is None:
                raise Fatal("MR-6009", f"schema id {schema_id} is unknown", schema_id=schema_id)
            found = self._texts[schema_id] = self._look_up(schema_id)
        return found

    def layout(self, schema_id: int) -> RowLayout:
        """The layout of rows that are framed with this id; Fatal MR-6009, MR-6010."""
        found = self._layouts.get(schema_id)
        if found is None:
            found = self._layouts[schema_id] = parse_row_layout(self.text(schema_id))
        return found

    def control_text(self, kind: RecordKind, schema_id: int) -> str:
        """The schema of a control record; the fixed one if the id is unknown or belongs to another record."""
        fixed = CONTROL_SCHEMAS[kind]
        is_known = self._names.get(schema_id) == fixed.full_name
        return self._texts[schema_id] if is_known else fixed.text


def encode_control(record: ControlRecord, *, schema_id: int) -> bytes:
    """The framed value; ``schema_id`` is the registered id of ``CONTROL_SCHEMAS[kind_of(record)]``."""
    return frame(schema_id, encode(CONTROL_SCHEMAS[kind_of(record)].text, to_plain(record)))


def decode_control(value: bytes, known: KnownSchemas | None = None) -> ControlRecord:
    """A control record; ``known`` learns from it. Fatal MR-6007, also for a row."""
    known = known or KnownSchemas()
    kind = peek_kind(value)
    if kind is RecordKind.ROW:
        raise Fatal("MR-6007", "a row was found where a control record is expected")
    schema_id, body = unframe(value)
    record = from_plain(kind, decode(known.control_text(kind, schema_id), body))
    if isinstance(record, SchemaRecord):
        known.learn(record)
    return record


def seq_of(value: bytes) -> int:
    """The ``seq`` of any record: of its row or statement, or of the last one before it. Fatal MR-6007."""
    if peek_kind(value) is RecordKind.ROW:
        return read_row_end(value).seq
    match decode_control(value):
        case SchemaRecord(seq=seq) | SnapshotRecord(seq=seq):
            return seq
        case DdlRecord(source=source):
            return source.seq
        case ResolvedRecord(progress=progress) | FenceRecord(progress=progress):
            return progress.seq


def decode_record(key: bytes | None, value: bytes, known: KnownSchemas) -> Record:
    """Any record; ``known`` learns from schema records. Fatal MR-6007, MR-6009, MR-6010."""
    if peek_kind(value) is not RecordKind.ROW:
        return decode_control(value, known)
    schema_id, body = unframe(value)
    layout = known.layout(schema_id)
    fields = decode(known.text(schema_id), body)
    change = RowChange(
        _image(fields["before"], layout), _image(fields["after"], layout), str(fields["op"])
    )
    ts_ms = fields["ts_ms"]
    if not isinstance(ts_ms, int):
        raise Fatal("MR-6007", f"ts_ms is {ts_ms!r}")
    source = source_from_plain(nested(fields, "source"))
    if (source.database, source.table) != (layout.table.database, layout.table.table):
        raise Fatal(
            "MR-6007",
            f"schema id {schema_id} belongs to {layout.table.full_name},"
            f" the row to {source.database}.{source.table}",
        )
    return RowRecord(
        _key(key, layout, known),
        change,
        source,
        ts_ms,
        transaction_from_plain(nested(fields, "transaction")),
        layout,
    )


def _image(fields: Plain, layout: RowLayout) -> Image | None:
    if not isinstance(fields, dict):
        return None
    return {
        column.name: fields[field]
        for column, field in zip(layout.table.columns, layout.fields, strict=True)
    }


def _key(key: bytes | None, layout: RowLayout, known: KnownSchemas) -> Image | None:
    if key is None:
        return None
    schema_id, body = unframe(key)
    fields = decode(known.text(schema_id), body)
    return {
        layout.table.columns[index].name: fields[layout.fields[index]]
        for index in layout.table.primary_key
    }
