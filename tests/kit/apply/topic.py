"""Records for tests of apply, made by the reference encoder: rows, DDL, resolved; as a list or in a topic.

Guarantees the same as a publisher: seq without gaps, ``last`` in the last row of a source transaction, and a
``resolved`` after each. The calls alone decide the contents.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import count

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from millrace.schemas.gtid import Flavour, parse_gtid_set
from millrace.schemas.progress import OpenTransaction, Progress
from millrace.schemas.record.avro_codec import encode
from millrace.schemas.record.avro_schema import AvroSchema, envelope_schema
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
    kind_of,
)
from millrace.schemas.record.control_fields import source_to_plain, transaction_to_plain
from millrace.schemas.record.framing import frame
from millrace.schemas.record.record import encode_control
from millrace.schemas.record.row_layout import RowLayout
from millrace.schemas.table.structure import TableSchema
from tests.kit.kafka_topics import make_topic, remove_records_before

SET = "shop"
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
COMMIT_MS = 1_700_000_000_000
Image = Mapping[str, object]
_topics = count(1)


@dataclass
class RecordStream:
    """The values of a topic in order; ``epoch`` is the epoch of its ``resolved`` records.

    ``last_number`` is the number of the last GTID, ``ends`` the seq after each source transaction. ``file``: of rows,
    for those of a snapshot its id.
    """

    flavour: Flavour = Flavour.MYSQL
    seq: int = 0
    epoch: int = 1
    values: list[bytes] = field(default_factory=list)
    last_number: int = 0
    file: str = "bin.000001"
    ends: list[int] = field(default_factory=list)
    _last_row: int | None = None  # of the current source transaction
    _ids: dict[str, int] = field(default_factory=dict)

    def insert(self, table: TableSchema, after: Image, *, flags: int = 0) -> None:
        """One row of the current source transaction."""
        self._change(table, "c", None, after, flags)

    def update(self, table: TableSchema, before: Image, after: Image, *, flags: int = 0) -> None:
        """One row of the current source transaction."""
        self._change(table, "u", before, after, flags)

    def delete(self, table: TableSchema, before: Image, *, flags: int = 0) -> None:
        """One row of the current source transaction."""
        self._change(table, "d", before, None, flags)

    def snapshot(self, table: TableSchema, after: Image) -> None:
        """A row of a snapshot, between two source transactions."""
        self._change(table, "r", None, after, 0)
        self.values[-1] = self.values[-1][:-1] + b"\1"
        self._last_row = None

    def introduce(self, table: TableSchema, *, schema_id: int = 0) -> None:
        """The table's schema record; it is added automatically before the first row."""
        schema = envelope_schema(SET, table)
        self._ids[schema.text] = schema_id or 100 + len(self._ids)
        registered = RegisteredSchema(f"topic-{schema.full_name}", self._ids[schema.text], schema)
        self.control(SchemaRecord(registered, None, table.database, table.table, self.seq))

    def ddl(
        self,
        sql: str,
        *,
        database: str = "",
        session: Mapping[str, str] | None = None,
        kind: str = "",
    ) -> None:
        """A statement as its own source transaction."""
        self.seq += 1
        given = {"default_database": database} if database else {}
        record = DdlRecord(
            self._source(database, "", 0),
            DdlStatement(sql, kind, (), given | dict(session or {})),
            COMMIT_MS,
            RecordTransaction(self.gtid, 1, True),
        )
        self.control(record)
        self.commit()

    def commit(self) -> None:
        """End the current source transaction with a ``resolved`` of all GTIDs so far."""
        if self._last_row is not None:
            self.values[self._last_row] = self.values[self._last_row][:-1] + b"\1"
            self._last_row = None
        self.ends.append(self.seq)
        self.last_number += 1
        self.control(ResolvedRecord(self.progress, SET, self.epoch, COMMIT_MS))

    def pause(self) -> None:
        """A ``resolved`` inside the current source transaction, as after a Kafka transaction that has a part of it."""
        rows = self.seq - (self.ends[-1] if self.ends else 0)
        opened = replace(self.progress, open=OpenTransaction(self.gtid, rows))
        self.control(ResolvedRecord(opened, SET, self.epoch, COMMIT_MS))

    def fence(self) -> None:
        """The record that an owner writes first."""
        self.control(FenceRecord(self.progress, SET, self.epoch, COMMIT_MS, "worker"))

    @property
    def gtid_set(self) -> str:
        """Everything committed so far."""
        if self.flavour is Flavour.MARIADB:
            return f"0-1-{self.last_number}" if self.last_number else ""
        return f"{UUID}:1-{self.last_number}" if self.last_number else ""

    @property
    def gtid(self) -> str:
        """The GTID of the current source transaction."""
        number = self.last_number + 1
        return f"0-1-{number}" if self.flavour is Flavour.MARIADB else f"{UUID}:{number}"

    def _change(
        self, table: TableSchema, op: str, before: Image | None, after: Image | None, flags: int
    ) -> None:
        schema, layout = _shape(table)
        if schema.text not in self._ids:
            self.introduce(table)
        self.seq += 1
        plain = {
            "before": _row(before, layout),
            "after": _row(after, layout),
            "source": source_to_plain(self._source(table.database, table.table, flags)),
            "op": op,
            "ts_ms": COMMIT_MS + self.seq,
            "transaction": transaction_to_plain(RecordTransaction(self.gtid, 1, False)),
        }
        self._last_row = len(self.values)
        self.values.append(frame(self._ids[schema.text], encode(schema.text, plain)))

    @property
    def progress(self) -> Progress:
        """After all that is committed."""
        return Progress(parse_gtid_set(self.flavour, self.gtid_set), None, self.seq)

    def _source(self, database: str, table: str, flags: int) -> RecordSource:
        place = EventPlace(COMMIT_MS, 1, self.gtid, self.file, 4 + self.seq, flags)
        return RecordSource(
            Origin(self.flavour, "capture", SET), database, table, place, 0, self.seq
        )

    def control(self, record: ControlRecord) -> None:
        """Append a control record."""
        number = 1 + list(RecordKind).index(kind_of(record))
        self.values.append(encode_control(record, schema_id=number))


