"""Statements for one row: INSERT, REPLACE, UPDATE, DELETE and SELECT, by identity, by a unique key or by all columns.

Used for rows that need a statement each: changed identities, values in an unusual branch, tables without a key, and all
rows after a conflict. ``kernel.literals`` fills the texts of a ``Template``.

Without a key, every column is compared null-safe, as bytes if a collation treats different values as equal. LIMIT 1
selects one of several equal rows; it does not matter which one.

The last part has the statements for MariaDB's sequences, whose state is one row with eight columns. The binlog has the
whole row after each change of the state: NEXT VALUE FOR writes one for each block of cached values, SETVAL and INSERT
one each. CREATE, ALTER and DROP are DDL. So the last row of a sequence is its state.

    setval    SETVAL to the row's next value and cycle. Never goes back; changes nothing else; other sessions may use
              the sequence meanwhile
    is_set    whether the sequence has exactly the row's state now
    insert    the whole row, after an INSERT on the source or if the target's sequence differs. Like ALTER SEQUENCE, it
              waits for all transactions that use the sequence

None of them is rolled back with the target transaction. Each has the same result if it is repeated.
"""

from collections.abc import Iterable

from millrace.consumer.records.rows import Template
from millrace.consumer.tables.table_plan import (
    AFTER,
    BEFORE,
    SPATIAL_TYPES,
    Pieces,
    Place,
    TablePlan,
    check_names_row,
    compared,
    join_operand,
    joined,
    key_matches,
    key_names,
    make_shape,
    record_indexes,
    written,
)
from millrace.drivers.mysql.catalog import CatalogColumn
from millrace.schemas.gtid import Flavour
from millrace.schemas.sql.quoting import charset_name, quoted
from millrace.schemas.table.structure import Column


def insert_template(
    table_plan: TablePlan, *, replace: bool = False, period: int = 0, image: int = AFTER
) -> Template:
    """INSERT of an image, with ``replace`` of a row that may exist. ``period``: with so many columns of the period."""
    columns = (*table_plan.columns, *table_plan.period[:period])
    names = b",".join(quoted(column.name) for _, column in columns)
    on_duplicate = table_plan.on_duplicate if replace else b""
    verb = b"REPLACE INTO " if replace and not on_duplicate else b"INSERT INTO "
    texts = [verb + table_plan.name + b" (" + names + b") VALUES ("]
    for place in range(len(columns)):
        texts[-1] += b"," if place else b""
        texts.append(b"")
    texts[-1] += b")" + on_duplicate
    return Template.of(texts, make_shape(table_plan.layout, written(image, columns)))


def update_other_template(table_plan: TablePlan, _: Flavour) -> Template:
    """UPDATE of the row of the after image, unless it is that of the before image. Only for tables with an identity."""
    texts, places = _updating(table_plan)
    for image, lead, end in ((AFTER, b" WHERE ", b""), (BEFORE, b" AND NOT (", b")")):
        texts[-1] += lead
        for number, (index, column) in enumerate(table_plan.named):
            before, behind = _found(table_plan.layout.table.columns[index], column)
            texts[-1] += (b" AND " if number else b"") + before
            texts.append(behind)
        texts[-1] += end
        places += compared(image, (index for index, _ in table_plan.named))
    return Template.of(texts, make_shape(table_plan.layout, places))


def update_template(table_plan: TablePlan, flavour: Flavour) -> Template:
    """UPDATE of the row of the before image to the after image. Fatal MR-5019 if no key identifies it."""
    texts, places = _updating(table_plan)
    return _where(table_plan, flavour, texts, places)


def _updating(table_plan: TablePlan) -> tuple[list[bytes], list[Place]]:
    texts = [b"UPDATE " + table_plan.name + b" SET "]
    for place, (_, column) in enumerate(table_plan.columns):
        texts[-1] += (b"," if place else b"") + quoted(column.name) + b"="
        texts.append(b"")
    return texts, written(AFTER, table_plan.columns)


def delete_template(table_plan: TablePlan, flavour: Flavour) -> Template:
    """DELETE of the row of the before image. Fatal MR-5019 if no key identifies it."""
    return _where(table_plan, flavour, [b"DELETE FROM " + table_plan.name], [])


