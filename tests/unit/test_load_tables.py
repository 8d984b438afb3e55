"""Which tables a load has, how each is read, and in which order."""

from dataclasses import replace

import pytest

from millrace.consumer.load.linked_tables import linked_apart
from millrace.consumer.load.requested_tables import Known, chosen
from millrace.consumer.load.tables import (
    Admission,
    SourceTable,
    check_same,
    differences,
    groups,
    linked,
    tables_to_load,
    why_snapshot,
    with_linked,
)
from millrace.drivers.mysql.actions import NO_ACTIONS, Action, Actions
from millrace.drivers.mysql.catalog import (
    CatalogColumn,
    CatalogTable,
    ForeignKey,
    Inventory,
    UniqueKey,
)
from millrace.errors import Fatal
from millrace.schemas.documents import TableFilter
from millrace.schemas.view.view import ALL_TABLES, view_of_filter

PRIMARY = UniqueKey("PRIMARY", ("id",), is_whole=True)


def _column(name: str, type_text: str = "int", *, nullable: bool = False) -> CatalogColumn:
    base = type_text.partition("(")[0]
    charset = "utf8mb4" if base == "varchar" else ""
    return CatalogColumn(
        name, type_text, base, charset, charset and "utf8mb4_bin", nullable, generated=False
    )


def _table(name: str, *keys: UniqueKey, database: str = "shop") -> CatalogTable:
    columns = {
        each.name: each for each in (_column("id"), _column("v", "varchar(9)", nullable=True))
    }
    return CatalogTable(database, name, columns, keys or (PRIMARY,))


def _inventory(*tables: CatalogTable, folds_names: bool = False) -> Inventory:
    found = {(table.database, table.table): table for table in tables}
    return Inventory(tables=found, folds_names=folds_names)


def _key(child: str, parent: str, *, cascades: bool = True) -> ForeignKey:
    actions = Actions(on_delete=Action.CASCADE) if cascades else NO_ACTIONS
    return ForeignKey(("shop", child), ("p",), ("shop", parent), ("id",), actions)


def _sources(*names: str) -> list[SourceTable]:
    return [SourceTable(("shop", name), _table(name)) for name in names]


ALL = Admission(TableFilter(), ALL_TABLES)


def test_tables_that_both_tasks_admit_are_loaded() -> None:
    """The heartbeat's table and system tables are not; names are compared as each server stores them."""
    source = _inventory(
        _table("a"), _table("b"), _table("c"), _table("hb"), _table("user", database="mysql")
    )
    admission = Admission(
        TableFilter(exclude=("shop.a",), hidden="shop.hb"),
        view_of_filter(TableFilter(exclude=("shop.b",))),
    )
    found = tables_to_load(source, Inventory(), admission, logs_cascades=True)
    assert [table.name for table in found] == ["shop.c"]
    mixed = _inventory(_table("Mixed"))
    (table,) = tables_to_load(mixed, Inventory(folds_names=True), ALL, logs_cascades=True)
    assert (table.key, table.name) == (("shop", "mixed"), "shop.Mixed")


def test_tables_that_become_one_on_the_target_are_refused() -> None:
    """The target stores names in lower case, the source does not."""
    source = _inventory(_table("T"), _table("t"))
    with pytest.raises(Fatal, match=r"one table for shop\.T and shop\.t") as caught:
        tables_to_load(source, Inventory(folds_names=True), ALL, logs_cascades=True)
    assert caught.value.code == "MR-5092"


def test_table_without_transactions_is_refused() -> None:
    """Its rows are visible before the binlog has them."""
    source = _inventory(replace(_table("t"), engine="MyISAM", rolls_back=False))
    with pytest.raises(Fatal, match="MyISAM") as caught:
        tables_to_load(source, Inventory(), ALL, logs_cascades=True)
    assert caught.value.code == "MR-5095"


def test_table_that_safe_mode_refuses_is_read_in_one_snapshot() -> None:
    """Also one whose key only the source has, and one with triggers on the target."""
    nullable = UniqueKey("u", ("v",), is_whole=True)
    period = replace(PRIMARY, has_period=True)
    for table, there in (
        (_table("t", nullable), None),
        (_table("t"), _table("t", nullable)),
        (_table("t", PRIMARY, replace(period, name="w")), None),
        (replace(_table("t"), is_versioned=True), None),
        (_table("t", PRIMARY, replace(nullable, by_session=True)), None),
    ):
        assert _why(table, *([] if there is None else [there]))
    assert not _why(_table("t"), _table("t"))
    fires = replace(_inventory(_table("t")), triggers={("shop", "t"): ("fires",)})
    assert "triggers" in why_snapshot(SourceTable(("shop", "t"), _table("t")), fires)


def _why(table: CatalogTable, *there: CatalogTable) -> str:
    return why_snapshot(SourceTable(table.key, table), _inventory(*there))


