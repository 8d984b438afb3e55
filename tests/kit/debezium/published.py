"""Millrace's records of the same binlog: the converter, a view of all tables and ``consumer/format``, without servers.

A publish task adds to this the topics, their partitions and exactly-once delivery; it does not change a record.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from consumer.format.encoded import PART, SEQ
from consumer.format.json_format import JsonFormat, make_json_format
from consumer.format.table_format import FormatNames
from consumer.format.transactions import (
    NONE_COUNTED,
    CountedTransaction,
    TableChanges,
    number_events,
)
from consumer.kernel import walk
from consumer.records.numbers import Ints, RecordNumbers
from consumer.records.row_schemas import RowSchemas, make_programs
from consumer.records.rows import Rows, Values, walk_values
from consumer.view.changes import make_changes
from consumer.view.program import ViewProgram, make_view_program, view_of
from schemas.documents import TableFilter
from schemas.gtid import Flavour
from schemas.record.control import SchemaRecord
from schemas.record.names import escape_name
from schemas.record.record import KnownSchemas, decode_record
from schemas.record.row_layout import RowLayout
from schemas.view.format_options import (
    BigintUnsigned,
    BinaryMode,
    DecimalMode,
    FormatName,
    FormatOptions,
    TimeMode,
)
from schemas.view.view import view_of_filter
from tests.kit.capture.converter import Conversion, raw_records
from tests.kit.debezium.connectors import Record, Variant

_ROWS = (0, 2)  # byte 5 of a row's value


@dataclass(frozen=True, slots=True)
class SetTopic:
    """The values of rows in the topic's order, and the schemas of all of them."""

    values: tuple[bytes, ...]
    schemas: RowSchemas

    @classmethod
    def of(cls, conversion: Conversion) -> "SetTopic":
        """All records of a conversion."""
        known, schemas, values = KnownSchemas(), RowSchemas(), []
        for batch in conversion.batches():
            for key, value in raw_records(batch):
                if value[5] in _ROWS:
                    values.append(value)
                    continue
                record = decode_record(key, value, known)
                if isinstance(record, SchemaRecord) and record.table:
                    schemas = schemas.learned(record.value.id, record.value.schema.text)
        return cls(tuple(values), schemas)

    def walked(self) -> Iterator[Rows]:
        """All rows, in batches."""
        programs = make_programs(self.schemas)
        payload = np.frombuffer(b"".join(self.values), np.uint8)
        offsets = np.concatenate([[0], np.cumsum([len(value) for value in self.values])])
        values = Values(payload, offsets.astype(np.int64))
        at = 0
        while at < len(values):
            rows = walk_values(values.part(at, len(values)), programs)
            assert rows.status == walk.OK
            assert len(rows) > 0
            yield rows
            at += len(rows)


@dataclass
class Published:
    """Records of a set topic in a format, one topic a table."""

    options: FormatOptions
    variant: Variant
    flavour: Flavour
    formats: dict[int, tuple[ViewProgram, JsonFormat, str]] = field(default_factory=dict)
    transaction: CountedTransaction = NONE_COUNTED

    def records(self, topic: SetTopic) -> list[Record]:
        """All records, topics in the order of their names."""
        topics: dict[str, list[Record]] = defaultdict(list)
        for rows in topic.walked():
            for seq, part, record in sorted(self._encoded(rows), key=lambda each: each[:2]):
                assert seq >= 0
                assert part >= 0
                topics[record.topic].append(record)
        return [record for name in sorted(topics) for record in topics[name]]

    def _encoded(self, rows: Rows) -> Iterator[tuple[int, int, Record]]:
        slots = rows.column(walk.SLOT)
        tables, names = [], []
        for slot in np.unique(slots).tolist():
            program, encoder, name = self._format(rows, slot)
            changes = make_changes(program, rows, RecordNumbers(np.flatnonzero(slots == slot)))
            tables.append(TableChanges(".".join(program.view.name), encoder, changes))
            names.append(name)
        orders: tuple[Ints | None, ...] = (None,) * len(tables)
        if self.options.transaction_topic:
            numbered = number_events(rows, tables, self.transaction)
            orders, self.transaction = numbered.orders, numbered.after
        for table, name, order in zip(tables, names, orders, strict=True):
            encoded = table.format.encode(rows, table.changes, orders=order)
            for at, line in enumerate(encoded.lines):
                record = Record(name, encoded.key(at), encoded.value(at))
                yield int(line[SEQ]), int(line[PART]), record

    def _format(self, rows: Rows, slot: int) -> tuple[ViewProgram, JsonFormat, str]:
        if slot not in self.formats:
            layout: RowLayout = rows.programs.layouts[slot]
            view = view_of(view_of_filter(TableFilter()), layout)
            assert view is not None
            prefix = self.variant.name
            name = ".".join((prefix, *map(escape_name, view.name)))
            names = FormatNames(name, prefix, str(self.flavour))
            encoder = make_json_format(self.options, view, layout, names)
            self.formats[slot] = make_view_program(view, layout), encoder, name
        return self.formats[slot]


def format_options(variant: Variant) -> FormatOptions:
    """The options of ``debezium-json`` that have the names of the variant's options."""
    options = variant.options
    return FormatOptions(
        FormatName.DEBEZIUM_JSON,
        schemas=variant.has_schemas,
        tombstones=options.get("tombstones.on.delete") != "false",
        transaction_topic=f"{variant.name}.transaction"
        if options.get("provide.transaction.metadata") == "true"
        else "",
        decimal=DecimalMode(options.get("decimal.handling.mode", "precise")),
        time=TimeMode(options.get("time.precision.mode", "adaptive_time_microseconds")),
        bigint_unsigned=BigintUnsigned(options.get("bigint.unsigned.handling.mode", "long")),
        binary=BinaryMode(options.get("binary.handling.mode", "bytes")),
    )
