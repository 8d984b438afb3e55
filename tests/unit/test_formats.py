"""Formats of publish tasks: the options, one by one, and the exact text of numbers and schemas."""

import base64
import json
from decimal import Decimal
from typing import Any

import pytest

from millrace.consumer.format.encoded import NEW_KEY, OLD_KEY
from millrace.errors import Fatal
from millrace.schemas.table.structure import Column, ColumnType, TableSchema, TextEncoding, TypeCode
from millrace.schemas.view.format_options import (
    BigintUnsigned,
    BinaryMode,
    DecimalMode,
    FormatName,
    FormatOptions,
    TimeMode,
    Undecodable,
    WideDecimal,
    ZeroDates,
)
from tests.kit.apply.tables import integer, table, text
from tests.kit.apply.topic import RecordStream
from tests.kit.format_rows import encoded, format_of, sent

DEBEZIUM = FormatName.DEBEZIUM_JSON
GBK = TextEncoding("gbk", 28)


def _one(options: FormatOptions, type_: ColumnType, value: object, *, nullable: bool = True) -> Any:
    """The JSON value of a column of this type."""
    made = table("shop", "t", integer("id"), Column("v", type_, nullable))
    stream = RecordStream()
    stream.insert(made, {"id": 1, "v": value})
    found: Any = sent(options, made, stream)[0].value
    return found.get("after", found)["v"]


def _text(type_: ColumnType, value: object) -> str:
    """The same, as it is written."""
    made = table("shop", "t", integer("id"), Column("v", type_, True))
    stream = RecordStream()
    stream.insert(made, {"id": 1, "v": value})
    record = encoded(FormatOptions(FormatName.JSON), made, stream).value(0)
    assert record is not None
    return record.decode().removeprefix('{"id":1,"v":').removesuffix("}")


def test_doubles_are_printed_as_java_prints_them() -> None:
    """From 10^-3 to 10^7 with a point, others with an exponent."""
    type_ = ColumnType(TypeCode.DOUBLE, 8)
    texts = {
        0.0: "0.0",
        1.0: "1.0",
        0.1: "0.1",
        -1.5: "-1.5",
        0.001: "0.001",
        0.00123: "0.00123",
        0.000999: "9.99E-4",
        1234567.0: "1234567.0",
        9999999.5: "9999999.5",
        1e7: "1.0E7",
        12345678.0: "1.2345678E7",
        1e23: "1.0E23",
        1.7976931348623157e308: "1.7976931348623157E308",
        2.2250738585072014e-308: "2.2250738585072014E-308",
    }
    assert {value: _text(type_, value) for value in texts} == texts
    assert _text(type_, -0.0) == "-0.0"
    assert _text(ColumnType(TypeCode.FLOAT, 4), 3.4028234663852886e38) == "3.4028235E38"
    assert _text(ColumnType(TypeCode.FLOAT, 4), 0.10000000149011612) == "0.1"


def test_texts_are_escaped_as_jackson_does() -> None:
    """Short forms where JSON has them, upper-case digits, and no escape beyond those needed."""
    type_ = ColumnType(TypeCode.VARCHAR, 400, text=TextEncoding("utf8mb4", 45))
    assert _text(type_, '\b\t\n\f\r"\\') == r'"\b\t\n\f\r\"\\"'
    assert _text(type_, "\0\x1f\x7f/é🛒\u2028") == '"\\u0000\\u001F\x7f/é🛒\u2028"'
    assert _text(type_, "x" * 100 + "\n") == '"' + "x" * 100 + '\\n"'


def test_decimal_follows_its_option() -> None:
    """Bytes, the nearest double, a text; for long and short ones."""
    short, long_ = (ColumnType(TypeCode.NEWDECIMAL, p << 8 | 2) for p in (10, 40))
    for mode, expected in (
        (DecimalMode.PRECISE, base64.b64encode(b"\x04\xd2").decode()),
        (DecimalMode.DOUBLE, 12.34),
        (DecimalMode.STRING, "12.34"),
    ):
        options = FormatOptions(DEBEZIUM, decimal=mode)
        assert _one(options, short, Decimal("12.34")) == expected
        assert _one(options, long_, Decimal("12.34")) == expected
    assert _text(short, Decimal("-0.50")) == "-0.50"


