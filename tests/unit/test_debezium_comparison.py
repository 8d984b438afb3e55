"""The comparison with Debezium reports each field that differs, and nothing else."""

import io
import json
from collections.abc import Mapping

import fastavro

from tests.kit.debezium.comparison import Difference, Kind, Side, compare
from tests.kit.debezium.connectors import Record
from tests.kit.debezium.parts import avro_parts, json_parts
from tests.kit.side_by_side import Result

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


def _compared(one: Record, other: Record) -> Result[Difference]:
    return _compared_all([one], [other])


def _compared_all(ones: list[Record], others: list[Record]) -> Result[Difference]:
    return compare(Side(ones, json_parts), Side(others, json_parts), _type_of)


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
    result = _compared_all([row, tombstone], [row, later])
    assert {each.kind: each.field for each in result.counts} == {
        Kind.ONLY_DEBEZIUM: "tombstone",
        Kind.ONLY_MILLRACE: "c",
    }
    assert not _compared_all([row, later], [row, later]).counts
    moved = _compared_all([row, later], [later, row])
    assert set(moved.counts) == {Difference("record", "order", "", Kind.DIFFERS)}


def test_schemas_are_compared_by_field() -> None:
    """The order of fields is one leaf, too."""
    one = Record("t", _text({"a": 1, "id": 2}, ["a", "id"]), _insert({"id": 1}))
    other = Record("t", _text({"a": 1, "id": 2}, ["id", "a"]), _insert({"id": 1}))
    assert set(_compared(one, other).counts) == {
        Difference("key schema", "@fields", "", Kind.DIFFERS, '["a", "id"] / ["id", "a"]')
    }


def test_begins_ends_and_headers_are_compared() -> None:
    """The tables of an end have no order; ends with and without events are different records."""
    row = Record("t", None, _insert({"id": 1}), headers=(("k", b'{"id": 1}'), ("n", b"shop")))
    tables = [{"data_collection": name, "event_count": 1} for name in ("d.t", "d.u")]
    end, same, empty = (
        Record("x", _text({"id": "1-1-1"}), _text({"status": "END", "id": "1-1-1"} | counts))
        for counts in (
            {"event_count": 2, "data_collections": tables},
            {"event_count": 2, "data_collections": tables[::-1]},
            {"event_count": 0, "data_collections": []},
        )
    )
    other = Record("t", None, row.value, headers=(("k", b'{"id": 2}'), ("n", b"shop")))
    assert set(_compared_all([row, end], [other, same]).counts) == {
        Difference("header", "k", "", Kind.DIFFERS)
    }
    assert set(_compared_all([row, empty], [row]).counts) == {
        Difference("transaction", "END", "", Kind.ONLY_DEBEZIUM)
    }
    assert set(_compared_all([row], [row, end]).counts) == {
        Difference("transaction", "END with events", "", Kind.ONLY_MILLRACE)
    }


def test_avro_is_read_in_the_form_of_connect() -> None:
    """Properties of Avro alone have other names; bytes are base64."""
    column = {"type": "bytes", "logicalType": "decimal", "precision": 4, "connect.name": "D"}
    schema = {
        "type": "record",
        "name": "Value",
        "fields": [{"name": "a", "type": ["null", column], "default": None}],
        "connect.version": 2,
    }
    octets = io.BytesIO()
    fastavro.schemaless_writer(octets, fastavro.parse_schema(schema), {"a": None})
    frame = b"\0\0\0\0\7"
    parse = avro_parts({7: schema}.__getitem__)
    read, value = parse(frame + octets.getvalue())
    assert (read["avro name"], read["version"], value) == ("Value", 2, {"a": None})
    assert read["fields"] == [
        {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": 4,
            "name": "D",
            "optional": "null first",
            "avro default": None,
            "field": "a",
        }
    ]
    assert parse(frame + b"\2\2\x7d")[1] == {"a": "fQ=="}
