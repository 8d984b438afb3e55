"""Formats in Avro: the exact bytes and schemas, the names in them, views, and errors of the registry."""

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from millrace.consumer.format.avro_data import AvroSchemas, full_name
from millrace.consumer.format.connect_schema import Schema
from millrace.consumer.format.encoded import NEW_KEY, OLD_KEY
from millrace.errors import Fatal
from millrace.schemas.record.framing import unframe
from millrace.schemas.table.structure import Column, ColumnType, TextEncoding, TypeCode
from millrace.schemas.view.format_options import (
    BinaryMode,
    DecimalMode,
    FormatName,
    FormatOptions,
    TimeMode,
    Types,
    Undecodable,
    ZeroDates,
)
from millrace.schemas.view.view import TableRule, View
from tests.kit.apply.tables import integer, table, text
from tests.kit.apply.topic import RecordStream
from tests.kit.avro_rows import avro_records, read_avro
from tests.kit.memory_registry import FIRST_ID

DEBEZIUM, OWN = FormatOptions.of(FormatName.DEBEZIUM_AVRO), FormatOptions.of(FormatName.AVRO)
GBK = TextEncoding("gbk", 28)


def _one(options: FormatOptions, type_: ColumnType, value: object, *, nullable: bool = True) -> Any:
    """The value of a column of this type as fastavro reads it, bytes in base64; and its Avro type."""
    made = table("shop", "t", integer("id"), Column("v", type_, nullable))
    stream = RecordStream()
    stream.insert(made, {"id": 1, "v": value})
    records, registry = avro_records(options, made, stream)
    found: Any = read_avro(records, registry)[0].value
    return found["after"]["v"]


def test_key_has_the_frame_and_avros_numbers() -> None:
    """00, the ID with its highest byte first, then zigzag: what any deserializer of Confluent's layout expects."""
    made = table("shop", "t", integer("id"), text("name", 20))
    stream = RecordStream()
    stream.insert(made, {"id": -3, "name": "ü"})
    records, registry = avro_records(DEBEZIUM, made, stream)
    assert records.key(0) == b"\0" + (FIRST_ID + 1).to_bytes(4, "big") + b"\x05"
    assert registry.texts[FIRST_ID + 1] == (
        '{"type":"record","name":"Key","namespace":"pre.shop.t","fields":[{"name":"id","type":"int"}],'
        '"connect.name":"pre.shop.t.Key"}'
    )
    value = records.value(0)
    assert value is not None
    assert unframe(value)[0] == FIRST_ID
    assert unframe(value)[1].startswith(b"\x00\x02\x05\x02\x04\xc3\xbc")


def test_schemas_are_those_of_the_avro_converter() -> None:
    """Properties in its order; a default has null last; a record that returns is named."""
    made = table(
        "shop",
        "t",
        integer("id"),
        Column("price", ColumnType(TypeCode.NEWDECIMAL, 5 << 8 | 2), True),
        Column("small", ColumnType(TypeCode.TINY), False),
        Column("a", ColumnType(TypeCode.GEOMETRY, 4), True),
        Column("b", ColumnType(TypeCode.GEOMETRY, 4), False),
    )
    stream = RecordStream()
    shape = b"\0\0\0\0" + b"\x01" * 9
    stream.insert(made, {"id": 1, "price": Decimal("1.25"), "small": 1, "a": shape, "b": shape})
    records, registry = avro_records(DEBEZIUM, made, stream)
    schema: Any = json.loads(registry.texts[FIRST_ID])
    row = {field["name"]: field for field in schema["fields"][0]["type"][1]["fields"]}
    assert json.dumps(row["price"]) == (
        '{"name": "price", "type": ["null", {"type": "bytes", "scale": 2, "precision": 5, "connect.version": 1, '
        '"connect.parameters": {"scale": "2", "connect.decimal.precision": "5"}, '
        '"connect.name": "org.apache.kafka.connect.data.Decimal", "logicalType": "decimal"}], "default": null}'
    )
    assert row["small"] == {"name": "small", "type": {"type": "int", "connect.type": "int16"}}
    assert row["a"]["type"][1]["namespace"] == "io.debezium.data.geometry"
    assert row["b"]["type"] == "io.debezium.data.geometry.Geometry"
    assert schema["fields"][1]["type"] == ["null", "Value"]
    source = {field["name"]: field for field in schema["fields"][2]["type"]["fields"]}
    assert (source["snapshot"]["type"][1], source["snapshot"]["default"]) == ("null", "false")
    assert [name for name in schema if name not in ("type", "name", "fields")] == [
        "namespace",
        "connect.version",
        "connect.name",
    ]
    assert read_avro(records, registry)[0].key == {"id": 1}


