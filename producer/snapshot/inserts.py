"""Inserts the chunks of a snapshot into the stream of a converter: ``producer.convert.interleave.Inserts``."""

from collections.abc import Collection, Iterator

import numpy as np

from millrace.producer.convert.arrays import Bytes, Numbers
from millrace.producer.convert.interleave import Sink
from millrace.producer.convert.kernel import program as p
from millrace.producer.convert.tables import KnownTables
from millrace.producer.snapshot.ended_snapshots import History
from millrace.producer.snapshot.insertion_plan import Course, Insertion
from millrace.producer.snapshot.kernel.rows import changed_keys
from millrace.schemas.gtid import GtidPosition
from millrace.schemas.progress import Progress
from millrace.schemas.record.avro_schema import envelope_schema, key_schema
from millrace.schemas.record.control import (
    DdlRecord,
    SchemaRecord,
    SnapshotRecord,
    SnapshotStep,
    SnapshotTable,
)
from millrace.schemas.record.gap import GAP_KIND
from millrace.schemas.snapshot import Name
from millrace.schemas.sql.statement import Kind

# Statements that change neither rows nor the structure of a table, although they may name one.
_HARMLESS = frozenset(
    {
        *(Kind.VIEW, Kind.ROUTINE, Kind.TRIGGER, Kind.EVENT, Kind.ACCOUNT, Kind.SERVER),
        *(Kind.MAINTENANCE, Kind.SEQUENCE, Kind.CREATE_DATABASE, Kind.ALTER_DATABASE),
    }
)


class SnapshotInserts:
    """Used by the converter's thread."""

    def __init__(self, course: Course, history: History, *, set_name: str) -> None:
        self.course = course
        self.history = history
        self._set_name = set_name
        self._spans = np.zeros(2 * p.KEY_COLUMNS_MAX, np.int64)

    @property
    def is_active(self) -> bool:
        return self.course.is_active

    @property
    def watched(self) -> Collection[Name]:
        return self.course.watched

    def records(self, buffer: Bytes, bounds: Numbers, tables: KnownTables) -> None:
        """Note the keys that these records change."""
        slots = tables.slots_of(self.course.watched)
        if not slots:
            return
        starts = bounds[:, 2]
        ids = np.zeros(len(bounds), np.int64)
        for place in range(
            1, 5
        ):  # of the schema id, big-endian, after the magic byte (schemas.record.framing)
            ids = ids << 8 | buffer[starts + place]
        for schema_id, slot in slots.items():
            found = bounds[(ids == schema_id) & (bounds[:, 0] >= 0)]
            if len(found):
                keys = _keys(buffer, found, tables.arrays.tables[slot], tables, self._spans)
                self.course.changed(tables.name_of(slot), keys)

    def statement(self, record: DdlRecord) -> None:
        """Discard what a statement may have changed."""
        statement = record.statement
        if statement.kind in _HARMLESS:
            return
        is_known = statement.tables and "in_doubt" not in statement.session
        self.course.discard(statement.tables if is_known and statement.kind != GAP_KIND else None)

    def wants_boundary(self, position: GtidPosition, *, is_near: bool) -> bool:
        return self.course.wants_boundary(position, is_near=is_near)

    def insert(self, progress: Progress, sink: Sink, *, is_near: bool) -> Progress | None:
        """Write the next chunk, if it belongs here."""
        before = self.course.state
        insertion = self.course.next_insertion(progress.gtid_set, is_near=is_near)
        if insertion is None:
            return None
        self.history.note(before, insertion)
        if insertion.begins:
            self._write_step(SnapshotStep.BEGIN, insertion, progress, sink)
        if insertion.rows is not None:
            _write_rows(insertion, sink, self._set_name)
        if insertion.end is not None:
            self._write_step(insertion.end, insertion, progress, sink)
        return Progress(progress.gtid_set, progress.open, sink.seq, insertion.state)

    def _write_step(
        self, step: SnapshotStep, insertion: Insertion, progress: Progress, sink: Sink
    ) -> None:
        assert insertion.table is not None
        is_begin = step is SnapshotStep.BEGIN
        rows = 0 if is_begin else insertion.table.rows + insertion.kept_count
        table = SnapshotTable(insertion.id, *insertion.table.name, insertion.where)
        sink.control(SnapshotRecord(step, table, str(progress.gtid_set), rows, sink.seq))


def _write_rows(insertion: Insertion, sink: Sink, set_name: str) -> None:
    rows, kept = insertion.rows, insertion.kept
    if rows is None or kept is None or not insertion.kept_count:
        return
    schema_of_key = key_schema(set_name, rows.schema)
    assert schema_of_key is not None, "a table without a primary key is left out"
    value, key = sink.register(envelope_schema(set_name, rows.schema)), sink.register(schema_of_key)
    sink.control(SchemaRecord(value, key, rows.schema.database, rows.schema.table, sink.seq))
    sink.rows(*rows.stamp(kept, value=value, key=key, seq=sink.seq))


def _keys(
    buffer: Bytes, bounds: Numbers, table: Numbers, tables: KnownTables, spans: Numbers
) -> Iterator[bytes]:
    """The keys that records of one structure change."""
    size = int((bounds[:, 1] - bounds[:, 0]).sum() + (bounds[:, 3] - bounds[:, 2]).sum())
    out, ends = np.empty(size, np.uint8), np.empty(2 * len(bounds), np.int64)
    count = changed_keys(
        buffer,
        np.ascontiguousarray(bounds),
        tables.arrays.columns,
        int(table[p.FIRST_COLUMN]),
        int(table[p.COLUMN_COUNT]),
        int(table[p.KEY_COUNT]),
        spans,
        out,
        ends,
    )
    octets, start = out.tobytes(), 0
    for end in ends[:count].tolist():
        yield octets[start:end]
        start = end