def test_long_decimals_become_the_nearest_double() -> None:
    """Python's float() is the judge, also next to the middle between two doubles."""
    options = FormatOptions(DEBEZIUM, decimal=DecimalMode.DOUBLE)
    integers, fractions = (ColumnType(TypeCode.NEWDECIMAL, 65 << 8 | s) for s in (0, 30))
    middle = 2**100 + 2**47
    whole = [middle, middle - 1, middle + 1, -middle, 3 * 2**190 + 2**138, 10**65 - 1, 10**19, 0]
    for number in whole:
        assert _one(options, integers, Decimal(number)) == float(number)
    digits = "9007199254740993.000000000000000000000000000000"
    for text_ in (digits, digits[:-1] + "1", "0.100000000000000005551115123126", "-0." + "3" * 30):
        assert _one(options, fractions, Decimal(text_)) == float(text_)


def test_wide_decimal_follows_its_option() -> None:
    """39 digits: as the others, a text, or the task stops."""
    type_, value = ColumnType(TypeCode.NEWDECIMAL, 39 << 8), Decimal(5)
    assert _one(FormatOptions(DEBEZIUM), type_, value) == "BQ=="
    options = FormatOptions(DEBEZIUM, wide_decimal=WideDecimal.STRING)
    assert _one(options, type_, value) == "5"
    assert _one(options, ColumnType(TypeCode.NEWDECIMAL, 38 << 8), value) == "BQ=="
    with pytest.raises(Fatal, match=r"MR-6532.*shop\.t\.v is a DECIMAL of 39 digits"):
        _one(FormatOptions(DEBEZIUM, wide_decimal=WideDecimal.STOP), type_, value)


def test_table_without_a_key_has_no_plain_json() -> None:
    """A delete would have no key and no value. Debezium's records have no key then, and no tombstone."""
    made = TableSchema("shop", "t", (integer("id"),))
    with pytest.raises(Fatal, match="MR-6533"):
        format_of(FormatOptions(FormatName.JSON), made)
    stream = RecordStream()
    stream.update(made, {"id": 1}, {"id": 2})
    stream.delete(made, {"id": 1})
    records = sent(FormatOptions(DEBEZIUM), made, stream)
    assert [(record.key, record.part) for record in records] == [(None, 0), (None, 0)]
    assert [record.value["op"] for record in records if isinstance(record.value, dict)] == [
        "u",
        "d",
    ]


def test_undecodable_text_follows_its_option() -> None:
    """Invalid parts as U+FFFD, the bytes, or the task stops; labels without a text, too."""
    utf8 = ColumnType(TypeCode.VARCHAR, 400, text=TextEncoding("utf8mb4", 45))
    enum = ColumnType(TypeCode.ENUM, 1, text=utf8.text, labels=("a", None))
    some = ColumnType(TypeCode.SET, 1, text=utf8.text, labels=("a", None, "c"))
    replace, octets, stop = (FormatOptions(DEBEZIUM, undecodable=rule) for rule in Undecodable)
    assert _one(replace, utf8, b"a\xffb\xc3") == "a\ufffdb\ufffd"
    assert _one(replace, ColumnType(TypeCode.VARCHAR, 9, text=GBK), b"\xc4\xe3\x80") == "你\ufffd"
    assert _one(octets, utf8, b"a\xff") == "Yf8="
    assert [_one(replace, enum, number) for number in (0, 1, 2)] == ["", "a", "\ufffd"]
    assert _one(octets, enum, 2) == "2"
    assert [_one(replace, some, bits) for bits in (0, 5, 7)] == ["", "a,c", "a,\ufffd,c"]
    assert [_one(octets, some, bits) for bits in (5, 7)] == ["a,c", "7"]
    assert _one(stop, enum, 0) == ""
    for type_, value in ((utf8, b"\xff"), (enum, 2), (some, 2)):
        with pytest.raises(Fatal, match=r"MR-6530.*a row of shop\.t in the source transaction"):
            _one(stop, type_, value)


