"""Records of a topic by table and op."""

from collections.abc import Iterator

import pytest

from millrace.consumer.topic.selection import Selected, Wanted
from millrace.drivers.kafka.reader import TopicRecord
from millrace.schemas.record.avro_codec import encode
from millrace.schemas.record.avro_schema import envelope_schema
from millrace.schemas.record.control import RegisteredSchema, SchemaRecord
from millrace.schemas.record.framing import frame
from millrace.schemas.record.record import KnownSchemas, encode_control
from millrace.schemas.table.structure import Column, ColumnType, TableSchema, TypeCode

GTID = "3e11fa47-71ca-11e1-9e33-c80aa9429562:7"
SOURCE: dict[str, object] = {
    **dict.fromkeys(("version", "connector", "name", "snapshot", "db", "table", "set"), "x"),
    **dict.fromkeys(("ts_ms", "server_id", "pos", "row", "event_flags", "seq"), 1),
    "gtid": GTID,
    "file": "f",
    "connector": "mysql",
    "snapshot": "false",
}
TABLES = {
    number: TableSchema("shop", name, (Column("id", ColumnType(TypeCode.LONG), False),), (), ())
    for number, name in enumerate(("orders", "items"), 1)
}


def schema_of(number: int) -> RegisteredSchema:
    """The schema of a table, under its number."""
    return RegisteredSchema(f"s{number}", number, envelope_schema("set", TABLES[number]))


def topic() -> Iterator[TopicRecord]:
    """Schemas, then rows of both tables: their offset is 10 times the table, and the op's place."""
    for number in TABLES:
        record = SchemaRecord(schema_of(number), None, "shop", TABLES[number].table, 0)
        value = encode_control(record, schema_id=99)
        yield TopicRecord(number, None, value)
    for number in TABLES:
        for place, op in enumerate("cudr"):
            row = {
                "before": {"id": 1} if op in "ud" else None,
                "after": None if op == "d" else {"id": 1},
                "source": SOURCE | {"db": "shop", "table": TABLES[number].table, "set": "set"},
                "op": op,
                "ts_ms": 1,
                "transaction": {"id": GTID, "total_order": 1, "last": True},
            }
            value = frame(number, encode(schema_of(number).schema.text, row))
            yield TopicRecord(10 * number + place, None, value)


@pytest.mark.parametrize(
    ("tables", "ops", "offsets"),
    [
        ((), (), [10, 11, 12, 13, 20, 21, 22, 23]),
        (("shop.orders",), (), [10, 11, 12, 13]),
        (("shop.o*", "*.items"), ("d",), [12, 22]),
        ((), ("c", "r"), [10, 13, 20, 23]),
        (("shop.order",), (), []),
    ],
)
def test_rows_are_selected_by_table_and_op(
    tables: tuple[str, ...], ops: tuple[str, ...], offsets: list[int]
) -> None:
    """The others are counted; control records always pass."""
    selected = Selected(Wanted(tables, ops), KnownSchemas())
    found = [(record.offset, selected.decoded(record)) for record in topic()]
    assert [offset for offset, one in found if one is not None and one[1]] == offsets
    assert [offset for offset, one in found if one is not None and not one[1]] == [1, 2]
    assert selected.passed == 8 - len(offsets)
    assert list(Selected(Wanted(tables, ops), KnownSchemas()).offsets(topic())) == offsets