def test_names_that_avro_does_not_allow_are_replaced() -> None:
    """Columns are escaped as in the set topic, parts of a topic's name as Debezium's adjuster does."""
    made = table("shop", "t", integer("id"), text("e-mail", 20))
    stream = RecordStream()
    stream.insert(made, {"id": 1, "e-mail": "x"})
    for options in (DEBEZIUM, OWN):
        records, registry = avro_records(options, made, stream)
        value: Any = read_avro(records, registry)[0].value
        assert value["after"] == {"id": 1, "e_u002d_mail": "x"}
    assert (
        '{"name":"e_u002d_mail","type":["null","string"],"default":null,"millrace.name":"e-mail"}'
        in (registry.texts[FIRST_ID])
    )
    assert full_name("shop-public.1a..b é.Envelope") == "shop_public._a._.b__.Envelope"
    struct: Schema = {"type": "struct", "name": "a-b.Key", "fields": []}
    assert AvroSchemas().of(struct) == {
        "type": "record",
        "name": "Key",
        "namespace": "a_b",
        "fields": [],
        "connect.name": "a_b.Key",
    }


def test_view_decides_names_columns_and_constants() -> None:
    """The source has the names of the view; constants are where the view has them."""
    made = table("shop", "t", integer("id"), text("name", 20), integer("amount"))
    rule = TableRule(
        "shop.t", target="crm.people", drop=("amount",), add=(("shard", "eu"), ("level", 7))
    )
    stream = RecordStream()
    stream.update(made, {"id": 1, "name": "a", "amount": 5}, {"id": 1, "name": None, "amount": 6})
    for options in (DEBEZIUM, OWN):
        records, registry = avro_records(options, made, stream, View((rule,)))
        value: Any = read_avro(records, registry)[0].value
        assert (value["source"]["db"], value["source"]["table"]) == ("crm", "people")
        assert value["before"] == {"id": 1, "name": "a", "shard": "eu", "level": 7}
        assert value["after"] == {"id": 1, "name": None, "shard": "eu", "level": 7}


@pytest.mark.parametrize("name", [FormatName.DEBEZIUM_AVRO, FormatName.AVRO])
def test_texts_and_dates_without_a_value_follow_the_options(name: FormatName) -> None:
    """A value that the column can't hold is null, the epoch, a text, or stops."""
    date = ColumnType(TypeCode.DATE)
    words = ColumnType(TypeCode.VARCHAR, 40, text=GBK)
    label = ColumnType(TypeCode.ENUM, 1, text=TextEncoding("utf8mb4", 45), labels=("a",))
    types = Types.LOGICAL if name is FormatName.AVRO else Types.DEBEZIUM
    options = FormatOptions(name, types=types)
    zero = "2024-00-07"
    assert _one(options, date, zero) is None
    assert _one(options, date, zero, nullable=False) == 0
    assert _one(replace(options, zero_dates=ZeroDates.EPOCH), date, zero) == 0
    assert _one(FormatOptions.of(FormatName.AVRO), date, zero) == zero
    with pytest.raises(Fatal, match="MR-6531"):
        _one(replace(options, zero_dates=ZeroDates.STOP), date, zero)
    assert _one(options, words, b"a\xff") == "a\ufffd"
    assert _one(replace(options, undecodable=Undecodable.BYTES), words, b"a\xff") == "Yf8="
    with pytest.raises(Fatal, match="MR-6530"):
        _one(replace(options, undecodable=Undecodable.STOP), words, b"a\xff")
    assert _one(options, label, 0) == ""


def test_decimals_and_bytes_follow_their_options() -> None:
    """Texts of all lengths; the least bytes that a number needs; bytes in base64 and hexadecimal digits."""
    wide = ColumnType(TypeCode.NEWDECIMAL, 65 << 8 | 30)
    most = Decimal(f"-{'9' * 35}.{'9' * 30}")
    as_text = replace(OWN, decimal=DecimalMode.STRING)
    assert _one(as_text, wide, most) == f"{most:f}"
    assert _one(as_text, wide, Decimal("0." + "0" * 30)) == "0." + "0" * 30
    assert _one(replace(OWN, decimal=DecimalMode.DOUBLE), wide, Decimal("0.5")) == 0.5
    assert _one(OWN, wide, Decimal("0." + "0" * 30)) == "AA=="
    unsigned = ColumnType(TypeCode.LONGLONG, is_unsigned=True)
    assert _one(OWN, unsigned, Decimal(2**64 - 1)) == "AP//////////"
    assert _one(as_text, unsigned, Decimal(2**64 - 1)) == str(2**64 - 1)
    assert _one(DEBEZIUM, unsigned, Decimal(2**64 - 1)) == -1
    binary = ColumnType(TypeCode.VARCHAR, 40, text=TextEncoding("binary", 63))
    found = [_one(replace(DEBEZIUM, binary=mode), binary, b"\xfb\xff\xfe") for mode in BinaryMode]
    assert found == ["+//+", "+//+", "-__-", "fbfffe"]
    assert _one(replace(OWN, binary=BinaryMode.HEX), binary, b"") == ""