def find_template(table_plan: TablePlan, flavour: Flavour) -> Template:
    """SELECT of the row of the after image, to check its generated values."""
    return _where(table_plan, flavour, [b"SELECT 1 FROM " + table_plan.name], [], image=AFTER)


def find_computed_template(table_plan: TablePlan, flavour: Flavour) -> Template:
    """SELECT of the row of the after image, if the target has computed what the record has."""
    return _find_values(table_plan, flavour, table_plan.computed)


def find_verified_template(table_plan: TablePlan, flavour: Flavour) -> Template:
    """The same for the values that depend on the session."""
    return _find_values(table_plan, flavour, table_plan.verified)


def find_verified_history_template(table_plan: TablePlan, flavour: Flavour) -> Template:
    """The same for a row of the history."""
    return _find_values(table_plan, flavour, table_plan.verified, is_history=True)


def _find_values(
    table_plan: TablePlan,
    flavour: Flavour,
    values: tuple[tuple[int, CatalogColumn], ...],
    *,
    is_history: bool = False,
) -> Template:
    texts = [b"SELECT 1 FROM " + table_plan.name]
    named = table_plan.named
    if is_history:
        texts[-1] += b" FOR SYSTEM_TIME ALL"
        named = (*named, table_plan.period[1])
    same_on = None if table_plan.identity else flavour
    _add_condition(texts, table_plan, named, same_on=same_on)
    for _, column in values:
        before, behind = _same(column, flavour)
        texts[-1] += b" AND " + before
        texts.append(behind)
    texts[-1] += b" LIMIT 1"
    places = compared(AFTER, (index for index, _ in (*named, *values)))
    return Template.of(texts, make_shape(table_plan.layout, places))


def each_verified_template(table_plan: TablePlan, flavour: Flavour) -> Template:
    """SELECT whether each of these values of the row is the record's."""
    texts = [b"SELECT "]
    for place, (_, column) in enumerate(table_plan.verified):
        before, behind = _same(column, flavour)
        texts[-1] += (b"," if place else b"") + before
        texts.append(behind)
    texts[-1] += b" FROM " + table_plan.name
    places = compared(AFTER, (index for index, _ in table_plan.verified))
    return _where(table_plan, flavour, texts, places, image=AFTER)


def verifying_pieces(table_plan: TablePlan, flavour: Flavour) -> Pieces | None:
    """SELECT of the rows of many after images whose values are the records'; None without a key to look up.

    A comparison with a column of a derived table may be stricter than one with a literal, never looser.
    """
    layout, target, identity = table_plan.layout, table_plan.target, table_plan.identity
    matches = key_matches(layout, target, identity)
    if matches is None or not table_plan.verified:
        return None
    for place, (index, column) in enumerate(table_plan.verified):
        operand = b"v.c%d" % place
        cast = join_operand(layout.table.columns[index], column, operand)
        before, behind = _same(column, flavour, of=table_plan.name + b".")
        is_text = column.base_type in _TEXTS
        matches += b" AND " + before + (operand if is_text else cast or operand) + behind
    names = [*key_names(identity), *(b"c%d" % at for at in range(len(table_plan.verified)))]
    places = [*compared(AFTER, identity), *written(AFTER, table_plan.verified)]
    return joined(b"SELECT 1 FROM ", names, matches, make_shape(layout, places), flavour)


def find_history_template(table_plan: TablePlan, flavour: Flavour) -> Template:
    """SELECT of the row of the history that is the after image."""
    columns = (*table_plan.named, table_plan.period[1])
    texts = [b"SELECT 1 FROM " + table_plan.name + b" FOR SYSTEM_TIME ALL"]
    _add_condition(texts, table_plan, columns, same_on=None if table_plan.identity else flavour)
    shape = make_shape(table_plan.layout, compared(AFTER, (index for index, _ in columns)))
    texts[-1] += b" LIMIT 1"
    return Template.of(texts, shape)


def rows_template(
    table_plan: TablePlan, shown: bytes, key: tuple[tuple[int, CatalogColumn], ...], *, image: int
) -> Template:
    """SELECT of ``shown`` from the row that has this image's values in the columns of a unique key.

    ``key``: pairs of (column index in the record, target column).
    """
    texts = [b"SELECT " + shown + b" FROM " + table_plan.name]
    _add_condition(texts, table_plan, key, same_on=None)
    places = compared(image, (index for index, _ in key))
    return Template.of(texts, make_shape(table_plan.layout, places))


