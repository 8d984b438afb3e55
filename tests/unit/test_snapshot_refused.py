"""Each reason for which a snapshot is refused has its own fix."""

import pytest

from millrace.drivers.mysql.catalog import CatalogColumn, CatalogTable, UniqueKey
from millrace.errors import Fatal
from millrace.producer.snapshot.request_check import unpublished, unreadable, wrong_condition
from millrace.wording import near_names

COLUMNS = {
    name: CatalogColumn(name, "int", "int", "", "", nullable, False)
    for name, nullable in (("id", False), ("v", True))
}
PRIMARY = UniqueKey("PRIMARY", ("id",), True)
NAMES = [("shop", "orders"), ("shop", "Items")]


def _table(*keys: UniqueKey, is_versioned: bool = False) -> CatalogTable:
    return CatalogTable("shop", "t", COLUMNS, keys, is_versioned=is_versioned)


@pytest.mark.parametrize(
    ("table", "fix"),
    [
        (_table(), "ALTER TABLE shop.t ADD id"),
        (
            _table(UniqueKey("PRIMARY", ("v",), False, lengths=(3,))),
            "a primary key of whole columns",
        ),
        (_table(PRIMARY, is_versioned=True), "Leave it out"),
        (None, "Leave it out"),
    ],
)
def test_unreadable_table_gets_the_fix_for_its_reason(table: CatalogTable | None, fix: str) -> None:
    """Only a table without a primary key needs an ALTER TABLE."""
    refused = unreadable(("shop", "t"), table)
    assert refused.code == "MR-4240"
    assert fix in refused.fix
    assert ("ALTER" in refused.fix) == ("ALTER" in fix)


def test_unknown_table_gets_near_names_and_a_pattern_none() -> None:
    """The case does not matter."""
    assert "did you mean shop.Items" in unpublished("shop.itmes", NAMES, "cap").message
    assert "did you mean" not in unpublished("shop.itme*", NAMES, "cap").message
    assert "millrace task show cap" in unpublished("shop.itmes", NAMES, "cap").fix
    assert near_names("else.where", map(".".join, NAMES)) == ""


def test_condition_gets_the_columns_only_if_one_is_unknown() -> None:
    """A missing privilege keeps the fix with its GRANT."""
    unknown = Fatal("MR-1007", "no column w", errno=1054)
    syntax = Fatal("MR-1007", "wrong syntax", errno=1064)
    denied = Fatal("MR-1005", "denied", fix="GRANT SELECT")
    table = _table(PRIMARY)
    assert "the columns of shop.t are id, v." in wrong_condition(table, unknown).fix
    assert "columns of" not in wrong_condition(table, syntax).fix
    assert "--where" in wrong_condition(table, syntax).fix
    assert wrong_condition(table, denied).fix == "GRANT SELECT"
