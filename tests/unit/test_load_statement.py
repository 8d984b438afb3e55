"""The LOAD DATA statement of a table: each column in a form that the server reads like INSERT's literal."""

import pytest

from millrace.consumer.tables.load_data import load_statement
from millrace.consumer.tables.table_plan import plan_table
from millrace.consumer.view.layout import ViewedTable
from millrace.drivers.mysql.catalog import CatalogColumn, CatalogTable, Inventory, UniqueKey
from millrace.schemas.record.row_layout import RowLayout
from millrace.schemas.table.structure import Column, ColumnType, TextEncoding, TypeCode
from tests.kit.apply.tables import integer, table

PLACE = ("shop", "t")
_BINARY, _TEXT = TextEncoding("binary", 63), TextEncoding("utf8mb4", 255)


def _sql(
    type_: ColumnType, base: str, triggers: tuple[str, ...] = (), *, counts: bool = False
) -> bytes | None:
    columns = {
        name: CatalogColumn(name, of, of, "", "", False, False, counts and name == "id")
        for name, of in (("id", "int"), ("v", base))
    }
    target = CatalogTable(*PLACE, columns, (UniqueKey("PRIMARY", ("id",), True),))
    known = {PLACE: triggers} if triggers else {}
    inventory = Inventory(tables={PLACE: target}, triggers=known)
    made = table(*PLACE, integer("id"), Column("v", type_, nullable=True))
    return load_statement(
        plan_table(ViewedTable.of(RowLayout.of("shop", made)), inventory), inventory
    )


@pytest.mark.parametrize(
    ("type_", "base", "wanted"),
    [
        (ColumnType(TypeCode.LONG), "bigint", b"(`id`,`v`)"),
        (ColumnType(TypeCode.LONGLONG, is_unsigned=True), "decimal", b"(`id`,`v`)"),
        (ColumnType(TypeCode.NEWDECIMAL, 10 << 8 | 2), "decimal", b"(`id`,`v`)"),
        (ColumnType(TypeCode.DOUBLE, 8), "float", b"(`id`,`v`)"),
        (ColumnType(TypeCode.VARCHAR, 80, text=_TEXT), "enum", b"(`id`,`v`)"),
        (ColumnType(TypeCode.DATETIME2, 6), "timestamp", b"(`id`,`v`)"),
        (ColumnType(TypeCode.YEAR), "year", b"SET `v`=CAST(@millrace1 AS UNSIGNED)"),
        (
            ColumnType(TypeCode.BIT, 9),
            "bit",
            b"(`id`,@millrace1) SET `v`=CAST(@millrace1 AS UNSIGNED)",
        ),
        (ColumnType(TypeCode.STRING, 16, text=_BINARY), "binary", b"SET `v`=UNHEX(@millrace1)"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_column_is_read_like_a_literal(type_: ColumnType, base: str, wanted: bytes) -> None:
    """The statement ends with the columns and their forms."""
    sql = _sql(type_, base)
    assert sql is not None
    assert sql.endswith(wanted)


@pytest.mark.parametrize(
    ("type_", "base"),
    [
        (ColumnType(TypeCode.LONG), "year"),  # '0' is 2000, 0 is 0000
        (ColumnType(TypeCode.LONG), "enum"),  # '1' is a label, 1 an index
        (ColumnType(TypeCode.LONG), "varchar"),
        (ColumnType(TypeCode.YEAR), "int"),
        (ColumnType(TypeCode.BIT, 9), "int"),
        (ColumnType(TypeCode.DOUBLE, 8), "varchar"),
        (ColumnType(TypeCode.STRING, 16, text=_BINARY), "uuid"),
        (ColumnType(TypeCode.GEOMETRY), "geometry"),
        (ColumnType(TypeCode.GEOMETRY), "blob"),
        (ColumnType(TypeCode.VARCHAR, 80, text=_TEXT), "int"),
        (ColumnType(TypeCode.VARCHAR, 80, text=_TEXT), "blob"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_other_columns_take_insert(type_: ColumnType, base: str) -> None:
    """One such column is enough."""
    assert _sql(type_, base) is None


def test_auto_increment_is_set_where_another_column_is() -> None:
    """MariaDB gives 0 a new number otherwise. Without another such column the field is enough."""
    by_field, by_set = ColumnType(TypeCode.LONG), ColumnType(TypeCode.YEAR)
    found = [
        _sql(type_, base, counts=True) for type_, base in ((by_field, "int"), (by_set, "year"))
    ]
    assert found[0] is not None
    assert found[0].endswith(b"(`id`,`v`)")
    assert found[1] is not None
    assert found[1].endswith(
        b"(@millrace0,@millrace1) SET `id`=@millrace0,`v`=CAST(@millrace1 AS UNSIGNED)"
    )


def test_table_with_a_trigger_takes_insert() -> None:
    """It may use the same user variables."""
    assert _sql(ColumnType(TypeCode.LONG), "int", ("t_set",)) is None