def test_tables_that_a_cascade_links_share_a_snapshot() -> None:
    """Directly or not; a table that is not loaded links nothing."""
    keys = [_key("c", "b"), _key("b", "a"), _key("d", "e", cascades=False), _key("d", "z")]
    found = linked(_sources("a", "b", "c", "d"), keys)
    assert [bool(table.why_snapshot) for table in found] == [True, True, True, False]
    shared = [[table.key[1] for table in group] for group in groups(found)]
    assert shared == [["a", "b", "c"], ["d"]]


@pytest.mark.parametrize("parent", ["a", "b"])
def test_child_that_refuses_a_deletion_is_in_the_snapshot(parent: str) -> None:
    """The target checks a DELETE that cascades. A child row of a later state would refuse it."""
    keys = [_key("b", "a"), _key("c", parent, cascades=False), _key("d", "c", cascades=False)]
    found = linked(_sources("a", "b", "c", "d"), keys)
    shared = [[table.key[1] for table in group] for group in groups(found)]
    assert shared == [["a", "b", "c"], ["d"]]


def test_child_without_a_key_takes_its_parent_into_its_snapshot() -> None:
    """Its rows are exact, so a repeated DELETE of the parent would delete rows that came later."""
    tables = _sources("a", "b")
    tables[1] = replace(tables[1], why_snapshot="it has no usable key")
    found = linked(tables, [_key("b", "a")])
    assert [table.key[1] for table in groups(found)[0]] == ["a", "b"]


def test_later_load_has_all_linked_tables() -> None:
    """Over foreign keys of any kind, directly or not."""
    keys = [_key("b", "a", cascades=False), _key("c", "b"), _key("e", "d")]
    assert {name for _, name in with_linked([("shop", "a")], keys)} == {"a", "b", "c"}
    assert with_linked([("shop", "x")], keys) == {("shop", "x")}


def test_tables_linked_outside_their_load_are_found() -> None:
    """With all that is linked with them; a table that is not one of the task's does not count."""
    keys = [_key("c", "p"), _key("d", "c", cascades=False), _key("x", "y"), _key("x", "x")]
    c, d, p, x = (("shop", name) for name in "cdpx")
    known = frozenset({c, d, p, x})
    assert linked_apart({c, x}, {c, d, x}, known, keys) == {c, d, p}
    assert linked_apart({x}, {c, x}, known, keys) == frozenset()
    assert linked_apart({c}, {c, d, p}, known, keys) == frozenset()


def test_table_of_another_structure_is_refused_with_the_difference() -> None:
    """Widths of integers and the order of columns make none."""
    here = SourceTable(("shop", "t"), _table("t"))
    wide = {"v": _column("v", "varchar(9)", nullable=True), "id": _column("id", "int(11)")}
    check_same(here, replace(_table("t"), columns=wide), is_same_flavour=True)
    other = replace(
        _table("t", UniqueKey("u", ("v",), is_whole=True)),
        columns={"id": _column("id", "bigint"), "w": _column("w")},
        engine="MyISAM",
        rolls_back=False,
    )
    found = differences(here.table, other)
    assert found == [
        "column id is int NOT NULL, on the target bigint NOT NULL",
        "only the source has column v",
        "only the target has column w",
        "only the source has the unique key (id)",
        "only the target has the unique key (v)",
        "its engine on the target is MyISAM",
    ]
    with pytest.raises(Fatal, match="and 1 more") as caught:
        check_same(here, other, is_same_flavour=True)
    assert caught.value.code == "MR-5092"
    assert "column id" not in " ".join(differences(here.table, other, is_same_flavour=False))


@pytest.mark.parametrize(
    ("asked", "source_folds", "target_folds", "found"),
    [
        ("shop.Mixed", False, False, ("shop", "Mixed")),
        ("shop.mixed", False, False, None),
        ("SHOP.MIXED", False, True, ("shop", "mixed")),
        ("SHOP.LOW", True, False, ("shop", "low")),
        ("shop.low", True, True, ("shop", "low")),
    ],
)
def test_asked_name_is_compared_as_the_servers_do(
    asked: str, *, source_folds: bool, target_folds: bool, found: tuple[str, str] | None
) -> None:
    """If one of them stores names in lower case, the case does not matter; else the other name is near."""
    names = ("low",) if source_folds else ("Mixed", "low")
    source = _inventory(*map(_table, names), folds_names=source_folds)
    known = Known(source, _inventory(folds_names=target_folds), ALL)
    if found is not None:
        assert chosen([asked], known) == {found}
        return
    with pytest.raises(Fatal, match=r"did you mean shop\.Mixed\?") as caught:
        chosen([asked], known)
    assert caught.value.code == "MR-4209"


def test_pattern_of_tables_to_load_is_refused_by_its_name() -> None:
    """Not as a table that is missing. A table whose name has an asterisk can be loaded."""
    known = Known(_inventory(_table("a*b"), _table("t")), _inventory(), ALL)
    with pytest.raises(Fatal, match="is a pattern") as caught:
        chosen(["shop.*"], known)
    assert caught.value.code == "MR-4236"
    assert "Name each table" in caught.value.fix
    assert chosen(["shop.a*b"], known) == {("shop", "a*b")}
