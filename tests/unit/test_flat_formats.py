"""``maxwell-json`` and ``canal-json``: keys, parts, options, and each type that JSON has another value for."""

import json
import struct
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from millrace.errors import Fatal
from millrace.schemas.table.structure import Column, ColumnType, TableSchema, TextEncoding, TypeCode
from millrace.schemas.view.format_options import (
    BootstrapType,
    FormatName,
    FormatOptions,
    KeyChanges,
    KeyFormat,
    Undecodable,
    ZeroDates,
)
from millrace.schemas.view.view import TableRule, View
from tests.kit.apply.tables import integer, table, text
from tests.kit.apply.topic import COMMIT_MS, UUID, RecordStream
from tests.kit.format_rows import encoded, sent

MAXWELL = FormatOptions.of(FormatName.MAXWELL_JSON)
CANAL = FormatOptions.of(FormatName.CANAL_JSON)
EVENT_MS = COMMIT_MS // 1000 * 1000
ORDERS = table("shop", "orders", integer("id"), text("note", 20))
BINARY = TextEncoding("binary", 63)


def _one(options: FormatOptions, type_: ColumnType, value: object, *, nullable: bool = True) -> Any:
    """The value of one column as the format writes it."""
    return _record(options, type_, value, nullable=nullable)["data"]["v"]


def _record(
    options: FormatOptions, type_: ColumnType, value: object, *, nullable: bool = True
) -> dict[str, Any]:
    made = table("shop", "t", integer("id"), Column("v", type_, nullable))
    stream = RecordStream()
    stream.insert(made, {"id": 1, "v": value})
    octets = encoded(options, made, stream).value(0)
    assert octets is not None
    record: dict[str, Any] = json.loads(octets)
    if options.name is FormatName.CANAL_JSON:
        record["data"] = record["data"][0]
    return record


def _story() -> RecordStream:
    """An insert, an update, one that changes the key, one that changes nothing, a delete, a row of a snapshot."""
    stream = RecordStream()
    row = {"id": 7, "note": "ü"}
    stream.insert(ORDERS, row)
    stream.update(ORDERS, row, row | {"note": None})
    stream.update(ORDERS, row | {"note": None}, {"id": 8, "note": "x"})
    stream.update(ORDERS, {"id": 8, "note": "x"}, {"id": 8, "note": "x"})
    stream.delete(ORDERS, {"id": 8, "note": "x"})
    stream.snapshot(ORDERS, row)
    return stream


def _key(number: int) -> dict[str, object]:
    return {"database": "shop", "table": "orders", "pk.id": number}


