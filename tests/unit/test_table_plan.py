"""Which parts of a topic fit no table of the target, and whether the suggested fix can work."""

from types import SimpleNamespace
from typing import Any

import pytest

from millrace.codes import CATALOGUE
from millrace.consumer.tables.table_plan import plan_table
from millrace.consumer.view.layout import ViewedTable
from millrace.drivers.mysql.catalog import CatalogTable, Inventory
from millrace.errors import Fatal
from millrace.schemas.gtid import Flavour
from tests.kit.apply.tables import integer, table

SEQUENCE = (
    "next_not_cached_value",
    "minimum_value",
    "maximum_value",
    "start_value",
    "increment",
    "cache_size",
    "cycle_option",
    "cycle_count",
)


def _refused(
    columns: tuple[str, ...], there: dict[str, Any] | None, flavour: Flavour = Flavour.MYSQL
) -> Fatal:
    source: Any = SimpleNamespace(
        table=table("shop", "t", *map(integer, columns)), hidden=frozenset()
    )
    tables: Any = {} if there is None else {("shop", "t"): CatalogTable("shop", "t", there, ())}
    with pytest.raises(Fatal) as caught:
        plan_table(ViewedTable.of(source), Inventory(flavour, tables=tables))
    return caught.value


def test_fix_never_creates_a_sequence_as_a_table() -> None:
    """MariaDB logs rows of a sequence; with one column less it is an ordinary table."""
    error = _refused(SEQUENCE, None, Flavour.MARIADB)
    assert error.code == "MR-5012"
    assert error.fix.startswith("CREATE SEQUENCE `shop`.`t` on the target")
    assert _refused(SEQUENCE, None).code == "MR-5028"
    assert _refused(SEQUENCE[1:], None).fix == CATALOGUE["MR-5012"].fix.replace(
        "DB.TABLE", "shop.t"
    )


def test_table_is_never_written_to_a_sequence() -> None:
    """The target has a sequence of the table's name."""
    there = CatalogTable("shop", "t", {}, (), is_sequence=True)
    source: Any = SimpleNamespace(table=table("shop", "t", integer("id")), hidden=frozenset())
    with pytest.raises(Fatal) as caught:
        plan_table(ViewedTable.of(source), Inventory(tables={("shop", "t"): there}))
    assert caught.value.code == "MR-5013"
    assert "`shop`.`t`" in caught.value.fix


def test_fix_never_adds_system_versioning_columns() -> None:
    """row_start and row_end are the server's columns; the fix adds any other column."""
    hidden: Any = SimpleNamespace(name="id", generated=False, has_equal_labels=False)
    error = _refused(("id", "row_start", "row_end"), {"id": hidden})
    assert error.code == "MR-5013"
    assert "WITH SYSTEM VERSIONING" in error.fix
    assert _refused(("id", "other"), {"id": hidden}).fix == CATALOGUE["MR-5013"].fix


def test_unlogged_column_must_be_generated_on_the_target() -> None:
    """MariaDB 11.8 logs no values of generated columns for UPDATE: a plain one would keep its old value."""
    plain: Any = SimpleNamespace(name="id", generated=False, has_equal_labels=False)
    made = table("shop", "t", *map(integer, ("id", "w"))).without((True, False))
    there: Any = {"id": plain, "w": SimpleNamespace(name="w", generated=False)}
    source: Any = SimpleNamespace(table=made, hidden=frozenset())
    with pytest.raises(Fatal, match=r"MR-5013.*does not log its values") as caught:
        plan_table(
            ViewedTable.of(source),
            Inventory(tables={("shop", "t"): CatalogTable("shop", "t", there, ())}),
        )
    assert caught.value.fix.startswith("Define w on the target with the source's expression")
