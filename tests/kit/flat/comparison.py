"""Compares records of Maxwell or Canal with Millrace's, field by field.

Records are paired by table and place: the source transaction, and the row's number in it. A leaf that differs makes a
``Difference``, in which the column's name is replaced by its type, so that one entry is for all columns of a type.

    field   `key.pk`, `xid`, `data.COLUMN`, `old.COLUMN`, `mysqlType.COLUMN`; `@` begins a property, such as the order
    kind    differs, only the judge, only Millrace
    values  the judge's and Millrace's; one that is long is cut

Numbers are equal if they have the same value and sign (1E+2 is 100.0), texts if they have the same characters, types of
Canal if only the case differs.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any, TypeAlias

from tests.kit.debezium.script import TYPES
from tests.kit.flat.jvm import Judged
from tests.kit.side_by_side import Result

Json: TypeAlias = Any
TypeOf: TypeAlias = Callable[[tuple[str, str], str], str]  # of a column
Place: TypeAlias = tuple[str, str, str, int]
Path: TypeAlias = tuple[str, ...]
_COLUMN = "COLUMN"
_BY_COLUMN = ("data", "old", "mysqlType", "sqlType")
SHOWN_MAX = 60


class Kind(StrEnum):
    DIFFERS = "differs"
    ONLY_JUDGE = "only the judge"
    ONLY_MILLRACE = "only Millrace"


@dataclass(frozen=True, slots=True, order=True)
class Difference:
    """``type`` and ``values``: of a column, or of the table if the record is missing."""

    field: str
    type: str
    kind: Kind
    values: str = ""

    def __str__(self) -> str:
        return f"{self.field} [{self.type}] {self.kind} {self.values}"


def compare(
    judge: Iterable[Judged], millrace: Iterable[Judged], type_of: TypeOf
) -> Result[Difference]:
    """The fields of all records."""
    result = Result[Difference]()
    theirs, ours = _by_place(judge), _by_place(millrace)
    for side, others, kind in (
        (theirs, ours, Kind.ONLY_JUDGE),
        (ours, theirs, Kind.ONLY_MILLRACE),
    ):
        for place, record in side.items():
            if place not in others:
                types = _missing_type(record_table(record), type_of)
                result.add(Difference("record", types, kind), f"{record.key} {record.value}"[:200])
    for place in sorted(theirs.keys() & ours.keys()):
        _compare_record(result, theirs[place], ours[place], type_of)
    return result


def _missing_type(table: tuple[str, str], type_of: TypeOf) -> str:
    """The type of a table of one type; of another, its name."""
    return type_of(table, "v") if table[0] == TYPES else table[1]


def record_table(record: Judged) -> tuple[str, str]:
    """Its database and table."""
    return record.database, record.table


def _by_place(records: Iterable[Judged]) -> dict[Place, Judged]:
    """By table and place in the source transaction among the rows of the table."""
    numbers: Counter[tuple[str, str, str]] = Counter()
    places: dict[Place, Judged] = {}
    for record in records:
        name = (record.database, record.table, record.place[0])
        places[*name, numbers[name]] = record
        numbers[name] += 1
    return places


def _compare_record(
    result: Result[Difference], their: Judged, our: Judged, type_of: TypeOf
) -> None:
    result.records += 1
    table = record_table(their)
    leaves = [dict(_leaves(each)) for each in (their, our)]
    if not their.key:  # Canal has none
        leaves[1] = {path: leaf for path, leaf in leaves[1].items() if path[0] != "key"}
    for path in sorted(leaves[0].keys() | leaves[1].keys()):
        result.fields += 1
        if path not in leaves[1]:
            kind, values = Kind.ONLY_JUDGE, _shown(leaves[0][path])
        elif path not in leaves[0]:
            kind, values = Kind.ONLY_MILLRACE, _shown(leaves[1][path])
        elif not _equal(leaves[0][path], leaves[1][path]):
            kind = Kind.DIFFERS
            values = f"{_shown(leaves[0][path])} / {_shown(leaves[1][path])}"
        else:
            continue
        shown = path[0] if len(path) == 1 else f"{path[0]}.{_COLUMN}"
        type_ = type_of(table, path[1]) if len(path) > 1 else ""
        example = f"{'.'.join(table)} {their.place}: {values}"
        result.add(Difference(shown, type_, kind, values if len(path) > 1 else ""), example)


def _leaves(record: Judged) -> Iterator[tuple[Path, object]]:
    value: Mapping[str, Json] = json.loads(record.value, parse_float=Decimal)
    yield from _key_leaves(record.key)
    yield ("@fields",), tuple(value)
    for name, inner in value.items():
        if isinstance(inner, list) and name in _BY_COLUMN:
            (inner,) = inner
        if name in _BY_COLUMN and isinstance(inner, dict):
            yield (f"@{name}",), tuple(sorted(inner))
            for column, leaf in inner.items():
                yield (name, column), leaf.lower() if name == "mysqlType" else leaf
        else:
            yield (name,), inner


def _key_leaves(text: str) -> Iterator[tuple[Path, object]]:
    if not text:
        yield ("@key",), None
        return
    key = json.loads(text, parse_float=Decimal)
    if isinstance(key, list):
        yield ("@key",), [*key[:2], [sorted(each) for each in key[2]]]
        key = {name: value for each in key[2] for name, value in each.items()}
    else:
        yield ("@key",), tuple(key)
    for name, value in key.items():
        if name.startswith("pk."):
            name = name[3:]
        elif name in ("database", "table", "_uuid"):
            continue
        yield ("key", name), value


def _shown(value: object) -> str:
    text = (
        str(value)
        if isinstance(value, Decimal)
        else json.dumps(value, ensure_ascii=False, default=str)
    )
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


def _equal(one: object, other: object) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | Decimal) and isinstance(other, int | Decimal):
        both = Decimal(one), Decimal(other)
        return both[0] == both[1] and both[0].is_signed() == both[1].is_signed()
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[each], other[each]) for each in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return type(one) is type(other) and one == other