def test_time_follows_its_option() -> None:
    """As numbers and in ISO 8601; what Connect's time of a day does not hold is null."""
    time, moment = ColumnType(TypeCode.TIME2, 2), ColumnType(TypeCode.DATETIME2, 6)
    connect = replace(DEBEZIUM, time=TimeMode.CONNECT)
    iso = replace(DEBEZIUM, time=TimeMode.ISOSTRING)
    assert _one(DEBEZIUM, time, "-00:00:01.50") == -1_500_000
    assert [_one(connect, time, each) for each in ("10:00:00.00", "-00:00:01.50")] == [
        36_000_000,
        None,
    ]
    assert _one(iso, time, "23:59:59.50") == "23:59:59.5Z"
    assert _one(DEBEZIUM, moment, "1969-12-31 23:59:59.999999") == -1
    assert _one(iso, moment, "2024-01-01 10:00:00.000000") == "2024-01-01T10:00:00Z"
    logical = FormatOptions(FormatName.AVRO, types=Types.LOGICAL)
    assert [_one(logical, time, each) for each in ("10:00:00.00", "24:00:00.00")] == [
        36 * 10**9,
        None,
    ]


def test_documents_lose_marks_and_blanks_outside_strings() -> None:
    """Debezium's have no blanks; ``avro`` keeps those that MySQL prints. Nothing is escaped again."""
    type_ = ColumnType(TypeCode.JSON, 4)
    value = '{"a b": ["c, \\"d: \\\\", 1.50 , 2  ], "e": "f"   }'
    assert _one(DEBEZIUM, type_, value) == '{"a b":["c, \\"d: \\\\",1.50,2],"e":"f"}'
    assert _one(OWN, type_, value) == '{"a b": ["c, \\"d: \\\\", 1.50, 2], "e": "f"}'
    long = '{"a": "' + "x" * 9000 + '"}'
    assert _one(DEBEZIUM, type_, long) == long.replace(": ", ":")


def test_tombstones_follow_their_option() -> None:
    """Without them, the parts of the other records stay the same."""
    made = table("shop", "t", integer("id"))
    stream = RecordStream()
    stream.delete(made, {"id": 1})
    stream.update(made, {"id": 2}, {"id": 3})
    lines = {}
    for has in (True, False):
        records = read_avro(*avro_records(replace(OWN, tombstones=has), made, stream))
        lines[has] = [(one.seq, one.part, one.key, one.value is None) for one in records]
    assert lines[True] == [
        (1, 0, {"id": 1}, False),
        (1, 1, {"id": 1}, True),
        (2, 0, {"id": 2}, False),
        (2, 1, {"id": 2}, True),
        (2, 2, {"id": 3}, False),
    ]
    assert lines[False] == [line for line in lines[True] if not line[3]]


def test_table_without_a_key_registers_no_key() -> None:
    """Its records have none, and a delete has no tombstone."""
    made = table("shop", "t", text("line", 20), key=())
    stream = RecordStream()
    stream.insert(made, {"line": "a"})
    stream.delete(made, {"line": "a"})
    records, registry = avro_records(DEBEZIUM, made, stream)
    assert registry.subjects == ["pre.shop.t-value"]
    assert [one.key for one in read_avro(records, registry)] == [None, None]


def test_rows_of_a_snapshot_are_read_events() -> None:
    """In Debezium the source says so; our own source is that of the set topic."""
    made = table("shop", "t", integer("id"))
    stream = RecordStream()
    stream.snapshot(made, {"id": 1})
    stream.insert(made, {"id": 2})
    for options, snapshots in (
        (DEBEZIUM, ["incremental", "false"]),
        (OWN, ["false", "false"]),
    ):
        values: list[Any] = [one.value for one in read_avro(*avro_records(options, made, stream))]
        assert [value["op"] for value in values] == ["r", "c"]
        assert [value["source"]["snapshot"] for value in values] == snapshots


def test_changed_key_goes_with_the_records_of_both() -> None:
    """As in ``debezium-json``; ``avro`` has neither."""
    made = table("shop", "t", integer("id"))
    stream = RecordStream()
    stream.update(made, {"id": 2}, {"id": 3})
    for options, expected in (
        (DEBEZIUM, [(NEW_KEY, 2), (NEW_KEY, 2), (OLD_KEY, 0)]),
        (replace(DEBEZIUM, tombstones=False), [(NEW_KEY, 1), (OLD_KEY, 0)]),
    ):
        records, _ = avro_records(options, made, stream)
        found = [records.other_key(number) for number in range(len(records))]
        assert found == [(other, records.key(place)) for other, place in expected]
    plain, _ = avro_records(OWN, made, stream)
    assert [plain.other_key(number) for number in range(len(plain))] == [(-1, None)] * 3
