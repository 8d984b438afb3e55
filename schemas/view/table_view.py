"""A view applied to the structure of one table: a pure function, whose result kernels execute.

    TableView
      name        database and table in the view
      condition   the rows that are in it; None for all
      columns     of the view's rows, in order: those of the table that pass, then the added ones
      key         places of the primary key's columns in ``columns``; () without a primary key

Rows without a generated column that the server did not log (``TableSchema.omitted``) are without it in the view, too.

Refused, each with the place in the rule, what was found and what is wanted: a column that the table does not have (a
misspelled mask would publish the values), two columns of one name, a key without one of its columns, a mask that could
make two keys equal or that the column's type has no value for, a condition whose result is not certain.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from millrace.schemas.table.collation_ids import exact_collation
from millrace.schemas.table.structure import (
    BLOB_CODES,
    INTEGER_CODES,
    STRING_CODES,
    Column,
    ColumnType,
    TableSchema,
    TextEncoding,
    TypeCode,
)
from millrace.schemas.view.collation import CollationWeights
from millrace.schemas.view.condition import Condition, compile_condition
from millrace.schemas.view.expression import Refused, parse
from millrace.schemas.view.view import Mask, MaskKind, Match, TableRule, View

UTF8MB4_BIN, ASCII_BIN = 46, 65  # the ids of the collations
ADDED_CHARACTERS = 255  # a VARCHAR for the texts of added columns, unless one is longer
HMAC_CHARACTERS = 64  # hex

_WITH_EMPTY_VALUE = INTEGER_CODES | STRING_CODES | BLOB_CODES
_WITH_EMPTY_VALUE |= {TypeCode.NEWDECIMAL, TypeCode.FLOAT, TypeCode.DOUBLE}


@dataclass(frozen=True, slots=True)
class RuleProblem(Exception):
    """A rule does not suit a table. ``place`` is a path in the rule, as ``mask.email``."""

    place: str
    found: str
    wanted: str

    def __str__(self) -> str:
        return f"{self.place}: found {self.found}, wanted {self.wanted}"


@dataclass(frozen=True, slots=True)
class ViewColumn:
    """``column`` is the column as the view's rows have it: a mask and an added value have their own types.

    ``source`` is its place in the table, -1 for an added one with the ``value``.
    """

    column: Column
    source: int
    mask: Mask | None = None
    value: str | int | None = None

    @property
    def name(self) -> str:
        """In the view."""
        return self.column.name


@dataclass(frozen=True, slots=True)
class TableView:
    """The plan of one table in a view; see the module."""

    name: tuple[str, str]
    condition: Condition | None
    columns: tuple[ViewColumn, ...]
    key: tuple[int, ...]


def apply_view(view: View, table: TableSchema, *, folds: bool = False) -> TableView | None:
    """None if the table is not in the view. Raises ``RuleProblem``. ``folds`` as in ``View.match``."""
    match = view.match(table.database, table.table, folds=folds)
    if match is None:
        return None
    places = _Places(table)
    rule = match.rule
    columns = tuple(_columns(match, places))
    by_name = _unique(columns)
    masked = _masked(columns, by_name, rule, places)
    return TableView(
        match.name, _condition(rule, table, view.collations), masked, _key(masked, table)
    )


class _Places:
    """The columns of a table by their names, which have no case."""

    def __init__(self, table: TableSchema) -> None:
        self.table = table
        self._places = {column.name.lower(): at for at, column in enumerate(table.columns)}

    def of(self, name: str, place: str) -> int | None:
        """The column of this name; None if the server did not log its values."""
        at = self._places.get(name.lower())
        if at is None and not self.is_omitted(name):
            names = ", ".join(column.name for column in self.table.columns[:20])
            wanted = f"a column of {self.table.full_name}: {names}"
            raise RuleProblem(place, f"the column {name}", wanted)
        return at

    def is_omitted(self, name: str) -> bool:
        """Whether the rows are without this column of the table."""
        return name.lower() in map(str.lower, self.table.omitted)


def _columns(match: Match, places: _Places) -> Iterator[ViewColumn]:
    rule = match.rule
    kept = {places.of(name, "columns.keep") for name in rule.keep}
    dropped = {places.of(name, "columns.drop") for name in rule.drop}
    new_names = {places.of(old, "columns.rename"): new for old, new in rule.rename}
    for at, column in enumerate(places.table.columns):
        passes = at not in dropped and (not rule.keep or at in kept)
        if passes:
            yield ViewColumn(replace(column, name=new_names.get(at, column.name)), at)
        elif at in new_names:
            raise RuleProblem(
                f"columns.rename.{column.name}", "a column that does not pass", "one that does"
            )
    for name, value in match.added:
        yield ViewColumn(Column(name, _type_of(value), nullable=False), -1, value=value)


def _type_of(value: str | int) -> ColumnType:
    """The type of an added column."""
    if isinstance(value, int):
        return ColumnType(TypeCode.LONGLONG)
    characters = max(len(value), ADDED_CHARACTERS)
    return ColumnType(TypeCode.VARCHAR, 4 * characters, text=TextEncoding("utf8mb4", UTF8MB4_BIN))


def _unique(columns: tuple[ViewColumn, ...]) -> dict[str, int]:
    """The place of each name."""
    by_name: dict[str, int] = {}
    for at, column in enumerate(columns):
        if by_name.setdefault(column.name.lower(), at) != at:
            raise RuleProblem("columns", f"two columns {column.name}", "one column of each name")
    if not columns:
        raise RuleProblem("columns", "no column that passes", "at least one")
    return by_name


def _condition(
    rule: TableRule, table: TableSchema, collations: tuple[CollationWeights, ...]
) -> Condition | None:
    if not rule.where:
        return None
    try:
        return compile_condition(parse(rule.where), table, collations)
    except Refused as refused:
        raise RuleProblem("where", refused.found, refused.wanted) from refused


def _key(columns: tuple[ViewColumn, ...], table: TableSchema) -> tuple[int, ...]:
    in_view = {column.source: at for at, column in enumerate(columns)}
    for source in table.primary_key:
        name = table.columns[source].name
        if source not in in_view:
            raise RuleProblem(
                "columns", f"a view without the key's column {name}", "all of the key"
            )
    return tuple(in_view[source] for source in table.primary_key)


# ---- masks -----------------------------------------------------------------------------------------------


def _masked(
    columns: tuple[ViewColumn, ...], by_name: dict[str, int], rule: TableRule, places: _Places
) -> tuple[ViewColumn, ...]:
    table = places.table
    masked, old_names = list(columns), {new: old for old, new in rule.rename}
    for name, mask in rule.masks:
        if name.lower() not in by_name and places.is_omitted(old_names.get(name, name)):
            continue
        at = by_name.get(name.lower())
        if at is None or columns[at].source < 0:
            shown = ", ".join(column.name for column in columns[:20] if column.source >= 0)
            raise RuleProblem(
                f"mask.{name}", f"the column {name}", f"a column of the view: {shown}"
            )
        source = columns[at].source
        problem = mask_problem(mask, table.columns[source], is_key=source in table.primary_key)
        if problem is not None:
            raise RuleProblem(
                f"mask.{name}", f"{mask.kind} of {_described(table.columns[source])}", problem
            )
        masked[at] = ViewColumn(_masked_column(columns[at].column, mask), source, mask)
    return tuple(masked)


def _masked_column(column: Column, mask: Mask) -> Column:
    """The column that the masked values fit."""
    if mask.kind is MaskKind.HMAC:
        encoding = TextEncoding("ascii", ASCII_BIN)
        return replace(column, type=ColumnType(TypeCode.VARCHAR, HMAC_CHARACTERS, text=encoding))
    if mask.kind is MaskKind.TRUNCATE and _is_padded(column.type):
        return replace(column, type=replace(column.type, code=TypeCode.VARCHAR))
    return column


def _is_padded(type_: ColumnType) -> bool:
    """BINARY, whose values have one length."""
    return type_.code is TypeCode.STRING and not type_.is_text


def _described(column: Column) -> str:
    return f"{column.name}, {column.type.code.name}{'' if column.nullable else ' NOT NULL'}"


def mask_problem(mask: Mask, column: Column, *, is_key: bool) -> str | None:
    """The type that is wanted instead; None if the mask suits the column."""
    if mask.kind is MaskKind.HMAC:
        if column.type.code in (TypeCode.FLOAT, TypeCode.DOUBLE, TypeCode.JSON, TypeCode.GEOMETRY):
            return "a type with one text for each value"
        if is_key and column.type.is_text and not _is_exact(column):
            return (
                "a collation without padding that ends in _bin: the key calls different texts equal"
            )
        if is_key and any(label and label.isdecimal() for label in column.type.labels):
            return "labels that are not numbers: a value without a label is a number"
        return None
    if is_key:
        return f"{MaskKind.HMAC}, which leaves keys different"
    if mask.kind is MaskKind.TRUNCATE:
        is_cut = column.type.code in STRING_CODES or column.type.code in BLOB_CODES
        return None if is_cut else "a text or binary column"
    if column.nullable or column.type.code in _WITH_EMPTY_VALUE:
        return None
    return "a column that may be NULL, or whose type has an empty value"


def _is_exact(column: Column) -> bool:
    encoding = column.type.text
    found = exact_collation(encoding.collation_id) if encoding is not None else None
    return found is not None and not found[1]
