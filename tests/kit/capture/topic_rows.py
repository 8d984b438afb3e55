"""Synthetic batches as a converter makes them: real records of one small table, by the reference encoder.

A ``RowStream`` continues from any progress, so a test can open a publisher, read its progress, and send more rows.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from millrace.schemas.gtid import Flavour, parse_gtid, parse_gtid_set
from millrace.schemas.progress import OpenTransaction, Progress
from millrace.schemas.record.avro_codec import encode
from millrace.schemas.record.avro_schema import envelope_schema, key_schema
from millrace.schemas.record.control import (
    CONTROL_SCHEMAS,
    EventPlace,
    Origin,
    RecordKind,
    RecordSource,
    RecordTransaction,
    RegisteredSchema,
    SchemaRecord,
)
from millrace.schemas.record.control_fields import source_to_plain, transaction_to_plain
from millrace.schemas.record.framing import frame
from millrace.schemas.record.record import encode_control
from millrace.schemas.table.structure import Column, ColumnType, TableSchema, TextEncoding, TypeCode

SET = "shop"
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
TABLE = TableSchema(
    "shop",
    "orders",
    (
        Column("id", ColumnType(TypeCode.LONG), nullable=False),
        Column(
            "state",
            ColumnType(TypeCode.VARCHAR, 160, text=TextEncoding("utf8mb4", 45)),
            nullable=True,
        ),
    ),
    (0,),
    (0,),
)
Register = Callable[[str, str], int]


def start_of(flavour: Flavour) -> Progress:
    """A start: source transactions after it count from 1."""
    text = "0-1-1000" if flavour is Flavour.MARIADB else f"{UUID}:1-1000"
    return Progress(parse_gtid_set(flavour, text), None, 0)


class Ids:
    """A registry in memory: ``register``."""

    def __init__(self) -> None:
        self._ids: dict[tuple[str, str], int] = {}

    def __call__(self, subject: str, schema: str) -> int:
        return self._ids.setdefault((subject, schema), len(self._ids) + 1)


@dataclass(frozen=True)
class Batch:
    """A RecordBatchLike."""

    buffer: npt.NDArray[np.uint8]
    bounds: npt.NDArray[np.int64]
    progress: Progress


@dataclass
class RowStream:
    """Rows of ``TABLE`` after ``progress`` in source transactions of ``transaction_rows`` rows, cut at any row."""

    topic: str
    register: Register
    progress: Progress
    transaction_rows: int = 3
    is_introduced: bool = False
    filler: str = "paid"
    _records: list[tuple[bytes, bytes]] = field(default_factory=list)

    def next_batch(self, row_count: int, *, filler: str = "paid") -> Batch:
        """The next rows; the table's schema record comes before the first."""
        self._records, self.filler = [], filler
        if not self.is_introduced:
            self._introduce()
        for _ in range(row_count):
            self._add_row()
        return batch_of(self._records, self.progress)

    def _introduce(self) -> None:
        schema = CONTROL_SCHEMAS[RecordKind.SCHEMA]
        control_id = self.register(schema.subject(self.topic), schema.text)
        record = SchemaRecord(self._value, self._key, "shop", "orders", self.progress.seq)
        self._records.append((b"", encode_control(record, schema_id=control_id)))
        self.is_introduced = True

    @property
    def _value(self) -> RegisteredSchema:
        schema = envelope_schema(SET, TABLE)
        subject = schema.subject(self.topic)
        return RegisteredSchema(subject, self.register(subject, schema.text), schema)

    @property
    def _key(self) -> RegisteredSchema:
        schema = key_schema(SET, TABLE)
        assert schema is not None
        subject = schema.subject(self.topic)
        return RegisteredSchema(subject, self.register(subject, schema.text), schema)

    def snapshot_row(self, chunk: int, number: int) -> tuple[bytes, bytes]:
        """A row of a snapshot, between two source transactions: its key and value."""
        self.progress = replace(self.progress, seq=self.progress.seq + 1)
        gtid = _last_gtid(str(self.progress.gtid_set))
        place = EventPlace(1_700_000_000_000, 0, gtid, "initial", chunk, 0)
        transaction = RecordTransaction(gtid, number + 1, True)
        return self._row("r", place, number, transaction)

    def _row(
        self, op: str, place: EventPlace, number: int, transaction: RecordTransaction
    ) -> tuple[bytes, bytes]:
        seq = self.progress.seq if op == "r" else self.progress.seq + 1
        origin = Origin(self.progress.gtid_set.flavour, "t", SET)
        source = RecordSource(origin, "shop", "orders", place, number, seq, op == "r")
        value = {
            "before": None,
            "after": {"id": seq, "state": self.filler},
            "source": source_to_plain(source),
            "op": op,
            "ts_ms": 1_700_000_000_000 + seq,
            "transaction": transaction_to_plain(transaction),
        }
        key = frame(self._key.id, encode(self._key.schema.text, {"id": seq}))
        return key, frame(self._value.id, encode(self._value.schema.text, value))

    def _add_row(self) -> None:
        gtid_set, opened, seq = self.progress.gtid_set, self.progress.open, self.progress.seq + 1
        gtid = opened.gtid if opened else _next_gtid(str(gtid_set))
        row = opened.rows + 1 if opened else 1
        is_last = row >= self.transaction_rows
        place = EventPlace(1_700_000_000_000, 1, gtid, "bin.000001", 4 + seq, 0)
        self._records.append(self._row("c", place, 0, RecordTransaction(gtid, row, is_last)))
        if is_last:
            done = gtid_set.advanced(parse_gtid(gtid_set.flavour, gtid))
            self.progress = Progress(done, None, seq)
        else:
            self.progress = Progress(gtid_set, OpenTransaction(gtid, row), seq)


def batch_of(records: list[tuple[bytes, bytes]], progress: Progress) -> Batch:
    """Records (an empty key is no key) as a buffer and bounds."""
    bounds = np.empty((len(records), 4), np.int64)
    pieces: list[bytes] = []
    at = 0
    for index, (key, value) in enumerate(records):
        value_at = at + len(key)
        end = value_at + len(value)
        bounds[index] = (at, value_at, value_at, end) if key else (-1, -1, value_at, end)
        pieces += [key, value]
        at = end
    return Batch(np.frombuffer(b"".join(pieces), np.uint8), bounds, progress)


def _last_gtid(gtid_set: str) -> str:
    separator = ":" if ":" in gtid_set else "-"
    head, _, numbers = gtid_set.rpartition(separator)
    return f"{head}{separator}{numbers.split('-')[-1]}"


def _next_gtid(gtid_set: str) -> str:
    separator = ":" if ":" in gtid_set else "-"
    head, _, numbers = gtid_set.rpartition(separator)
    if separator == ":":
        return f"{head}:{int(numbers.split('-')[-1]) + 1}"
    return f"{head}-{int(numbers) + 1}"
