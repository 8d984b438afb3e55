"""The structures of the tables that a set topic has records of, read from its schema records. Changes nothing."""

from contextlib import closing

from millrace.consumer.records.row_schemas import layout_of
from millrace.drivers.kafka.reader import NoTopic, TopicReader
from millrace.schemas.documents import TopicAddress
from millrace.schemas.record.control import RecordKind, SchemaRecord
from millrace.schemas.record.framing import peek_kind, unframe
from millrace.schemas.record.record import decode_control
from millrace.schemas.table.structure import TableSchema
from millrace.schemas.view.ddl import TableKey

# A second or two. Each owner of the capture task introduces a schema again before the first row that uses it.
OFFSETS_MAX = 500_000


def topic_tables(
    address: TopicAddress, *, offsets_max: int = OFFSETS_MAX
) -> tuple[TableSchema, ...]:
    """The structure of each table's last row among the last records; () if there is no topic. MR-3501.

    A table that was dropped since may be among them. A schema is introduced once by each owner, so a table that got a
    former structure back shows it by its rows alone.
    """
    structures: dict[int, TableSchema] = {}  # by schema id
    tables: dict[TableKey, TableSchema] = {}
    with closing(TopicReader(address.brokers, address.topic)) as reader:
        try:
            ends = reader.ends()
        except NoTopic:
            return ()
        for chunk in reader.chunks(max(ends.low, ends.stable - offsets_max), ends.stable):
            for record in chunk:
                kind = peek_kind(record.value)
                table = None
                if kind is RecordKind.ROW:
                    table = structures.get(unframe(record.value)[0])
                elif kind is RecordKind.SCHEMA:
                    schema = decode_control(record.value)
                    assert isinstance(schema, SchemaRecord)
                    if schema.table:  # not the schema of a control record
                        table = layout_of(schema.value.schema.text).table
                        structures[schema.value.id] = table
                if table is not None:
                    tables[table.database, table.table] = table
    return tuple(tables[name] for name in sorted(tables))
