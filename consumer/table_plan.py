"""A record schema bound to the target's table: which columns, which row, which SQL.

    columns written     those of the record that the target has and does not generate; one that is missing is Fatal
                        MR-5013
    row identity        the target's primary key, else a unique key that is never NULL, if the record has all its
                        columns and it has no prefix or expression; without one all columns are compared
                        (``identity`` is empty)

A generated column is never written, but it may be part of the identity: the row image holds its value, also of a
virtual one, on both flavours. A key without one is preferred, because the target generates by its own expression.
No UPDATE or DELETE is made that names less than one row: ``check_names_row``.

Statements are made of pieces around what ``kernel.text`` writes: ``lead`` rows ``tail``, a row being ``opening``
literals ``closing`` after the lines of ``shape``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from consumer.row_schemas import Ints, literal_form
from consumer.target.inventory import Inventory, TargetColumn, TargetTable, UniqueKey
from millrace.errors import Fatal
from schemas.gtid import Flavour
from schemas.record.row_layout import RowLayout
from schemas.table.structure import INTEGER_CODES, Column, TypeCode

BEFORE, AFTER = 0, 1

# MariaDB logs rows of them like those of a table; nothing on the target takes these
_OF_A_SEQUENCE = {
    "next_not_cached_value",
    "minimum_value",
    "maximum_value",
    "start_value",
    "increment",
    "cache_size",
    "cycle_option",
    "cycle_count",
}
_OF_SYSTEM_VERSIONING = ("row_start", "row_end")
_NOT_APPLIED = (
    "{} are not applied yet: `exclude` it in the capture task, which then needs a new topic, since these rows stay in"
    " this one; start the apply task anew on that."
)
_OTHER_ENGINE = "ALTER TABLE {} ENGINE=InnoDB on the target, then `millrace task resume NAME`."
_SYSTEM_VERSIONED = _NOT_APPLIED.format("System-versioned tables")


@dataclass(frozen=True, slots=True)
class Pieces:
    """One kind of statement over many rows."""

    lead: bytes
    opening: bytes
    closing: bytes
    tail: bytes
    shape: Ints


@dataclass(frozen=True, slots=True)
class TablePlan:
    """``columns``: pairs of column index in the record and the target's column, of all that are written.

    ``update`` is None where rows are told apart by columns that don't compare well in a join: one by one then.
    """

    layout: RowLayout
    target: TargetTable
    columns: tuple[tuple[int, TargetColumn], ...]
    identity: tuple[int, ...]
    insert: Pieces
    delete: Pieces | None
    update: Pieces | None

    @property
    def name(self) -> bytes:
        """The table as SQL writes it."""
        return table_name(self.target.database, self.target.table)

    @property
    def named(self) -> tuple[tuple[int, TargetColumn], ...]:
        """Columns that an UPDATE or DELETE of one row compares: the identity, else all that are written."""
        return _key_columns(self.layout, self.target, self.identity) or self.columns

    @property
    def is_identity_generated(self) -> bool:
        """True where the target computes a part of the identity: what it computes is checked."""
        return bool(self.identity) and any(column.generated for _, column in self.named)

    @property
    def documents(self) -> tuple[int, ...]:
        """Columns of the record that a MySQL target keeps as JSON; MariaDB's JSON is text."""
        return tuple(index for index, column in self.columns if column.base_type == "json")

    def shape(self, image: int, columns: tuple[int, ...]) -> Ints:
        """Lines for ``kernel.text`` of these columns of one image."""
        return make_shape(self.layout, [(image, column) for column in columns])


def quoted(name: str) -> bytes:
    """An identifier as SQL writes it: the one place that quotes names."""
    return b"`" + name.encode().replace(b"`", b"``") + b"`"


def table_name(database: str, table: str) -> bytes:
    """``database``.``table``."""
    return quoted(database) + b"." + quoted(table)


