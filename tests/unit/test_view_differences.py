"""The tables whose delivered rows differ under another view."""

import pytest

from millrace.schemas.table.structure import Column, ColumnType, TableSchema, TextEncoding, TypeCode
from millrace.schemas.view.differences import changed_patterns, differences
from millrace.schemas.view.view import Mask, MaskKind, TableRule, View

TEXT = ColumnType(TypeCode.VARCHAR, 160, text=TextEncoding("utf8mb4", 255))
COLUMNS = (Column("id", ColumnType(TypeCode.LONG), False), Column("mail", TEXT, True))
TABLES = [TableSchema("shop", name, COLUMNS, primary_key=(0,)) for name in ("a", "b")]
A, B, BOTH = TableRule("shop.a"), TableRule("shop.b"), TableRule("shop.*")
MAIL_A, MAIL_B = (TableRule("shop.a", where=f"(`mail` = '{text}')") for text in "ab")
HMAC = Mask(MaskKind.HMAC, secret="file:/k")

# a view, another one, the tables that differ, the patterns that may
CASES = {
    "nothing changed": ((A, B), (A, B), "", ""),
    "another order of rules that match other tables": ((A, B), (B, A), "", "shop.a shop.b"),
    "the same by other rules": ((BOTH,), (A, B), "", "shop.* shop.a shop.b"),
    "a name that is written out": ((A,), (TableRule("shop.a", "shop.a"),), "", "shop.a"),
    "a table left out": ((A, B), (A,), "b", "shop.b"),
    "a table added": ((A,), (A, B), "b", "shop.b"),
    "an earlier rule decides": (
        (BOTH,),
        (TableRule("shop.a", drop=("mail",)), BOTH),
        "a",
        "shop.a",
    ),
    "a condition": ((A, B), (TableRule("shop.a", where="(`id` = 1)"), B), "a", "shop.a"),
    "another name": ((A,), (TableRule("shop.a", "x.{table}"),), "a", "shop.a"),
    "a column renamed": ((A,), (TableRule("shop.a", rename=(("mail", "m"),)),), "a", "shop.a"),
    "a column added": ((BOTH,), (TableRule("shop.*", add=(("n", "{1}"),)),), "a b", "shop.*"),
    "a mask": ((A,), (TableRule("shop.a", masks=(("mail", HMAC),)),), "a", "shop.a"),
    "a condition that needs weights": ((MAIL_A,), (MAIL_B,), "a", "shop.a"),
    "the same condition that needs weights": ((MAIL_A,), (MAIL_A, B), "b", "shop.b"),
    "a rule that no longer suits": ((A,), (TableRule("shop.a", drop=("x",)),), "a", "shop.a"),
}


@pytest.mark.parametrize("case", CASES)
def test_tables_differ_whose_rows_do(case: str) -> None:
    """Patterns cover all tables that differ, and may cover more."""
    old, new, tables, patterns = CASES[case]
    differing = differences(View(old), View(new), TABLES)
    assert [table for _, table in differing] == tables.split()
    changed = changed_patterns(View(old), View(new))
    assert list(changed) == patterns.split()
    covered = View(tuple(map(TableRule, changed)))
    assert all(covered.match(*name) for name in differing)
    assert differing == differences(View(new), View(old), TABLES)
