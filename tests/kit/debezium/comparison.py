"""Compares two streams of Debezium records field by field.

Records are paired by table, source transaction and operation, in order; a tombstone belongs to the record before it.
The begin and the end of a transaction are paired by its ID.
Each pair gives leaves: a path in the record and a value. A leaf that differs makes a ``Difference``, in which the
column's name is replaced by its type, so that one entry is for all columns of a type.

    part    record, key, value, key schema, value schema, header; of begins and ends: transaction, and these after it
    field   `source.ts_us`, `row.COLUMN` in either image, `row.COLUMN.@default`; `@` begins a property of a schema
    kind    differs, only Debezium, only Millrace
    type    of the column, or BEGIN or END
    values  of a column, a list of columns, a begin or an end: Debezium's and Millrace's; one that is long is cut

Numbers are equal if they have the same value and sign (1E+2 is 100.0), texts if they have the same characters.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import TypeAlias

from tests.kit.debezium.connectors import Record
from tests.kit.debezium.parts import AVRO_FRAME, Json, Parse
from tests.kit.side_by_side import Result

Table: TypeAlias = tuple[str, str]
TypeOf: TypeAlias = Callable[[Table, str], str]  # of a column
_IMAGES = ("before", "after")
_COLUMN = "COLUMN"
_FIELDS = "fields"
_TOMBSTONE = "tombstone"
_TRANSACTIONS = ("", "transactions")
SHOWN_MAX = 40


class Kind(StrEnum):
    DIFFERS = "differs"
    ONLY_DEBEZIUM = "only Debezium"
    ONLY_MILLRACE = "only Millrace"


@dataclass(frozen=True, slots=True, order=True)
class Difference:
    """``type``: of a column, a begin or an end. ``values``: of these and of lists of columns. Else empty."""

    part: str
    field: str
    type: str
    kind: Kind
    values: str = ""

    def __str__(self) -> str:
        return f"{self.part} {self.field} [{self.type}] {self.kind} {self.values}"


@dataclass(frozen=True, slots=True)
class _Parsed:
    """A record of a table. ``place``: what pairs it with the other side's."""

    table: Table
    place: tuple[object, ...]
    key: Json
    value: Json
    key_schema: Json
    value_schema: Json
    headers: Json


@dataclass(frozen=True, slots=True)
class Side:
    """The records of one product, and how their keys and values are read."""

    records: Sequence[Record]
    parse: Parse


def compare(debezium: Side, millrace: Side, type_of: TypeOf) -> Result[Difference]:
    """The fields of all records of tables and of transactions."""
    result = Result[Difference]()
    theirs, ours = _by_table(debezium), _by_table(millrace)
    for table in sorted(theirs.keys() | ours.keys()):
        _compare_table(result, theirs.get(table, {}), ours.get(table, {}), type_of)
    return result


def _by_table(side: Side) -> dict[Table, dict[tuple[object, ...], _Parsed]]:
    """The records by table and place, in the stream's order. Begins and ends are of ``_TRANSACTIONS``."""
    tables: dict[Table, dict[tuple[object, ...], _Parsed]] = {}
    last: dict[str, _Parsed] = {}
    numbers: Counter[tuple[object, ...]] = Counter()
    for record in side.records:
        key_schema, key = side.parse(record.key)
        value_schema, value = side.parse(record.value)
        if value is None:
            before = last.get(record.topic)
            assert before is not None, f"{record.topic} begins with a tombstone"
            table, place = before.table, (*before.place, _TOMBSTONE)
        elif "source" in value and "op" in value:
            source = value["source"]
            table = (source["db"], source["table"])
            place = (source["gtid"], value["op"])
            numbers[table, place] += 1
            place = (*place, numbers[table, place])
        elif "status" not in value:
            continue
        else:
            table, place = _TRANSACTIONS, (value["id"], value["status"])
            if value["data_collections"] is not None:  # in any order
                value["data_collections"].sort(key=lambda each: each["data_collection"])
        headers = {name: _header(octets, side.parse) for name, octets in record.headers}
        parsed = _Parsed(table, place, key, value, key_schema, value_schema, headers)
        last[record.topic] = parsed
        places = tables.setdefault(table, {})
        assert place not in places, f"{record.topic} has two records of {place}"
        places[place] = parsed
    return tables


def _header(octets: bytes, parse: Parse) -> Json:
    """A key in Avro, JSON, or a text."""
    if octets.startswith(AVRO_FRAME):
        return parse(octets)[1]
    text = octets.decode()
    try:
        return json.loads(text, parse_float=Decimal)
    except ValueError:
        return text


def _compare_table(
    result: Result[Difference],
    theirs: Mapping[tuple[object, ...], _Parsed],
    ours: Mapping[tuple[object, ...], _Parsed],
    type_of: TypeOf,
) -> None:
    for side, others, kind in (
        (theirs, ours, Kind.ONLY_DEBEZIUM),
        (ours, theirs, Kind.ONLY_MILLRACE),
    ):
        for place, record in side.items():
            if place not in others:
                result.add(_only_one(record, kind, type_of), f"{record.key} {record.value}"[:300])
    both = [place for place in theirs if place in ours]
    order = [place for place in ours if place in theirs]
    if both != order:
        result.add(Difference("record", "order", "", Kind.DIFFERS), f"{both[:5]} {order[:5]}")
    for place in both:
        _compare_record(result, theirs[place], ours[place], type_of)


