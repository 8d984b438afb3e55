"""Records of Maxwell's and Canal's formats equal what Python's own libraries make of the values, for every type."""

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.schemas.table.structure import Column, TableSchema
from millrace.schemas.view.format_options import DecimalMode, FormatName, FormatOptions, KeyChanges
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import RecordStream
from tests.kit.format_cases import CASES
from tests.kit.format_rows import Sent, sent

Row = Mapping[str, object]
Shown = dict[str, object]

MAXWELL = replace(FormatOptions.of(FormatName.MAXWELL_JSON), decimal=DecimalMode.STRING)
CANAL = FormatOptions.of(FormatName.CANAL_JSON)
TABLE: TableSchema = table(
    "shop", "t", integer("id"), *(Column(name, case.type, True) for name, case in CASES.items())
)
rows: "st.SearchStrategy[Row]" = st.fixed_dictionaries(
    {"id": st.integers(0, 3)}
    | {name: st.one_of(st.none(), case.values) for name, case in CASES.items()}
)
changes = st.lists(st.tuples(st.sampled_from("cud"), rows, rows), min_size=1, max_size=4)


def _point(value: object) -> tuple[float, ...]:
    assert isinstance(value, bytes)
    return struct.unpack_from("<2d", value, 9)


def _digits(value: object) -> str:
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def _hex(value: object) -> str:
    assert isinstance(value, bytes)
    return value.hex()


def _latin1(value: object) -> str:
    assert isinstance(value, bytes)
    return value.decode("latin1")


def _bits(value: object) -> str:
    assert isinstance(value, bytes)
    return str(int.from_bytes(value, "big"))


_MAXWELL: Mapping[str, Callable[[object], object]] = {
    "set": lambda value: str(value).split(",") if value else [],
    "json": lambda value: json.loads(str(value)),
    "geometry": _hex,  # bytes that are no geometry
    "point": _point,
}
_CANAL: Mapping[str, Callable[[object], object]] = {
    "bit": _bits,
    "bits": _bits,
    "binary": _latin1,
    "geometry": _latin1,
    "point": _latin1,
    "vector": _latin1,
    "enum": lambda value: str(["a", 'b"'].index(str(value)) + 1),
    "set": lambda value: "3" if value else "0",
    "json": CASES["json"].in_json,
}


def _maxwell(name: str, value: object) -> object:
    if name == "id" or value is None:
        return value
    return _MAXWELL.get(name, CASES[name].in_json)(value) if name in CASES else value


def _canal(name: str, value: object) -> object:
    if value is None:
        return None
    if isinstance(value, float):
        return float(CASES[name].in_json(value))  # type: ignore[arg-type]  # a number
    return _CANAL.get(name, _digits)(value)


def _read(options: FormatOptions, record: Sent) -> tuple[str, Shown, Shown]:
    """Type in lower case, data, old."""
    value = record.value
    assert isinstance(value, dict)
    data, old = value["data"], value.get("old") or {}
    if options is not MAXWELL:
        (data,) = data
        old = old[0] if old else {}
    parse = {"point": _coordinates} if options is MAXWELL else {"float": float, "double": float}
    data, old = (
        {
            name: parse[name](each) if name in parse and each is not None else each
            for name, each in row.items()
        }
        for row in (data, old)
    )
    return str(value["type"]).lower(), data, old


def _coordinates(text: str) -> tuple[float, ...]:
    return tuple(map(float, text.removeprefix("POINT (").removesuffix(")").split()))


@pytest.mark.parametrize(
    ("options", "show"), [(MAXWELL, _maxwell), (CANAL, _canal)], ids=["maxwell", "canal"]
)
@settings(deadline=None, max_examples=20)
@given(drawn=changes)
def test_records_equal_an_independent_conversion(
    options: FormatOptions,
    show: Callable[[str, object], object],
    drawn: list[tuple[str, Row, Row]],
) -> None:
    """``data`` has all values; ``old`` those before of exactly the columns that changed."""
    stream = RecordStream()
    expected = []
    for op, before, after in drawn:
        row = before if op == "d" else after
        old: Row = {}
        if op == "c":
            stream.insert(TABLE, after)
        elif op == "u":
            stream.update(TABLE, before, after)
            old = {name: value for name, value in before.items() if not _same(value, after[name])}
        else:
            stream.delete(TABLE, before)
        word = {"c": "insert", "u": "update", "d": "delete"}[op]
        shown = [{name: show(name, value) for name, value in each.items()} for each in (row, old)]
        expected.append((word, *shown))
    assert [_read(options, each) for each in sent(options, TABLE, stream)] == expected


def _same(one: object, other: object) -> bool:
    """Equal, also in their sign if they are 0."""
    return repr(one) == repr(other)


@settings(deadline=None, max_examples=10)
@given(drawn=changes)
def test_split_updates_have_both_rows(drawn: list[tuple[str, Row, Row]]) -> None:
    """An update that changes the key is a delete of the whole row before and an insert of the one after."""
    options = replace(CANAL, key_changes=KeyChanges.DELETE_AND_INSERT)
    stream = RecordStream()
    moved = [(before, after) for _, before, after in drawn if before["id"] != after["id"]]
    for before, after in moved:
        stream.update(TABLE, before, after)
    records = [_read(options, each) for each in sent(options, TABLE, stream)] if moved else []
    assert records == [
        (word, {name: _canal(name, value) for name, value in row.items()}, {})
        for pair in moved
        for word, row in zip(("delete", "insert"), pair, strict=True)
    ]
