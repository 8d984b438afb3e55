"""The comparison with Debezium reports each field that differs, and nothing else."""

import json
from collections.abc import Mapping

from tests.kit.debezium.comparison import Difference, Kind, Result, compare
from tests.kit.debezium.connectors import Record

TYPES = {"id": "INT", "amount": "DECIMAL(10,2)"}


def _type_of(_: tuple[str, str], column: str) -> str:
    return TYPES.get(column, "")


def _text(value: object, fields: list[str] | None = None) -> bytes:
    if fields is None:
        return json.dumps(value).encode()
    listed = [{"type": "int32", "optional": False, "field": name} for name in fields]
    return json.dumps({"schema": {"type": "struct", "fields": listed}, "payload": value}).encode()


def _insert(after: Mapping[str, object], **source: object) -> bytes:
    place = {"db": "d", "table": "t", "gtid": "1-1-1", **source}
    return _text({"before": None, "after": after, "source": place, "op": "c"})


def _compared(one: Record, other: Record) -> Result:
    return compare([one], [other], _type_of)


def test_equal_records_have_no_difference() -> None:
    """Numbers are equal by value; every leaf counts."""
    one = Record("t", _text({"id": 1}), _insert({"id": 1, "amount": 100.0}))
    other = Record("t", _text({"id": 1}), _insert({"id": 1, "amount": 1e2}))
    result = _compared(one, other)
    assert not result.counts
    assert (result.records, result.fields > 10) == (1, True)


def test_values_types_and_absent_fields_differ() -> None:
    """A text is not the number that it shows, and zero has a sign."""
    one = Record("t", _text({"id": 1}), _insert({"id": 1, "amount": "1"}, thread=7))
    other = Record("t", _text({"id": 1}), _insert({"id": True, "amount": 1}, seq=9))
    assert set(_compared(one, other).counts) == {
        Difference("value", "row.COLUMN", "INT", Kind.DIFFERS, "1 / true"),
        Difference("value", "row.COLUMN", "DECIMAL(10,2)", Kind.DIFFERS, '"1" / 1'),
        Difference("value", "source.thread", "", Kind.ONLY_DEBEZIUM),
        Difference("value", "source.seq", "", Kind.ONLY_MILLRACE),
    }
    zero = Record("t", None, _insert({"amount": 0.0}))
    minus = Record("t", None, _insert({"amount": -0.0}))
    assert len(_compared(zero, minus).counts) == 1


def test_records_of_one_side_are_reported() -> None:
    """Records are paired by their place in the binlog; a tombstone by the record before it."""
    row = Record("t", _text({"id": 1}), _insert({"id": 1}))
    tombstone = Record("t", _text({"id": 1}), None)
    later = Record("t", _text({"id": 2}), _insert({"id": 2}, gtid="1-1-2"))
    result = compare([row, tombstone], [row, later], _type_of)
    assert {each.kind: each.field for each in result.counts} == {
        Kind.ONLY_DEBEZIUM: "tombstone",
        Kind.ONLY_MILLRACE: "c",
    }
    assert not compare([row, later], [row, later], _type_of).counts
    moved = compare([row, later], [later, row], _type_of)
    assert set(moved.counts) == {Difference("record", "order", "", Kind.DIFFERS)}


def test_schemas_are_compared_by_field() -> None:
    """The order of fields is one leaf, too."""
    one = Record("t", _text({"a": 1, "id": 2}, ["a", "id"]), _insert({"id": 1}))
    other = Record("t", _text({"a": 1, "id": 2}, ["id", "a"]), _insert({"id": 1}))
    assert set(_compared(one, other).counts) == {
        Difference("key schema", "@fields", "", Kind.DIFFERS)
    }
