"""Compares Debezium's topic of schema changes and its heartbeats with Millrace's.

A statement of Millrace is paired with Debezium's records of the same source transaction, and a structure with the last
one that Debezium has of the table before the first row of that transaction. Schemas of Connect are compared whole.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tests.kit.debezium.comparison import Side
from tests.kit.side_by_side import Result

Json: TypeAlias = Any
_CHANGES = "tableChanges"


@dataclass(frozen=True, slots=True, order=True)
class Difference:
    """``field`` of a statement, a structure, a column or a schema; ``values``: Debezium's and Millrace's."""

    field: str
    values: str

    def __str__(self) -> str:
        return f"{self.field} {self.values}"


def compare_changes(debezium: Side, millrace: Side, databases: Sequence[str]) -> Result[Difference]:
    """The fields of all statements and structures."""
    result = Result[Difference]()
    theirs = [_parsed(record.key, record.value, debezium) for record in debezium.records]
    ours = [_parsed(record.key, record.value, millrace) for record in millrace.records]
    statements = _by_gtid(one for one in theirs if one.is_change)
    own = [one for one in ours if one.is_change]
    for gtid, pair in _by_gtid(one for one in own if not one.has_structure).items():
        _compare_statement(result, statements.pop(gtid, []), pair)
    for gtid, rest in statements.items():
        for one in rest:
            if one.value["databaseName"] in databases:
                ddl = " ".join(str(one.value["ddl"]).split()[:2])
                result.add(
                    Difference("record", f"only Debezium: {ddl}"), f"{gtid}: {one.value['ddl']}"
                )
    structures: dict[str, Json] = {}
    at_row: dict[str, dict[str, Json]] = {}
    for one in theirs:
        if one.is_change:
            for change in one.value[_CHANGES]:
                structures[change["id"]] = change["table"]
        elif one.gtid:
            at_row.setdefault(one.gtid, dict(structures))
    for one in own:
        if one.has_structure:
            _compare_structure(result, at_row.get(one.gtid, {}), one)
    return result


def compare_heartbeats(debezium: Side, millrace: Side) -> Result[Difference]:
    """The first heartbeat of each, but for the time."""
    result = Result[Difference]()
    pairs = [
        _parsed(side.records[0].key, side.records[0].value, side) for side in (debezium, millrace)
    ]
    their, our = pairs
    for field, left, right in (
        ("heartbeat: key", their.key, our.key),
        ("heartbeat: fields", sorted(their.value), sorted(our.value)),
        ("heartbeat: schemas", their.schemas, our.schemas),
    ):
        _compare(result, field, left, right, "first")
    return result


@dataclass(frozen=True, slots=True)
class _Parsed:
    schemas: Json
    key: Json
    value: Json

    @property
    def is_change(self) -> bool:
        return self.value is not None and _CHANGES in self.value

    @property
    def has_structure(self) -> bool:
        return any(change["table"] for change in self.value[_CHANGES])

    @property
    def gtid(self) -> str:
        source: Mapping[str, Json] = (self.value or {}).get("source") or {}
        return source.get("gtid") or ""


def _parsed(key: bytes | None, value: bytes | None, side: Side) -> _Parsed:
    (key_schema, key_plain), (value_schema, value_plain) = side.parse(key), side.parse(value)
    return _Parsed((key_schema, value_schema), key_plain, value_plain)


def _by_gtid(records: Iterable[_Parsed]) -> dict[str, list[_Parsed]]:
    by_gtid: dict[str, list[_Parsed]] = {}
    for one in records:
        by_gtid.setdefault(one.gtid, []).append(one)
    return by_gtid


def _compare_statement(
    result: Result[Difference], theirs: list[_Parsed], ours: list[_Parsed]
) -> None:
    (our,) = ours
    result.records += 1
    example = str(our.value["ddl"])
    if not theirs:
        result.add(Difference("record", "only Millrace"), example)
        return
    their = theirs[0]
    _compare(result, "schemas", their.schemas, our.schemas, example)
    _compare(result, "key", their.key, our.key, example)
    for name in ("ts_ms", "databaseName", "schemaName", "ddl"):
        _compare(result, name, their.value[name], our.value[name], example)
    for name in {**their.value["source"], **our.value["source"]}:
        left, right = (one.value["source"].get(name, "missing") for one in (their, our))
        _compare(result, f"source.{name}", left, right, example, is_shown=name == "snapshot")
    _compare(result, "records of a statement", len(theirs), len(ours), example)
    left, right = (
        sorted((change["type"], change["id"]) for one in side for change in one.value[_CHANGES])
        for side in (theirs, ours)
    )
    _compare(result, "types and ids", left, right, example)


def _compare_structure(
    result: Result[Difference], structures: Mapping[str, Json], our: _Parsed
) -> None:
    result.records += 1
    (change,) = our.value[_CHANGES]
    their, table = structures.get(change["id"]), change["table"]
    if their is None:
        result.add(Difference("structure", "only Millrace"), change["id"])
        return
    for name in ("defaultCharsetName", "primaryKeyColumnNames", "comment"):
        _compare(result, f"table.{name}", their[name], table[name], change["id"])
    lefts, rights = ({one["name"]: one for one in side["columns"]} for side in (their, table))
    _compare(result, "table.columns", list(lefts), list(rights), change["id"])
    for name in lefts.keys() & rights.keys():
        left, right = lefts[name], rights[name]
        for field in {**left, **right}:
            values = [one.get(field, "missing") for one in (left, right)]
            example = f"{change['id']}.{name} {left['typeExpression']}({left['length']})"
            _compare(result, f"column.{field}", values[0], values[1], example, is_shown=True)


def _compare(
    result: Result[Difference],
    field: str,
    left: Json,
    right: Json,
    example: str,
    *,
    is_shown: bool = False,
) -> None:
    result.fields += 1
    if left != right:
        values = f"{left} / {right}"
        result.add(
            Difference(field, values[:80] if is_shown else ""), f"{example}: {values}"[:1500]
        )


def shown(result: Result[Difference], differences: Iterable[Difference]) -> Iterator[str]:
    """A line for each of these differences."""
    for each in differences:
        yield f"{each} x{result.counts[each]}: {result.examples[each][0]}"