def test_zero_date_follows_its_option() -> None:
    """As Debezium: null, or 1970 in a column that is NOT NULL."""
    date, moment = ColumnType(TypeCode.DATE), ColumnType(TypeCode.DATETIME2, 3)
    zoned = ColumnType(TypeCode.TIMESTAMP2, 0)
    zero, february = "0000-00-00", "2023-02-29"
    null, epoch, string, stop = (FormatOptions(DEBEZIUM, zero_dates=rule) for rule in ZeroDates)
    for value in (zero, february, "2024-00-01", "2024-01-00", "0000-01-01", "2024-04-31"):
        assert _one(null, date, value) is None
        assert _one(null, date, value, nullable=False) == 0
        assert _one(epoch, date, value) == 0
        assert _one(string, date, value) == value
        with pytest.raises(Fatal, match="MR-6531"):
            _one(stop, date, value)
    assert _one(stop, date, "2024-02-29") == 19782
    assert _one(null, moment, f"{zero} 00:00:00.000", nullable=False) == 0
    assert _one(null, zoned, f"{zero} 00:00:00", nullable=False) == "1970-01-01T00:00:00Z"
    plain = FormatOptions(FormatName.JSON)
    assert _one(plain, moment, f"{zero} 01:00:00.000") is None
    assert _one(FormatOptions.of(FormatName.JSON), date, zero) == zero


def test_time_follows_its_option() -> None:
    """DATE, TIME, DATETIME and TIMESTAMP in each of Debezium's precision modes."""
    columns = {
        "date": ColumnType(TypeCode.DATE),
        "time": ColumnType(TypeCode.TIME2, 2),
        "fine": ColumnType(TypeCode.TIME2, 6),
        "moment": ColumnType(TypeCode.DATETIME2, 3),
        "finer": ColumnType(TypeCode.DATETIME2, 6),
        "zoned": ColumnType(TypeCode.TIMESTAMP2, 3),
    }
    row = {
        "date": "1969-12-31",
        "time": "-00:00:01.50",
        "fine": "10:00:00.000001",
        "moment": "1970-01-01 00:00:00.500",
        "finer": "1969-12-31 23:59:59.999999",
        "zoned": "2024-01-02 03:04:05.060",
    }
    zoned = "2024-01-02T03:04:05.060Z"
    hours = 36_000_000
    modes: dict[TimeMode, list[object]] = {
        TimeMode.ADAPTIVE_TIME_MICROSECONDS: [-1, -1500000, hours * 1000 + 1, 500, -1, zoned],
        TimeMode.ADAPTIVE: [-1, -1500, hours * 1000 + 1, 500, -1, zoned],
        TimeMode.CONNECT: [-1, None, hours, 500, -1, zoned],
        TimeMode.MICROSECONDS: [-1, -1500000, hours * 1000 + 1, 500000, -1, zoned],
        TimeMode.NANOSECONDS: [-1, -(15 * 10**8), hours * 10**6 + 1000, 5 * 10**8, -1000, zoned],
        TimeMode.ISOSTRING: [
            "1969-12-31Z",
            None,
            "10:00:00.000001Z",
            "1970-01-01T00:00:00.5Z",
            "1969-12-31T23:59:59.999999Z",
            zoned,
        ],
    }
    for mode, expected in modes.items():
        options = FormatOptions(DEBEZIUM, time=mode)
        assert [_one(options, columns[name], row[name]) for name in columns] == expected, mode
    iso = FormatOptions(DEBEZIUM, time=TimeMode.ISOSTRING)
    assert _one(iso, columns["time"], "23:59:59.50") == "23:59:59.5Z"
    assert _one(iso, columns["finer"], "2024-01-01 10:00:00.000000") == "2024-01-01T10:00:00Z"


