"""A topic for tests of apply, written by a producer of its own with the reference encoder: rows, DDL, resolved.

Guarantees what a publisher guarantees: seq without gaps, each Kafka transaction ends with a ``resolved``. Only the
order of calls decides what stands in the topic.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from schemas.avro import envelope_schema
from schemas.avro_codec import encode
from schemas.control import (
    CONTROL_SCHEMAS,
    DdlRecord,
    DdlStatement,
    EventPlace,
    Origin,
    RecordKind,
    RecordSource,
    RecordTransaction,
    RegisteredSchema,
    ResolvedRecord,
    SchemaRecord,
    kind_of,
)
from schemas.control_plain import source_to_plain, transaction_to_plain
from schemas.framing import frame
from schemas.gtid import Flavour, parse_gtid_set
from schemas.progress import Progress
from schemas.record import encode_control
from schemas.row_layout import RowLayout
from schemas.table import TableSchema

SET = "shop"
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
Image = Mapping[str, object]
_numbers = count(1)


@dataclass
class TopicWriter:
    """Writes one topic's only partition."""

    bootstrap: str
    topic: str = ""
    flavour: Flavour = Flavour.MYSQL
    seq: int = 0
    number: int = 0
    epoch: int = 1
    ids: dict[str, int] = field(default_factory=dict)
    _pending: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.topic = self.topic or f"apply-{next(_numbers)}"
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for done in admin.create_topics([NewTopic(self.topic, 1, 1)]).values():
            done.result(30)
        self._producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": f"test/{self.topic}",
                "linger.ms": 5,
            }
        )
        self._producer.init_transactions(30)

    # ---- what stands in the topic -----------------------------------------------------------------

    def change(
        self,
        table: TableSchema,
        *,
        before: Image | None = None,
        after: Image | None = None,
        flags: int = 0,
    ) -> None:
        """One row of the source transaction under way."""
        op = "u" if before and after else "c" if after else "d"
        schema = envelope_schema(SET, table)
        if schema.text not in self.ids:
            self.introduce(table)
        layout = RowLayout.of(SET, table)
        self.seq += 1
        plain = {
            "before": _row(before, layout),
            "after": _row(after, layout),
            "source": source_to_plain(self._source(table.database, table.table, flags)),
            "op": op,
            "ts_ms": 1_700_000_000_000 + self.seq,
            "transaction": transaction_to_plain(RecordTransaction(self._gtid(), 1, False)),
        }
        self._pending.append(frame(self.ids[schema.text], encode(schema.text, plain)))

    def introduce(self, table: TableSchema, *, schema_id: int = 0) -> None:
        """The table's schema record."""
        schema = envelope_schema(SET, table)
        self.ids[schema.text] = schema_id or 100 + len(self.ids)
        registered = RegisteredSchema(schema.subject(self.topic), self.ids[schema.text], schema)
        record = SchemaRecord(registered, None, table.database, table.table, self.seq)
        self._control(record)

    def ddl(
        self, sql: str, *, database: str = "", session: Mapping[str, str] | None = None
    ) -> None:
        """A statement, a source transaction of its own."""
        self.seq += 1
        self.number += 1
        given = (
            {"default_database": database, **(session or {})} if database else dict(session or {})
        )
        record = DdlRecord(
            self._source(database, "", 0),
            DdlStatement(sql, "", (), given),
            1_700_000_000_000,
            RecordTransaction(self._gtid(), 1, True),
        )
        self._control(record)

    def commit(self) -> None:
        """End the source transaction under way and write the Kafka transaction, with its ``resolved``."""
        self.number += 1
        progress = Progress(parse_gtid_set(self.flavour, self.gtid_set), None, self.seq)
        self._control(ResolvedRecord(progress, SET, self.epoch, 1_700_000_000_000))
        self._producer.begin_transaction()
        for value in self._pending:
            while True:
                try:
                    self._producer.produce(self.topic, value, partition=0)
                    break
                except BufferError:
                    self._producer.poll(0.1)
        self._producer.commit_transaction(30)
        self._pending = []

    @property
    def gtid_set(self) -> str:
        """Everything committed so far."""
        if self.flavour is Flavour.MARIADB:
            return f"0-1-{self.number}" if self.number else ""
        return f"{UUID}:1-{self.number}" if self.number else ""

    def _gtid(self) -> str:
        number = self.number + 1
        return f"0-1-{number}" if self.flavour is Flavour.MARIADB else f"{UUID}:{number}"

    def _source(self, database: str, table: str, flags: int) -> RecordSource:
        place = EventPlace(1_700_000_000_000, 1, self._gtid(), "bin.000001", 4 + self.seq, flags)
        return RecordSource(
            Origin(self.flavour, "capture", SET), database, table, place, 0, self.seq
        )

    def _control(self, record: SchemaRecord | DdlRecord | ResolvedRecord) -> None:
        kind = kind_of(record)
        assert kind in CONTROL_SCHEMAS
        number = 1 + list(RecordKind).index(kind)
        self._pending.append(encode_control(record, schema_id=number))


def _row(image: Image | None, layout: RowLayout) -> dict[str, object] | None:
    if image is None:
        return None
    return {
        field: image.get(column.name)
        for field, column in zip(layout.fields, layout.table.columns, strict=True)
    }
