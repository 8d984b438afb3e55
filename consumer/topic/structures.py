"""The structures of the tables that a set topic has records of, read from its schema records. Changes nothing."""

from contextlib import closing

from consumer.records.row_schemas import layout_of
from drivers.kafka.reader import NoTopic, TopicReader
from schemas.documents import TopicAddress
from schemas.record.control import RecordKind, SchemaRecord
from schemas.record.framing import peek_kind
from schemas.record.record import decode_control
from schemas.table.structure import TableSchema

# A second or two. Each owner of the capture task introduces a schema again before the first row that uses it.
OFFSETS_MAX = 500_000


def topic_tables(
    address: TopicAddress, *, offsets_max: int = OFFSETS_MAX
) -> tuple[TableSchema, ...]:
    """The last structure of each table among the last records; () if there is no topic. MR-3501.

    A table that was dropped since may be among them.
    """
    tables: dict[tuple[str, str], TableSchema] = {}
    with closing(TopicReader(address.brokers, address.topic)) as reader:
        try:
            ends = reader.ends()
        except NoTopic:
            return ()
        for chunk in reader.chunks(max(ends.low, ends.stable - offsets_max), ends.stable):
            for record in chunk:
                if peek_kind(record.value) is not RecordKind.SCHEMA:
                    continue
                schema = decode_control(record.value)
                assert isinstance(schema, SchemaRecord)
                if schema.table:  # not the schema of a control record
                    tables[schema.database, schema.table] = layout_of(
                        schema.value.schema.text
                    ).table
    return tuple(tables[name] for name in sorted(tables))