def test_value_outside_a_type_follows_zero_dates() -> None:
    """No number wraps: TIME as a time of a day, and nanoseconds from 1677 to 2262."""
    time, moment = ColumnType(TypeCode.TIME2, 0), ColumnType(TypeCode.DATETIME2, 6)
    adaptive = FormatOptions(DEBEZIUM, time=TimeMode.ADAPTIVE)
    assert _one(adaptive, time, "596:31:23") == 2_147_483_000
    assert [_one(adaptive, time, each) for each in ("838:59:59", "-596:31:24")] == [None, None]
    for mode in (TimeMode.CONNECT, TimeMode.ISOSTRING):
        options = FormatOptions(DEBEZIUM, time=mode)
        assert [_one(options, time, each) for each in ("838:59:59", "24:00:00")] == [None, None]
    assert _one(options, time, "24:00:00", nullable=False) == "00:00:00Z"
    nanoseconds = FormatOptions(DEBEZIUM, time=TimeMode.NANOSECONDS)
    last = "2262-04-11 23:47:16.854775"
    assert _one(nanoseconds, moment, last) == 9_223_372_036_854_775_000
    assert _one(nanoseconds, moment, "2262-04-11 23:47:16.854776") is None
    assert _one(nanoseconds, moment, "1000-01-01 00:00:00.000000") is None
    stop = FormatOptions(DEBEZIUM, time=TimeMode.CONNECT, zero_dates=ZeroDates.STOP)
    with pytest.raises(Fatal, match="MR-6531"):
        _one(stop, time, "-00:00:01")


def test_binary_and_unsigned_follow_their_options() -> None:
    """base64 with two alphabets, hexadecimal digits; BIGINT UNSIGNED as a long or as bytes."""
    binary = ColumnType(TypeCode.VARCHAR, 40, text=TextEncoding("binary", 63))
    found = [
        _one(FormatOptions(DEBEZIUM, binary=mode), binary, b"\xfb\xff\xfe") for mode in BinaryMode
    ]
    assert found == ["+//+", "+//+", "-__-", "fbfffe"]
    unsigned = ColumnType(TypeCode.LONGLONG, is_unsigned=True)
    options = FormatOptions(DEBEZIUM, bigint_unsigned=BigintUnsigned.PRECISE)
    assert _one(options, unsigned, Decimal(2**64 - 1)) == "AP//////////"
    assert _one(FormatOptions(DEBEZIUM), unsigned, Decimal(2**64 - 1)) == -1
    assert _text(unsigned, Decimal(2**64 - 1)) == str(2**64 - 1)


def test_documents_lose_marks_and_blanks_outside_strings() -> None:
    """Debezium's have no blanks; ``json`` keeps those that MySQL prints."""
    type_ = ColumnType(TypeCode.JSON, 4)
    value = '{"a b": ["c, \\"d: ", 1.50 , 2  ], "e": "f"   }'
    assert _one(FormatOptions(DEBEZIUM), type_, value) == '{"a b":["c, \\"d: ",1.50,2],"e":"f"}'
    found = _one(FormatOptions(FormatName.JSON), type_, value)
    assert found == '{"a b": ["c, \\"d: ", 1.50, 2], "e": "f"}'


def test_tombstones_follow_their_option() -> None:
    """Without them, the parts of the other records stay the same."""
    made = table("shop", "t", integer("id"))
    stream = RecordStream()
    stream.delete(made, {"id": 1})
    stream.update(made, {"id": 2}, {"id": 3})
    parts = {}
    for tombstones in (True, False):
        records = sent(FormatOptions(DEBEZIUM, tombstones=tombstones), made, stream)
        parts[tombstones] = [(r.seq, r.part, r.key, r.value is None) for r in records]
    assert parts[True] == [
        (1, 0, {"id": 1}, False),
        (1, 1, {"id": 1}, True),
        (2, 0, {"id": 2}, False),
        (2, 1, {"id": 2}, True),
        (2, 2, {"id": 3}, False),
    ]
    assert parts[False] == [line for line in parts[True] if not line[3]]