def _only_one(record: _Parsed, kind: Kind, type_of: TypeOf) -> Difference:
    """One side has the record; of an end it matters whether the transaction has events."""
    if record.table == _TRANSACTIONS:
        has_events = bool(record.value["data_collections"])
        return Difference(
            "transaction", f"{record.place[1]}{' with events' * has_events}", "", kind
        )
    op = _TOMBSTONE if record.place[-1] == _TOMBSTONE else str(record.place[1])
    return Difference("record", op, type_of(record.table, ""), kind)


def _compare_record(
    result: Result[Difference], their: _Parsed, our: _Parsed, type_of: TypeOf
) -> None:
    result.records += 1
    where = f"{'.'.join(their.table)} {their.place[1]}"
    prefix = "transaction " if their.table == _TRANSACTIONS else ""
    parts = (
        ("key", _key_leaves(their.key), _key_leaves(our.key)),
        ("value", _value_leaves(their.value), _value_leaves(our.value)),
        ("key schema", _schema_leaves(their.key_schema), _schema_leaves(our.key_schema)),
        ("value schema", _schema_leaves(their.value_schema), _schema_leaves(our.value_schema)),
        ("header", _header_leaves(their.headers), _header_leaves(our.headers)),
    )
    for name, theirs, ours in parts:
        part = prefix + name
        their_leaves, our_leaves = dict(theirs), dict(ours)
        for path in their_leaves.keys() | our_leaves.keys():
            result.fields += 1
            if path not in our_leaves:
                kind, values = Kind.ONLY_DEBEZIUM, _shown(their_leaves[path])
            elif path not in their_leaves:
                kind, values = Kind.ONLY_MILLRACE, _shown(our_leaves[path])
            elif not _equal(their_leaves[path], our_leaves[path]):
                kind = Kind.DIFFERS
                values = f"{_shown(their_leaves[path])} / {_shown(our_leaves[path])}"
            else:
                continue
            at = _column_at(part, path)
            column = type_of(their.table, path[at]) if at >= 0 else str(their.place[1])
            result.add(_difference(part, path, kind, (column, values)), f"{where}: {values}")


def _shown(value: object) -> str:
    text = str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


Path: TypeAlias = tuple[str, ...]
Leaves: TypeAlias = Iterable[tuple[Path, object]]


def _difference(part: str, path: Path, kind: Kind, of: tuple[str, str]) -> Difference:
    """``path`` with the column's name replaced. ``of``: the type of that column, and its values."""
    shown, at = list(path), _column_at(part, path)
    if at < 0:
        is_transaction = part == "transaction value"
        has_values = is_transaction or shown[-1].endswith(_FIELDS)
        return Difference(part, ".".join(shown), of[0] * is_transaction, kind, of[1] * has_values)
    shown[:1] = shown[:1] if at == 0 else ["row"]
    shown[at] = _COLUMN
    return Difference(part, ".".join(shown), of[0], kind, of[1])


def _column_at(part: str, path: Path) -> int:
    """The place of a column's name in a path; -1 if there is none."""
    if part.startswith(("header", "transaction")):
        return -1
    at = 0 if part.startswith("key") else 1
    if len(path) <= at or path[at].startswith("@") or (at == 1 and path[0] not in _IMAGES):
        return -1
    return at


def _key_leaves(key: Json) -> Leaves:
    if key is None:
        yield ("@key",), None
        return
    yield ("@fields",), tuple(key)
    yield from _walk(key, ())


def _value_leaves(value: Json) -> Leaves:
    if value is None:
        yield (), None
        return
    yield ("@fields",), tuple(value)
    for image in _IMAGES:
        if value.get(image) is not None:
            yield (f"@{image} fields",), tuple(value[image])
    yield from _walk(value, ())


def _header_leaves(headers: Json) -> Leaves:
    for name, value in headers.items():
        yield (name,), value


def _walk(value: Json, path: Path) -> Iterator[tuple[Path, object]]:
    """The leaves of nested objects; a null and an array are leaves."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _walk(inner, (*path, name))
    else:
        yield path, value


def _schema_leaves(schema: Json, path: Path = ()) -> Leaves:
    """The properties of a schema and, under their names, of its fields."""
    if schema is None:
        return
    for name, value in schema.items():
        if name == "fields":
            yield (*path, "@fields"), tuple(inner["field"] for inner in value)
            for inner in value:
                yield from _schema_leaves(inner, (*path, inner["field"]))
        elif name == "parameters":
            yield from (((*path, "@parameters", each), text) for each, text in value.items())
        elif name != "field":
            yield (*path, f"@{name}"), value


def _equal(one: object, other: object) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | Decimal) and isinstance(other, int | Decimal):
        both = Decimal(one), Decimal(other)
        return both[0] == both[1] and both[0].is_signed() == both[1].is_signed()
    return type(one) is type(other) and one == other
