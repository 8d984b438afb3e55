"""Encodes the publisher's own records and decodes the records of a tail.

A run begins with the schema records of the control schemas, that of schema records first, and then the fence. A row of
a torn tail is decoded by its suffix, so a start needs no table schemas.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from millrace.producer.publish.config import PublisherConfig
from millrace.producer.publish.positions import ChangeRecord, ProgressRecord
from millrace.schemas.progress import Progress
from millrace.schemas.record.control import (
    CONTROL_SCHEMAS,
    ControlRecord,
    DdlRecord,
    FenceRecord,
    RecordKind,
    RegisteredSchema,
    ResolvedRecord,
    SchemaRecord,
    SnapshotRecord,
    kind_of,
)
from millrace.schemas.record.framing import peek_kind, unframe
from millrace.schemas.record.gap import gap_of, gap_record
from millrace.schemas.record.record import decode_control, encode_control
from millrace.schemas.record.row_end import SNAPSHOT_OP, read_row_end
from millrace.schemas.requests.decision import Decision


@dataclass(frozen=True, slots=True)
class RecordCodec:
    """``positions.Codec`` with schema IDs of a registry; ``ids`` are those of the control schemas."""

    config: PublisherConfig
    ids: Mapping[RecordKind, int]

    @classmethod
    def register(
        cls, config: PublisherConfig, register: Callable[[str, str], int]
    ) -> "RecordCodec":
        """Register the control schemas."""
        ids = {
            kind: register(schema.subject(config.topic), schema.text)
            for kind, schema in CONTROL_SCHEMAS.items()
        }
        return cls(config, ids)

    def run_start(self, progress: Progress) -> Sequence[bytes]:
        """The schema records, then the fence."""
        first = RecordKind.SCHEMA
        kinds = [first, *(kind for kind in CONTROL_SCHEMAS if kind is not first)]
        fence = FenceRecord(
            progress, self.config.set, self.config.epoch, _now_ms(), self.config.worker
        )
        return [
            *(self._encode(self._introduction(kind, progress.seq)) for kind in kinds),
            self._encode(fence),
        ]

    def resolved(self, progress: Progress) -> bytes:
        return self._encode(ResolvedRecord(progress, self.config.set, self.config.epoch, _now_ms()))

    def gap(self, decision: Decision, result: Progress) -> Sequence[bytes]:
        record = gap_record(decision, set_name=self.config.set)
        return [self._encode(record), self.resolved(result)]

    def decision_of(self, value: bytes) -> str:
        """From a gap record; "" for any other."""
        if peek_kind(value) is not RecordKind.DDL:
            return ""
        record = decode_control(value)
        gap = gap_of(record) if isinstance(record, DdlRecord) else None
        return gap.decision if gap is not None else ""

    def opens_run(self, value: bytes) -> bool:
        """Whether this is the schema record that describes schema records, including itself."""
        if peek_kind(value) is not RecordKind.SCHEMA:
            return False
        record = decode_control(value)
        return isinstance(record, SchemaRecord) and record.value.id == unframe(value)[0]

    def read(self, value: bytes) -> ProgressRecord | ChangeRecord | None:
        """The position in a committed record."""
        if peek_kind(value) is RecordKind.ROW:
            row = read_row_end(value)
            if row.op == SNAPSHOT_OP:
                return ChangeRecord("", 0, True, row.seq)
            return ChangeRecord(row.gtid, row.total_order, row.last, row.seq)
        match decode_control(value):
            case ResolvedRecord(progress, _, epoch):
                return ProgressRecord(progress, epoch, "")
            case FenceRecord(progress, _, epoch, _, worker):
                return ProgressRecord(progress, epoch, worker)
            case DdlRecord(source, _, _, transaction):
                return ChangeRecord(
                    transaction.gtid, transaction.total_order, transaction.is_last, source.seq
                )
            case SchemaRecord() | SnapshotRecord():
                return None

    def _introduction(self, kind: RecordKind, seq: int) -> SchemaRecord:
        schema = CONTROL_SCHEMAS[kind]
        registered = RegisteredSchema(schema.subject(self.config.topic), self.ids[kind], schema)
        return SchemaRecord(registered, None, "", "", seq)

    def _encode(self, record: ControlRecord) -> bytes:
        return encode_control(record, schema_id=self.ids[kind_of(record)])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
