"""The rows of a table that the view of a task has, as the source selects them for a comparison. Pure.

The source evaluates the condition of the rule and names the columns as the target does, in a derived table. So the rest
of a comparison knows no view.

    masked columns     are not compared: no server gets the secret of a mask, and none knows the masked value
    added columns      are the constant, if the target's column is a text or an integer. Rows of the target with another
                       value are not the view's: they belong to others, and a row of the view is missing there
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from millrace.drivers.mysql.catalog import CatalogColumn, CatalogTable, UniqueKey
from millrace.drivers.mysql.chunks.chunk import EVERYTHING
from millrace.schemas.sql.quoting import hex_bytes, quoted, table_name
from millrace.schemas.table.structure import TableSchema
from millrace.schemas.view.table_view import ViewColumn, apply_view
from millrace.schemas.view.view import View

PRIMARY = "view PRIMARY"  # no hint can name an index of a derived table

_TEXTS = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext"}
_INTEGERS = {"tinyint", "smallint", "mediumint", "int", "bigint"}


@dataclass(frozen=True, slots=True)
class ViewedRows:
    """``table``: the source's, with the columns and keys of the view. ``rows``: its rows, as a derived table.

    ``limits``: the condition of the target's rows. ``unread``: the columns that are not compared, with the reason.
    ``view``: the hash of the view. ``is_limited``: ``limits`` has all added columns.
    """

    table: CatalogTable
    rows: str
    limits: str
    unread: tuple[str, ...]
    view: str
    is_limited: bool = True


def viewed_rows(
    source: CatalogTable, schema: TableSchema, target: CatalogTable, view: View, *, folds: bool
) -> ViewedRows:
    """``schema``: of the source's table. ``folds`` as in ``View.match``. Raises ``RuleProblem``."""
    viewed = apply_view(view, schema, folds=folds)
    assert viewed is not None, "the view has the table"
    there = {name.lower(): column for name, column in target.columns.items()}
    columns, items, limits, unread = {}, [], [], []
    is_limited = True
    for each in viewed.columns:
        if each.source < 0:
            constant = _constant(each, there.get(each.name.lower()))
            if constant is None:
                unread.append(f"{each.name} (a constant for another type)")
                is_limited = False
                continue
            column, sql, limit = constant
            limits.append(limit)
        else:
            known = source.columns.get(old := schema.columns[each.source].name)
            if known is None:  # a hash that MariaDB keeps for a key
                continue
            if each.mask is not None:
                unread.append(f"{each.name} (masked)")
                continue
            column, sql = replace(known, name=each.name), quoted(old).decode()
        columns[each.name] = column
        items.append(f"{sql} AS {quoted(each.name).decode()}")
    where = viewed.condition.sql if viewed.condition is not None else EVERYTHING
    rows = f"SELECT {', '.join(items)} FROM {table_name(*source.key).decode()} WHERE {where}"
    names = {
        schema.columns[each.source].name: each.name
        for each in viewed.columns
        if each.source >= 0 and each.name in columns
    }
    table = replace(source, columns=columns, unique_keys=tuple(_keys(source.unique_keys, names)))
    derived, limit = f"({rows}) AS viewed", " AND ".join(limits)
    return ViewedRows(table, derived, limit, tuple(unread), view.hash, is_limited)


def _keys(keys: Iterable[UniqueKey], names: dict[str, str]) -> Iterator[UniqueKey]:
    """Those whose columns the view has. None has the name of an index."""
    for key in keys:
        if all(name in names for name in key.columns):
            yield replace(
                key,
                name=f"view {key.name}",
                columns=tuple(names[name] for name in key.columns),
                descending=tuple(names[name] for name in key.descending),
            )


def _constant(
    added: ViewColumn, target: CatalogColumn | None
) -> tuple[CatalogColumn, str, str] | None:
    """An added column, its value as SQL, and the condition of the target's rows; None if its type is another one."""
    name, value = quoted(added.name).decode(), str(added.value)
    if target is None or target.base_type in _TEXTS:
        octets = hex_bytes(value.encode().hex())
        column = CatalogColumn(
            added.name, "varchar(255)", "varchar", "utf8mb4", "utf8mb4_bin", False, False
        )
        limit = f"CAST(CONVERT({name} USING utf8mb4) AS BINARY) = {octets}"
        return column, f"_utf8mb4 {octets} COLLATE utf8mb4_bin", limit
    if target.base_type in _INTEGERS and _is_integer(value):
        column = CatalogColumn(added.name, "bigint", "bigint", "", "", False, False)
        return column, f"CAST({value} AS SIGNED)", f"{name} = {value}"
    return None


def _is_integer(text: str) -> bool:
    """Whether each server prints the number so."""
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and str(int(text)) == text