def _where(
    table_plan: TablePlan,
    flavour: Flavour,
    texts: list[bytes],
    places: list[Place],
    *,
    image: int = BEFORE,
) -> Template:
    """The statement with a condition that selects one row, or one of several equal rows."""
    is_limited = not table_plan.identity
    names = [column.name for _, column in table_plan.named]
    check_names_row(table_plan.target, names, is_limited=is_limited)
    same_on = flavour if is_limited else None
    _add_condition(texts, table_plan, table_plan.named, same_on=same_on)
    if is_limited:
        texts[-1] += b" LIMIT 1"
    places = [*places, *compared(image, (index for index, _ in table_plan.named))]
    return Template.of(texts, make_shape(table_plan.layout, places))


def _add_condition(
    texts: list[bytes],
    table_plan: TablePlan,
    columns: Iterable[tuple[int, CatalogColumn]],
    *,
    same_on: Flavour | None,
) -> None:
    """WHERE with a literal for each column. ``same_on``: by value, as this flavour compares; None: as a key."""
    for number, (index, column) in enumerate(columns):
        if same_on is None:
            before, behind = _found(table_plan.layout.table.columns[index], column)
        else:
            before, behind = _same(column, same_on)
        texts[-1] += (b" AND " if number else b" WHERE ") + before
        texts.append(behind)


def _found(source: Column, column: CatalogColumn) -> tuple[bytes, bytes]:
    """The texts before and after a literal that is looked up in the target's key.

    MySQL does not compare a text with raw bytes; it refuses to convert them.
    """
    name = quoted(column.name)
    if (
        column.base_type in _TEXTS
        and source.type.text
        and source.type.text.charset == column.charset
    ):
        charset, collation = (
            charset_name(name).encode() for name in (column.charset, column.collation)
        )
        return name + b"=CONVERT(", b" USING " + charset + b") COLLATE " + collation
    return name + b"=", b""


_AS_HEX = SPATIAL_TYPES | {"vector", "uuid", "inet4", "inet6"}
_TEXTS = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext"}


def _same(column: CatalogColumn, flavour: Flavour, *, of: bytes = b"") -> tuple[bytes, bytes]:
    """The texts before and after a literal. The condition is true for the same value, or if both are NULL.

    ``of``: the qualifier of the column.
    """
    name = of + quoted(column.name)
    if column.base_type in _AS_HEX:
        return b"HEX(" + name + b") <=> HEX(", b")"
    if column.base_type == "json" and flavour is Flavour.MYSQL:
        return (
            b"CAST(" + name + b" AS CHAR) COLLATE utf8mb4_bin <=> CAST(CAST(",
            b" AS JSON) AS CHAR)",
        )  # as values 1 and 1.0 are equal
    if column.base_type in ("float", "double"):  # 0 and -0 are equal
        return b"CAST(CAST(" + name + b" AS DOUBLE) AS CHAR) <=> CAST(", b" AS CHAR)"
    if column.base_type in _TEXTS and column.charset:
        charset = charset_name(column.charset).encode()
        return (
            b"CAST(" + name + b" AS BINARY) <=> CAST(CONVERT(",
            b" USING " + charset + b") AS BINARY)",
        )
    return name + b" <=> ", b""


NEXT, CYCLE = "next_not_cached_value", "cycle_count"


def setval_template(table_plan: TablePlan) -> Template:
    """SELECT SETVAL of the after image."""
    indexes = record_indexes(table_plan.layout, (NEXT, CYCLE))
    assert indexes is not None
    texts = [b"SELECT SETVAL(" + table_plan.name + b",", b",0,", b")"]
    return Template.of(texts, make_shape(table_plan.layout, compared(AFTER, indexes)))


def is_set_template(table_plan: TablePlan) -> Template:
    """SELECT that returns a row if the sequence has the after image."""
    texts = [b"SELECT 1 FROM " + table_plan.name + b" WHERE "]
    for place, (_, column) in enumerate(table_plan.columns):
        texts[-1] += (b" AND " if place else b"") + quoted(column.name) + b"="
        texts.append(b"")
    indexes = [index for index, _ in table_plan.columns]
    return Template.of(texts, make_shape(table_plan.layout, compared(AFTER, indexes)))