def plan_table(layout: RowLayout, inventory: Inventory) -> TablePlan:
    """Fatal MR-5012 without the table, MR-5013 without a column of the record, MR-5015 if rows can't be rolled back."""
    table = layout.table
    target = inventory.tables.get(inventory.key(table.database, table.table))
    if target is None:
        names = {column.name for column in table.columns}
        what, fix = table.full_name, ""
        if names == _OF_A_SEQUENCE:
            what, fix = f"{what}: it is a sequence", _NOT_APPLIED.format("Sequences")
        raise Fatal("MR-5012", f"there is no table {what}", fix=fix, table=table.full_name)
    if not target.rolls_back:
        raise Fatal(
            "MR-5015",
            f"{table.full_name} has the engine {target.engine}",
            fix=_OTHER_ENGINE.format(table_name(target.database, target.table).decode()),
            table=table.full_name,
            engine=target.engine,
        )
    columns = []
    for index, column in enumerate(table.columns):
        found = target_column(target, column.name)
        if found is None and column.is_key_hash:
            continue
        if found is None:
            raise Fatal(
                "MR-5013",
                f"{table.full_name} has no column {column.name}",
                fix=_SYSTEM_VERSIONED if column.name in _OF_SYSTEM_VERSIONING else "",
                table=table.full_name,
                column=column.name,
            )
        if not found.generated:
            columns.append((index, found))
    identity = _identity(layout, target)
    return TablePlan(
        layout,
        target,
        tuple(columns),
        identity,
        _insert(layout, target, columns),
        _delete(layout, target, identity) if identity else None,
        _update(layout, target, columns, identity, inventory.flavour) if identity else None,
    )


def target_column(target: TargetTable, name: str) -> TargetColumn | None:
    """The column of this name; MySQL compares column names without case."""
    if (found := target.columns.get(name)) is not None:
        return found
    folded = name.lower()
    return next((c for c in target.columns.values() if c.name.lower() == folded), None)


def record_indexes(layout: RowLayout, names: tuple[str, ...]) -> tuple[int, ...] | None:
    """Where these columns stand in the record; None if one is not there."""
    columns = layout.table.columns
    folded = {column.name.lower(): index for index, column in enumerate(columns)}
    exact = {column.name: index for index, column in enumerate(columns)}
    found = [exact.get(name, folded.get(name.lower())) for name in names]
    return None if None in found else tuple(index for index in found if index is not None)


def check_names_row(target: TargetTable, named: Sequence[str], *, is_limited: bool = False) -> None:
    """Fatal MR-5019 unless these columns of the target hold a whole unique key that is never NULL.

    ``is_limited``: the statement ends in LIMIT 1, then any columns will do, but none will not.
    """
    keys = (key.columns for key in target.unique_keys if _is_never_null(target, key))
    if not (named if is_limited else any(set(key) <= set(named) for key in keys)):
        name = f"{target.database}.{target.table}"
        raise Fatal(
            "MR-5019",
            f"{name}: ({', '.join(named)}) is no whole unique key of the table",
            table=name,
        )


def _is_never_null(target: TargetTable, key: UniqueKey) -> bool:
    return key.is_whole and not any(target.columns[name].nullable for name in key.columns)


def _identity(layout: RowLayout, target: TargetTable) -> tuple[int, ...]:
    def is_generated(key: UniqueKey) -> bool:
        return any(target.columns[name].generated for name in key.columns)

    usable = [key for key in target.unique_keys if _is_never_null(target, key)]
    columns = layout.table.columns
    for key in sorted(usable, key=is_generated):
        indexes = record_indexes(layout, key.columns) or ()
        pairs = _key_columns(layout, target, indexes)
        if pairs and not any(_is_loose(columns[index], column) for index, column in pairs):
            return indexes
    return ()


def _is_loose(source: Column, column: TargetColumn) -> bool:
    """True where the server compares the record's number with a text: ``05`` and ``5a`` equal 5 then."""
    return source.type.code in _NUMBER_CODES and column.base_type in _STRINGS


def _key_columns(
    layout: RowLayout, target: TargetTable, identity: tuple[int, ...]
) -> tuple[tuple[int, TargetColumn], ...]:
    found = ((index, target_column(target, layout.table.columns[index].name)) for index in identity)
    return tuple((index, column) for index, column in found if column is not None)


def make_shape(layout: RowLayout, places: list[tuple[int, int]]) -> Ints:
    """Lines (cell from the record's first, form, scale) of (image, column)."""
    columns = layout.table.columns
    lines = [
        (image * len(columns) + index, literal_form(columns[index]), columns[index].type.scale)
        for image, index in places
    ]
    return np.array(lines, np.int64).reshape(-1, 3)