def test_maxwell_records_have_the_fields_of_maxwell() -> None:
    """``old`` has the columns that changed, and a snapshot has no transaction."""
    records = sent(MAXWELL, ORDERS, _story())
    assert [record.key for record in records] == [_key(each) for each in (7, 7, 8, 8, 8, 7)]
    head = {"database": "shop", "table": "orders"}
    changed, snapshot = {"ts": EVENT_MS // 1000, "xid": 1}, {"ts": EVENT_MS // 1000}
    assert [record.value for record in records] == [
        head | {"type": "insert"} | changed | {"data": {"id": 7, "note": "ü"}},
        head
        | {"type": "update"}
        | changed
        | {"data": {"id": 7, "note": None}, "old": {"note": "ü"}},
        head
        | {"type": "update"}
        | changed
        | {"data": {"id": 8, "note": "x"}, "old": {"id": 7, "note": None}},
        head | {"type": "update"} | changed | {"data": {"id": 8, "note": "x"}, "old": {}},
        head | {"type": "delete"} | changed | {"data": {"id": 8, "note": "x"}},
        head | {"type": "bootstrap-insert"} | snapshot | {"data": {"id": 7, "note": "ü"}},
    ]
    order = ["database", "table", "type", "ts", "xid", "data", "old"]
    assert [list(record.value) for record in records[:2] if isinstance(record.value, dict)] == [
        order[:-1],
        order,
    ]


def test_maxwell_options_add_fields() -> None:
    """All of them, in Maxwell's order; NULLs are left out, and the key is an array."""
    options = replace(
        MAXWELL,
        kafka_key_format=KeyFormat.ARRAY,
        output_xoffset=True,
        output_binlog_position=True,
        output_gtid_position=True,
        output_server_id=True,
        output_primary_keys=True,
        output_primary_key_columns=True,
        output_nulls=False,
    )
    record = sent(options, ORDERS, _story())[1]
    assert record.key == ["shop", "orders", [{"id": 7}]]
    assert isinstance(record.value, dict)
    assert list(record.value.items())[4:] == [
        ("xid", 1),
        ("xoffset", 0),
        ("position", "bin.000001:6"),
        ("gtid", f"{UUID}:1"),
        ("server_id", 1),
        ("primary_key", [7]),
        ("primary_key_columns", ["id"]),
        ("data", {"id": 7}),
        ("old", {"note": "ü"}),
    ]
    moved = sent(options, ORDERS, _story())[2]
    assert isinstance(moved.value, dict)
    assert moved.value["old"] == {"id": 7}
    snapshot = sent(replace(MAXWELL, bootstrap_type=BootstrapType.INSERT), ORDERS, _story())[-1]
    assert isinstance(snapshot.value, dict)
    assert snapshot.value["type"] == "insert"
    without = sent(replace(MAXWELL, output_commit_info=False), ORDERS, _story())[0]
    assert isinstance(without.value, dict)
    assert "xid" not in without.value


def test_last_row_of_a_source_transaction_has_commit() -> None:
    """It has no ``xoffset`` then."""
    stream = RecordStream()
    stream.insert(ORDERS, {"id": 1, "note": None})
    stream.commit()
    options = replace(MAXWELL, output_xoffset=True)
    (record,) = sent(options, ORDERS, stream)
    assert isinstance(record.value, dict)
    assert record.value["commit"] is True
    assert "xoffset" not in record.value


def test_canal_records_have_the_fields_of_canal() -> None:
    """All values are strings; ``data`` and ``old`` have one row; ``id`` is the seq."""
    records = sent(CANAL, ORDERS, _story())
    assert [record.key for record in records] == [{"id": each} for each in "778887"]
    values: list[Any] = [record.value for record in records]
    assert values[1] == {
        "data": [{"id": "7", "note": None}],
        "database": "shop",
        "es": EVENT_MS,
        "gtid": f"{UUID}:1",
        "id": 2,
        "isDdl": False,
        "mysqlType": {"id": "int", "note": "varchar(20)"},
        "old": [{"note": "ü"}],
        "pkNames": ["id"],
        "sql": "",
        "sqlType": {"id": 4, "note": 12},
        "table": "orders",
        "ts": COMMIT_MS + 2,
        "type": "UPDATE",
    }
    assert [value["type"] for value in values] == [
        "INSERT",
        *["UPDATE"] * 3,
        "DELETE",
        "INSERT",
    ]
    assert [value["old"] for value in values] == [
        None,
        [{"note": "ü"}],
        [{"id": "7", "note": None}],
        [{}],
        None,
        None,
    ]


@pytest.mark.parametrize("options", [MAXWELL, CANAL], ids=lambda each: str(each.name))
def test_parts_of_a_changed_key_follow_the_options(options: FormatOptions) -> None:
    """The delete of the old key, its tombstone, the record of the new key: whichever there are, in this order."""

    def parts(changes: KeyChanges, *, tombstones: bool) -> list[tuple[int, int, bool]]:
        records = sent(
            replace(options, key_changes=changes, tombstones=tombstones), ORDERS, _story()
        )
        return [(each.seq, each.part, each.value is None) for each in records if each.seq in (3, 5)]

    split, whole = KeyChanges.DELETE_AND_INSERT, KeyChanges.UPDATE
    assert parts(whole, tombstones=False) == [(3, 1, False), (5, 0, False)]
    deleted = [(5, 0, False), (5, 1, True)]
    assert parts(whole, tombstones=True) == [(3, 0, True), (3, 1, False), *deleted]
    moved = [(3, 0, False), (3, 1, True), (3, 2, False)]
    assert parts(split, tombstones=True) == [*moved, *deleted]
    assert parts(split, tombstones=False) == [(3, 0, False), (3, 2, False), (5, 0, False)]
    types = [
        str(each.value["type"]).lower()
        for each in sent(replace(options, key_changes=split), ORDERS, _story())
        if each.seq == 3 and isinstance(each.value, dict)
    ]
    assert types == ["delete", "insert"]


def test_table_without_a_key_has_records_without_key() -> None:
    """Canal says null for the names of the key, Maxwell has empty arrays."""
    plain = TableSchema("shop", "log", (text("line", 20),))
    stream = RecordStream()
    stream.insert(plain, {"line": "a"})
    stream.delete(plain, {"line": "a"})
    options = replace(MAXWELL, output_primary_keys=True, output_primary_key_columns=True)
    records = sent(replace(options, tombstones=True), plain, stream)
    assert [(record.key, record.value is None) for record in records] == [(None, False)] * 2
    assert isinstance(records[0].value, dict)
    assert records[0].value["primary_key"] == records[0].value["primary_key_columns"] == []
    (first, _) = sent(CANAL, plain, stream)
    assert isinstance(first.value, dict)
    assert first.value["pkNames"] is None


@pytest.mark.parametrize(
    ("type_", "value", "maxwell", "canal", "jdbc"),
    [
        (ColumnType(TypeCode.LONG), -1, -1, "-1", 4),
        (ColumnType(TypeCode.TINY, is_unsigned=True), 127, 127, "127", -6),
        (ColumnType(TypeCode.TINY, is_unsigned=True), 128, 128, "128", 5),
        (ColumnType(TypeCode.LONG, is_unsigned=True), 2**31, 2**31, str(2**31), -5),
        (
            ColumnType(TypeCode.LONGLONG, is_unsigned=True),
            Decimal(2**63 - 1),
            2**63 - 1,
            str(2**63 - 1),
            -5,
        ),
        (ColumnType(TypeCode.LONGLONG, is_unsigned=True), Decimal(2**63), 2**63, str(2**63), 3),
        (ColumnType(TypeCode.YEAR), 0, 0, "0000", 12),
        (ColumnType(TypeCode.YEAR), 2024, 2024, "2024", 12),
        (ColumnType(TypeCode.BIT, 9), b"\x01\x02", 258, "258", -7),
        (ColumnType(TypeCode.DOUBLE), 1e10, 1e10, "1.0E10", 8),
        (ColumnType(TypeCode.ENUM, 1, labels=("b", "a", "é")), "é", "é", "3", 4),
        (ColumnType(TypeCode.ENUM, 1, labels=("b", None)), 2, "\ufffd", "2", 4),
        (ColumnType(TypeCode.SET, 1, labels=("x", "a", "z")), "x,z", ["x", "z"], "5", -7),
        (ColumnType(TypeCode.SET, 1, labels=("x", "a", "z")), "", [], "0", -7),
        (ColumnType(TypeCode.SET, 1, labels=("x", "a", "z")), None, None, None, 2004),
        (ColumnType(TypeCode.BLOB, 2, text=BINARY), b"\x00\xffA", "AP9B", "\x00\xffA", 2004),
        (ColumnType(TypeCode.DATE), "0000-00-00", "0000-00-00", "0000-00-00", 91),
        (ColumnType(TypeCode.TIME2, 1), "-838:00:01.5", "-838:00:01.5", "-838:00:01.5", 92),
        (
            ColumnType(TypeCode.JSON, 4),
            '{"a b": [1.50 , "x\\" ,y"]}',
            {"a b": [1.5, 'x" ,y']},
            '{"a b": [1.50, "x\\" ,y"]}',
            12,
        ),
    ],
    ids=lambda each: str(getattr(each, "code", "")),
)
def test_types_have_the_values_of_both(
    type_: ColumnType, value: object, maxwell: object, canal: object, jdbc: int
) -> None:
    """Maxwell's value, Canal's string, and its JDBC type, which depends on the value."""
    assert _one(MAXWELL, type_, value) == maxwell
    record = _record(CANAL, type_, value)
    assert record["data"]["v"] == canal
    assert record["sqlType"]["v"] == jdbc


def test_each_label_of_a_long_enum_has_its_number() -> None:
    """The table of labels is searched by their bytes."""
    labels = tuple(f"label {number * 7919 % 1000}" for number in range(1000))
    type_ = ColumnType(TypeCode.ENUM, 2, labels=labels)
    assert [_one(CANAL, type_, labels[at]) for at in (0, 1, 499, 998, 999)] == [
        "1",
        "2",
        "500",
        "999",
        "1000",
    ]
    bits = ColumnType(TypeCode.SET, 8, labels=tuple(f"m{bit}" for bit in range(64)))
    assert _one(CANAL, bits, "m0,m63") == str(2**63 + 1)
    assert _one(CANAL, bits, 2**62) == str(2**62)


def _points(*coordinates: float) -> bytes:
    """Their count, and the points."""
    return struct.pack(f"<I{len(coordinates)}d", len(coordinates) // 2, *coordinates)


def _wkb(kind: int, *parts: bytes) -> bytes:
    """A geometry. ``parts``: what it has; of those above LINESTRING their number comes first."""
    count = struct.pack("<I", len(parts)) if kind > 2 else b""
    return struct.pack("<BI", 1, kind) + count + b"".join(parts)


def _point(x: float, y: float) -> bytes:
    return _wkb(1, struct.pack("<2d", x, y))


@pytest.mark.parametrize(
    ("wkb", "wkt"),
    [
        (_point(1, -2.5), "POINT (1 -2.5)"),
        (_wkb(2, _points(0, 0, 1e300, 1)), "LINESTRING (0 0, 1.0E300 1)"),
        (
            _wkb(3, _points(0, 0, 1, 0, 0, 0), _points(2, 2)),
            "POLYGON ((0 0, 1 0, 0 0), (2 2))",
        ),
        (_wkb(4, _point(0, 0), _point(1, 1)), "MULTIPOINT ((0 0), (1 1))"),
        (_wkb(5, _wkb(2, _points(0, 0, 1, 1))), "MULTILINESTRING ((0 0, 1 1))"),
        (_wkb(6, _wkb(3, _points(0, 0, 1, 1))), "MULTIPOLYGON (((0 0, 1 1)))"),
        (
            _wkb(7, _point(0, 0), _wkb(7, _wkb(4, _point(2, 2))), _wkb(7)),
            "GEOMETRYCOLLECTION (POINT (0 0), GEOMETRYCOLLECTION (MULTIPOINT ((2 2))), "
            "GEOMETRYCOLLECTION EMPTY)",
        ),
    ],
    ids=lambda each: each.split()[0] if isinstance(each, str) else "",
)
def test_geometries_are_wkt(wkb: bytes, wkt: str) -> None:
    """Each type of geometry, alone and in collections; a value that is cut is hexadecimal digits."""
    type_ = ColumnType(TypeCode.GEOMETRY, 4)
    octets = struct.pack("<I", 4326) + wkb
    assert _one(MAXWELL, type_, octets) == wkt
    assert _one(MAXWELL, type_, octets[:-1]) == octets[:-1].hex()


def test_options_decide_about_dates_and_texts() -> None:
    """As in the other formats."""
    date = ColumnType(TypeCode.DATE)
    for options in (MAXWELL, CANAL):
        null = replace(options, zero_dates=ZeroDates.NULL)
        assert _one(null, date, "0000-00-00") is None
        with pytest.raises(Fatal, match="MR-6531"):
            _one(replace(options, zero_dates=ZeroDates.STOP), date, "0000-00-00")
        latin = ColumnType(TypeCode.VARCHAR, 40, text=TextEncoding("utf8mb4", 45))
        assert _one(options, latin, b"\xff") == "\ufffd"
        with pytest.raises(Fatal, match="MR-6530"):
            _one(replace(options, undecodable=Undecodable.STOP), latin, b"\xff")
    labels = ColumnType(TypeCode.SET, 1, labels=("x", None))
    with pytest.raises(Fatal, match="MR-6530"):
        _one(replace(MAXWELL, undecodable=Undecodable.STOP), labels, 2)


def test_added_columns_are_in_data_and_not_in_old() -> None:
    """Canal's are strings as all values."""
    rule = TableRule("*.*", add=(("region", "EU"), ("version", 3)))
    view = View((rule,))
    for options in (MAXWELL, replace(MAXWELL, output_nulls=False), CANAL):
        octets = encoded(options, ORDERS, _story(), view).value(1)
        record = json.loads(octets or b"")
        is_canal = options is CANAL
        data, old = (record[each][0] if is_canal else record[each] for each in ("data", "old"))
        assert data["region"] == "EU"
        assert data["version"] == ("3" if is_canal else 3)
        assert old == {"note": "ü"}
