"""The oracle of published topics passes what is right, and names every harm."""

from dataclasses import replace
from typing import Any

import pytest

from tests.oracle.published import Definition, Sent, View, compare, murmur2
from tests.oracle.record import Change

DOCUMENT: dict[str, Any] = {
    "task": "public",
    "tables": [
        {
            "from": "shop.*",
            "where": "few",
            "columns": {"drop": ["note"], "rename": {"id": "number"}, "add": {"v": 1}},
            "mask": {"name": "truncate(1)"},
        }
    ],
    "topics": "{task}.{table}",
    "partitions": 3,
    "records": {"format": "json"},
}
ROW = {"id": 7, "name": "Ada", "note": "x", "amount": 1}
LATER = 5
VIEWS = (
    View(Definition(0, DOCUMENT), {"few": lambda row: row["amount"] < 5}),
    View(
        Definition(LATER, {**DOCUMENT, "records": {"format": "debezium-json"}}),
        {"few": lambda row: row["amount"] < 5},
    ),
)


def _view(seq: int) -> View:
    return VIEWS[seq >= LATER]


def _sent(seq: int, before: dict[str, Any] | None, after: dict[str, Any] | None) -> list[Sent]:
    return list(_view(seq).sent(seq, Change("shop", "t", "u", before, after), ("id",)))


def _lines(records: list[Sent]) -> list[dict[str, Any]]:
    return [
        {
            "topic": one.topic,
            "partition": one.partition,
            "key": one.key,
            "value": one.value,
            "headers": {
                "seq": str(one.seq),
                "part": str(one.part),
                **dict([one.moved] if one.moved[0] else []),
            },
        }
        for one in records
    ]


def _records() -> list[Sent]:
    moved = ROW | {"id": 8}
    changes = [(None, ROW), (ROW, ROW | {"amount": 9}), (ROW | {"amount": 9}, ROW), (ROW, moved)]
    return [
        record
        for begin in (1, LATER)
        for seq, images in enumerate(changes, begin)
        for record in _sent(seq, *images)
    ]


def test_hash_is_that_of_kafkas_java_client() -> None:
    """Two vectors of Kafka's own test."""
    assert murmur2(b"21") == -973932308 & 0x7FFFFFFF
    assert murmur2(b"a-little-bit-long-string") == -985981536 & 0x7FFFFFFF


def test_records_of_a_change_follow_the_documented_formats() -> None:
    """A row that enters or leaves the view, and one whose key changes."""
    records = _records()
    parts = [(one.seq, one.part, one.value is None) for one in records]
    plain = [(1, 0, False), (2, 0, True), (3, 0, False), (4, 0, True), (4, 1, False)]
    event = [(5, 0, False), (6, 0, False), (6, 1, True), (7, 0, False)]
    assert parts == [*plain, *event, (8, 0, False), (8, 1, True), (8, 2, False)]
    assert records[0].key == '{"number":7}'
    assert records[0].value == '{"number":7,"name":"A","amount":1,"v":1}'
    assert compare(records, _lines(records), _view) == len(records)


@pytest.mark.parametrize("harm", ["missing", "repeated", "later", "header", "value", "partition"])
def test_each_harm_is_named(harm: str) -> None:
    """Also a row of the right content under another definition."""
    records = _records()
    seen = list(records)
    match harm:
        case "missing":
            del seen[3]
        case "repeated":
            seen.insert(4, seen[3])
        case "later":
            seen[3], seen[4] = seen[4], seen[3]
            seen[3] = replace(seen[3], partition=seen[4].partition)
        case "header":
            seen[-1] = replace(seen[-1], moved=("", ""))
        case "value":
            seen[0] = replace(seen[0], value='{"id":7,"name":"Ada","note":"x","amount":1}')
        case _:
            seen[0] = replace(seen[0], partition=(seen[0].partition + 1) % 3)
    with pytest.raises(AssertionError):
        compare(records, _lines(seen), _view)