@lru_cache(256)
def _shape(table: TableSchema) -> tuple[AvroSchema, RowLayout]:
    """How rows of a table are written. It is much more work than to write one."""
    return envelope_schema(SET, table), RowLayout.of(SET, table)


def _row(image: Image | None, layout: RowLayout) -> dict[str, object] | None:
    if image is None:
        return None
    return {
        field: image.get(column.name)
        for field, column in zip(layout.fields, layout.table.columns, strict=True)
    }


class TopicWriter:
    """Publishes a stream to a new topic, one Kafka transaction per call."""

    def __init__(self, bootstrap: str, stream: RecordStream) -> None:
        self.bootstrap = bootstrap
        self.stream = stream
        self.topic = f"apply-{os.getpid()}-{next(_topics)}"  # lanes share a broker
        self._sent = 0
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        make_topic(self._admin, self.topic)
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": f"test/{self.topic}"}
        )
        self._producer.init_transactions(60)

    def publish(self) -> None:
        """Publish the records that were not published yet."""
        self._producer.begin_transaction()
        for value in self.stream.values[self._sent :]:
            while True:
                try:
                    self._producer.produce(self.topic, value, partition=0)
                    break
                except BufferError:
                    self._producer.poll(0.1)
        self._producer.commit_transaction(60)
        self._sent = len(self.stream.values)

    def create_again(self, stream: RecordStream) -> None:
        """Delete the topic and create it under its name, for another stream."""
        self._admin.delete_topics([self.topic])[self.topic].result(60)
        make_topic(self._admin, self.topic, replaces=True)
        self.stream, self._sent = stream, 0

    def remove_everything(self) -> None:
        """Remove all records, as retention does."""
        remove_records_before(self._admin, self.topic)
