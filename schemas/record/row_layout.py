"""Parses an ``Envelope`` schema: the table's structure and the branches of its columns, in the order of the bytes.

This is all that the apply kernel and ``millrace topic tail`` need to decode rows. They take a ``RowLayout`` and never
read the schema's properties.

Guarantees: ``parse_row_layout(envelope_schema(s, t).text)`` restores ``s`` and ``t``. A text that is not such a schema
raises Fatal MR-6010. A key needs no layout: it consists of the columns of ``table.primary_key``, in that order, without
null.
"""

from dataclasses import dataclass
from typing import Any, NoReturn

from millrace.errors import Fatal
from millrace.schemas.json_input import load_json
from millrace.schemas.record.avro_schema import Json, column_branches
from millrace.schemas.record.names import escape_name
from millrace.schemas.table.structure import Column, ColumnType, TableSchema, TextEncoding, TypeCode

PRECISION_MAX, SCALE_MAX = 65, 38  # of a DECIMAL, on both servers


@dataclass(frozen=True, slots=True)
class RowLayout:
    """``branches[i]`` are those of ``table.columns[i]`` ("null" first if nullable), ``fields[i]`` is its Avro name.

    ``hidden``: places of columns that the record has, and a view leaves out. A parsed layout has none.
    """

    set_name: str
    table: TableSchema
    fields: tuple[str, ...]
    branches: tuple[tuple[str, ...], ...]
    hidden: frozenset[int] = frozenset()

    @classmethod
    def of(cls, set_name: str, table: TableSchema) -> "RowLayout":
        """The layout that ``envelope_schema`` of the same arguments describes."""
        return cls(
            set_name,
            table,
            tuple(escape_name(column.name) for column in table.columns),
            tuple(column_branches(column) for column in table.columns),
        )


def parse_row_layout(text: str) -> RowLayout:
    """From the text of an ``Envelope`` schema; Fatal MR-6010."""
    row = _row_definition(text)
    columns = tuple(_column(field) for field in _list(row, "fields"))
    indexes = {column.name: index for index, column in enumerate(columns)}
    key = [_known(indexes, name) for name in _list(row, "millrace.primary_key")]
    prefixes = row.get("millrace.primary_key_prefixes") or [0] * len(key)
    if not isinstance(prefixes, list) or len(prefixes) != len(key):
        _refuse("the prefixes don't match the primary key")
    omitted = row.get("millrace.omitted") or []
    if not isinstance(omitted, list):
        _refuse("the omitted columns are not a list")
    table = TableSchema(
        _text(row, "millrace.database"),
        _text(row, "millrace.table"),
        columns,
        tuple(key),
        tuple(_whole(prefix) for prefix in prefixes),
        tuple(map(_name, omitted)),
    )
    layout = RowLayout.of(_text(row, "millrace.set"), table)
    written = tuple(_branches(field) for field in _list(row, "fields"))
    if layout.branches != written:
        _refuse(f"the types of {table.full_name} are {written}, not {layout.branches}")
    return layout


def _row_definition(text: str) -> "dict[str, Json]":
    try:
        envelope: Any = load_json(text)
        row = envelope["fields"][0]["type"][1]
    except (ValueError, LookupError, TypeError):
        _refuse("it is not an envelope")
    if not isinstance(row, dict) or envelope["fields"][0].get("name") != "before":
        _refuse("it has no row")
    return row


def _column(field: Json) -> Column:
    if not isinstance(field, dict):
        _refuse("a field is not an object")
    code = _whole(field.get("millrace.code"))
    if code not in _CODES:
        _refuse(f"type code {code} is unknown")
    charset, labels = field.get("millrace.charset"), field.get("millrace.labels") or []
    type_ = ColumnType(
        TypeCode(code),
        _whole(field.get("millrace.parameter", 0)),
        field.get("millrace.unsigned") is True,
        TextEncoding(charset, _whole(field.get("millrace.collation")))
        if isinstance(charset, str)
        else None,
        tuple(_label(label) for label in labels) if isinstance(labels, list) else (),
        _whole(field.get("millrace.extent", 0)),
    )
    if type_.precision > PRECISION_MAX or type_.scale > SCALE_MAX:
        _refuse(f"a DECIMAL({type_.precision},{type_.scale})")
    nullable = _branches(field)[:1] == ("null",)
    return Column(
        _text(field, "millrace.name"), type_, nullable, field.get("millrace.visible") is not False
    )


_CODES = frozenset(map(int, TypeCode))


def _branches(field: Json) -> tuple[str, ...]:
    written = field.get("type") if isinstance(field, dict) else None
    branches = written if isinstance(written, list) else [written]
    return tuple(
        str(branch.get("type") if isinstance(branch, dict) else branch) for branch in branches
    )


def _list(holder: "dict[str, Json]", name: str) -> "list[Json]":
    found = holder.get(name)
    return found if isinstance(found, list) else _refuse(f"{name} is missing")


def _text(holder: "dict[str, Json]", name: str) -> str:
    found = holder.get(name)
    return found if isinstance(found, str) else _refuse(f"{name} is missing")


def _whole(value: Json) -> int:
    return value if isinstance(value, int) else _refuse(f"{value!r} is not a number")


def _label(value: Json) -> str | None:
    return (
        value if value is None or isinstance(value, str) else _refuse(f"{value!r} is not a label")
    )


def _name(value: Json) -> str:
    return value if isinstance(value, str) else _refuse(f"{value!r} is not a name")


def _known(indexes: dict[str, int], name: Json) -> int:
    if not isinstance(name, str) or name not in indexes:
        _refuse(f"the key column {name!r} is not in the row")
    return indexes[name]


def _refuse(why: str) -> NoReturn:
    raise Fatal("MR-6010", f"not a row schema of Millrace: {why}")