def test_changed_key_goes_with_the_records_of_both() -> None:
    """The delete and its tombstone have the new key, the create the old one; ``json`` has neither."""
    made = table("shop", "t", integer("id"), text("name"), key=(0, 1))
    stream = RecordStream()
    row = {"id": 2, "name": "b"}
    stream.update(made, row, row | {"name": "c"})
    stream.delete(made, row)
    old, new = b'{"id":2,"name":"b"}', b'{"id":2,"name":"c"}'
    records = encoded(FormatOptions(DEBEZIUM), made, stream)
    assert [records.other_key(number) for number in range(len(records))] == [
        (NEW_KEY, new),
        (NEW_KEY, new),
        (OLD_KEY, old),
        (-1, None),
        (-1, None),
    ]
    with_schemas = encoded(FormatOptions(DEBEZIUM, schemas=True), made, stream)
    assert [with_schemas.other_key(number)[1] for number in range(3)] == [new, new, old]
    plain = encoded(FormatOptions(FormatName.JSON), made, stream)
    assert [plain.other_key(number) for number in range(len(plain))] == [(-1, None)] * 3


def test_schemas_are_those_of_the_connect_converter() -> None:
    """The order of the members is the converter's; a value's type follows the options."""
    made = table(
        "shop",
        "t",
        integer("id"),
        text("name", 20),
        Column("price", ColumnType(TypeCode.NEWDECIMAL, 5 << 8 | 2), False),
    )
    stream = RecordStream()
    stream.insert(made, {"id": 7, "name": "ü", "price": Decimal("1.25")})
    stream.delete(made, {"id": 7, "name": "ü", "price": Decimal("1.25")})
    options = FormatOptions(DEBEZIUM, schemas=True)
    records = encoded(options, made, stream)
    assert records.key(0) == (
        b'{"schema":{"type":"struct","fields":[{"type":"int32","optional":false,"field":"id"}],'
        b'"optional":false,"name":"pre.shop.t.Key"},"payload":{"id":7}}'
    )
    assert records.value(2) is None
    value = json.loads(records.value(0) or b"")
    without = encoded(FormatOptions(DEBEZIUM), made, stream)
    assert value["payload"] == json.loads(without.value(0) or b"")
    schema = value["schema"]
    assert list(schema) == ["type", "fields", "optional", "name", "version"]
    assert (schema["name"], schema["version"]) == ("pre.shop.t.Envelope", 2)
    assert [field["field"] for field in schema["fields"]] == list(value["payload"])
    row = schema["fields"][0]
    assert list(row) == ["type", "fields", "optional", "name", "field"]
    assert (row["optional"], row["name"]) == (True, "pre.shop.t.Value")
    assert row["fields"] == [
        {"type": "int32", "optional": False, "field": "id"},
        {"type": "string", "optional": True, "field": "name"},
        {
            "type": "bytes",
            "optional": False,
            "name": "org.apache.kafka.connect.data.Decimal",
            "version": 1,
            "parameters": {"scale": "2", "connect.decimal.precision": "5"},
            "field": "price",
        },
    ]
    source = schema["fields"][2]
    assert [field["field"] for field in source["fields"]] == list(value["payload"]["source"])
    assert source["name"] == "io.debezium.connector.mysql.Source"


def test_rows_of_a_snapshot_are_read_events() -> None:
    """Their source says so, and a change after them has the source of a change."""
    made = table("shop", "t", integer("id"))
    stream = RecordStream()
    stream.snapshot(made, {"id": 1})
    stream.insert(made, {"id": 2})
    values: list[Any] = [record.value for record in sent(FormatOptions(DEBEZIUM), made, stream)]
    assert [value["op"] for value in values] == ["r", "c"]
    assert [value["source"]["snapshot"] for value in values] == ["incremental", "false"]