def _insert(
    layout: RowLayout, target: TargetTable, columns: list[tuple[int, TargetColumn]]
) -> Pieces:
    names = b",".join(quoted(column.name) for _, column in columns)
    lead = (
        b"INSERT INTO " + table_name(target.database, target.table) + b" (" + names + b") VALUES "
    )
    return Pieces(
        lead, b"(", b")", b"", make_shape(layout, [(AFTER, index) for index, _ in columns])
    )


def _delete(layout: RowLayout, target: TargetTable, identity: tuple[int, ...]) -> Pieces:
    key = [column.name for _, column in _key_columns(layout, target, identity)]
    check_names_row(target, key)
    names = [quoted(name) for name in key]
    shape = make_shape(layout, [(BEFORE, index) for index in identity])
    lead = b"DELETE FROM " + table_name(target.database, target.table) + b" WHERE "
    if len(names) == 1:
        return Pieces(lead + names[0] + b" IN (", b"", b"", b")", shape)
    return Pieces(lead + b"(" + b",".join(names) + b") IN (", b"(", b")", b")", shape)


def _update(
    layout: RowLayout,
    target: TargetTable,
    columns: list[tuple[int, TargetColumn]],
    identity: tuple[int, ...],
    flavour: Flavour,
) -> Pieces | None:
    """Rows as a derived table, joined first so that the target is never scanned."""
    key = _key_columns(layout, target, identity)
    check_names_row(target, [column.name for _, column in key])
    matches = []
    for place, (index, found) in enumerate(key):
        matched = _join_operand(layout.table.columns[index], found, b"v.k%d" % place)
        if matched is None:
            return None
        matches.append(b"t." + quoted(found.name) + b" = " + matched)
    written = [(index, column) for index, column in columns if index not in identity]
    if not written:
        return None
    sets = [
        b"t." + quoted(column.name) + b" = v.c%d" % at for at, (_, column) in enumerate(written)
    ]
    names = [b"k%d" % at for at in range(len(identity))] + [
        b"c%d" % at for at in range(len(written))
    ]
    shape = make_shape(
        layout,
        [*((BEFORE, index) for index in identity), *((AFTER, index) for index, _ in written)],
    )
    tail = b" STRAIGHT_JOIN " + table_name(target.database, target.table) + b" AS t ON "
    tail += b" AND ".join(matches) + b" SET " + b", ".join(sets)
    if flavour is Flavour.MYSQL:
        lead, named = b"UPDATE (VALUES ", b") AS v (" + b",".join(names) + b")"
        return Pieces(lead, b"ROW(", b")", named + tail, shape)
    lead = b"UPDATE (SELECT " + b",".join(b"NULL AS " + name for name in names)
    return Pieces(
        lead + b" FROM DUAL WHERE 0 UNION ALL VALUES ", b"(", b")", b") AS v" + tail, shape
    )


_INTEGERS = {"tinyint", "smallint", "mediumint", "int", "bigint", "year"}
_BINARIES = {"binary", "varbinary"}
_TEXTS = {"char", "varchar"}
_STRINGS = _TEXTS | _BINARIES
_STRINGS |= {
    f"{size}{kind}" for size in ("tiny", "", "medium", "long") for kind in ("text", "blob")
}
_NUMBER_CODES = INTEGER_CODES | {TypeCode.FLOAT, TypeCode.DOUBLE, TypeCode.NEWDECIMAL}
_NUMBER_CODES |= {TypeCode.YEAR, TypeCode.BIT}


def _join_operand(column: Column, target: TargetColumn, operand: bytes) -> bytes | None:
    """A column of the derived table as the target's index can look it up; None if it better does not."""
    if target.type_text.startswith("bigint") and "unsigned" in target.type_text:
        return b"CAST(" + operand + b" AS UNSIGNED)"  # a mixture below and above 2**63 is DECIMAL
    if target.base_type in _INTEGERS and column.type.code is not TypeCode.BIT:
        return operand
    if target.base_type == "decimal" and column.type.code is TypeCode.NEWDECIMAL:
        return operand
    if target.base_type in _BINARIES:
        return operand
    if target.base_type in _TEXTS and target.charset and column.type.is_text:
        charset, collation = target.charset.encode(), target.collation.encode()
        return b"CONVERT(" + operand + b" USING " + charset + b") COLLATE " + collation
    return None
