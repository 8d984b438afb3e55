"""Records under the names and columns of a view: the layout, the plan of the target's table, the stored record."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from millrace.consumer.compare.tables import admitted
from millrace.consumer.load.tables import Admission
from millrace.consumer.records.row_schemas import RowSchemas, make_programs
from millrace.consumer.records.rows import Rows, Values, walk_values
from millrace.consumer.tables.filter import Route
from millrace.consumer.tables.plan_key import plan_key
from millrace.consumer.tables.table_plan import plan_table, record_indexes
from millrace.consumer.tables.table_plans import Catalogue, TablePlans
from millrace.consumer.view.layout import ViewedTable, viewed_table, visible_table
from millrace.consumer.view.record import view_record
from millrace.drivers.mysql.catalog import CatalogColumn, CatalogTable, Inventory, UniqueKey
from millrace.errors import Fatal
from millrace.schemas.record.avro_codec import decode
from millrace.schemas.record.avro_schema import envelope_schema
from millrace.schemas.record.row_layout import RowLayout
from millrace.schemas.table.structure import TableSchema
from millrace.schemas.view.view import ALL_TABLES, TableRule, View
from tests.kit.apply.tables import integer, table, text
from tests.kit.apply.topic import SET, RecordStream
from tests.kit.control.control import a_capture, a_set, an_apply

ORDERS = table("shop", "orders", integer("id"), text("note"), text("mail"), integer("email"))
RULE = TableRule(
    "shop.*", "w.{table}_1", drop=("note", "email"), rename=(("mail", "email"), ("id", "key"))
)


def _viewed(*rules: TableRule, source: TableSchema = ORDERS, folds: bool = False) -> ViewedTable:
    found = viewed_table(View(rules), RowLayout.of("set", source), folds=folds)
    assert found is not None
    return found


def test_places_of_columns_stay_those_of_the_record() -> None:
    """A hidden column is found by no name, not even by one that another column has now."""
    viewed = _viewed(RULE)
    assert [column.name for column in viewed.layout.table.columns] == [
        "key",
        "note",
        "email",
        "email",
    ]
    assert viewed.layout.hidden == {1, 3}
    assert record_indexes(viewed.layout, ("EMAIL", "key")) == (2, 0)
    assert record_indexes(viewed.layout, ("note",)) is None
    assert viewed.layout.table.primary_key == (0,)
    assert viewed.shown == "shop.orders (w.orders_1)"
    assert visible_table(viewed.layout).full_name == "w.orders_1"


def test_table_that_a_view_only_admits_keeps_its_layout() -> None:
    """The same object: existing tasks plan what they planned before."""
    layout = RowLayout.of("set", ORDERS)
    found = viewed_table(ALL_TABLES, layout)
    assert found is not None
    assert found.layout is layout
    assert (found.is_changed, found.shown) == (False, "shop.orders")
    assert viewed_table(View((TableRule("other.*"),)), layout) is None


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (TableRule("shop.*", "w.{table}", drop=("nothing",)), "MR-5201"),
        (TableRule("shop.*", "w.{table}", drop=("id",)), "MR-5201"),
        (TableRule("shop.*", "w.{table}", rename=(("id", "note"),)), "MR-5201"),
        (TableRule("shop.*", "w." + "{table}" * 11), "MR-5206"),
        (TableRule("*.*", "{2}.t"), "MR-5206"),
    ],
)
def test_rule_that_does_not_suit_is_refused(rule: TableRule, code: str) -> None:
    """A filled name may be too long, or that of a system database; others are checked with the document."""
    source = replace(ORDERS, table="MySQL") if "{2}" in rule.target else ORDERS
    with pytest.raises(Fatal, match=code):
        _viewed(rule, source=source)


def test_period_of_a_versioned_table_is_not_left_out() -> None:
    """A deletion is an update of its end: without the columns, deleted rows would stay."""
    source = table("shop", "t", integer("id"), integer("row_start"), integer("row_end"))
    with pytest.raises(Fatal, match=r"MR-5206.*row_start|MR-5206.*row_end"):
        _viewed(TableRule("shop.*", keep=("id",)), source=source)


def test_unlogged_columns_follow_the_rule() -> None:
    """MariaDB omits generated columns: dropped ones are no column that the target must generate."""
    source = table("shop", "t", integer("id"), integer("w"), integer("x")).without(
        (True, False, False)
    )
    viewed = _viewed(TableRule("shop.*", "w.t", drop=("W",), rename=(("x", "y"),)), source=source)
    assert viewed.layout.table.omitted == ("y",)


def _column(name: str, base: str = "int", **more: Any) -> CatalogColumn:
    charset = ("utf8mb4", "utf8mb4_general_ci") if base == "varchar" else ("", "")
    return CatalogColumn(name, base, base, *charset, more.pop("nullable", True), False, **more)


def _target(*columns: CatalogColumn) -> Inventory:
    made = CatalogTable(
        "w",
        "orders_1",
        {column.name: column for column in columns},
        (UniqueKey("PRIMARY", ("key",), True),),
    )
    return Inventory(tables={made.key: made})


KEY, EMAIL = _column("key", nullable=False), _column("email", "varchar")


def test_plan_maps_columns_by_name() -> None:
    """The target has another order, and columns that no record has."""
    plan = plan_table(_viewed(RULE), _target(_column("more"), EMAIL, KEY))
    assert [(at, column.name) for at, column in plan.columns] == [(0, "key"), (2, "email")]
    assert plan.identity == (0,)
    assert plan.insert.lead == b"INSERT INTO `w`.`orders_1` (`key`,`email`) VALUES "
    assert [column.name for column in plan.unwritten] == ["more"]


@pytest.mark.parametrize(
    ("columns", "code", "says"),
    [
        ((KEY, _column("post", "varchar")), "MR-5013", "rename: {email: post}"),
        ((KEY, EMAIL, _column("must", nullable=False)), "MR-5206", "must of the target"),
        ((KEY, EMAIL, _column("must", nullable=False, has_default=True)), "", ""),
        ((KEY, EMAIL, _column("must", nullable=False, is_auto_increment=True)), "", ""),
    ],
)
def test_target_must_have_what_the_view_gives_and_needs(
    columns: tuple[CatalogColumn, ...], code: str, says: str
) -> None:
    """The fix has the line of the rule that maps it."""
    if not code:
        plan_table(_viewed(RULE), _target(*columns))
        return
    with pytest.raises(Fatal, match=code) as caught:
        plan_table(_viewed(RULE), _target(*columns))
    assert says in f"{caught.value.message} {caught.value.fix}"


def _walked(schema: str, *values: bytes) -> Rows:
    number = int.from_bytes(values[0][1:5], "big")
    bounds = np.cumsum([0, *map(len, values)])
    payload = np.frombuffer(b"".join(values), np.uint8)
    return walk_values(Values(payload, bounds), make_programs(RowSchemas({number: schema})))


def test_stored_record_has_the_view_and_is_read_again() -> None:
    """Each operation, NULL and text; nothing of a hidden column is in it."""
    stream = RecordStream()
    before = {"id": 7, "note": "hidden", "mail": None, "email": 5}
    after = before | {"mail": "é", "note": "hidden too"}
    stream.insert(ORDERS, before)
    stream.update(ORDERS, before, after)
    stream.delete(ORDERS, after)
    layout = RowLayout.of(SET, ORDERS)
    raw = envelope_schema(layout.set_name, ORDERS).text
    rows = _walked(raw, *(value for value in stream.values if value[5] in (0, 2)))
    assert len(rows) == 3
    viewed = viewed_table(View((RULE,)), layout)
    assert viewed is not None
    found = [
        view_record(rows, number, layout=viewed.layout, schema_text=raw) for number in range(3)
    ]
    assert not any(b"hidden" in value for value, _ in found)
    bodies = [decode(schema, value[5:]) for value, schema in found]
    one, two = {"key": 7, "email": None}, {"key": 7, "email": "é"}
    assert [(body["op"], body["before"], body["after"]) for body in bodies] == [
        ("c", None, one),
        ("u", one, two),
        ("d", two, None),
    ]
    assert {body["source"]["table"] for body in bodies} == {"orders_1"}  # type: ignore[index]
    assert all(len(_walked(schema, value)) == 1 for value, schema in found)


def test_loads_of_merges_are_refused() -> None:
    """Also with an old document: they would delete rows of others."""
    task = replace(an_apply(), view=View((RULE,)))
    merging = replace(task, view=View((RULE, replace(RULE, source="shop.*", merge=True))))
    with pytest.raises(Fatal, match="MR-4116"):
        Admission.of(a_set(), a_capture(), merging)
    Admission.of(a_set(), a_capture(), task)
    assert admitted(a_set(), a_capture(), task)("shop", "orders")


def test_view_is_part_of_the_plan_key() -> None:
    """Shares of a spread turn with other views would compute other lanes."""
    one, two = (
        plan_key(TablePlans(Catalogue("", route=Route(View((rule,))))))
        for rule in (RULE, replace(RULE, drop=("note",)))
    )
    assert one != two


def test_texts_keep_their_case_on_a_folding_target() -> None:
    """Patterns are compared without case; the target stores the table's name in lower case."""
    source = replace(ORDERS, database="SHOP_Eu")
    rule = TableRule("shop_*.ORDERS", "w.{table}_1", drop=("email",), add=(("part", "{1}"),))
    viewed = _viewed(rule, source=source, folds=True)
    assert viewed.layout.table.full_name == "w.orders_1"
    assert [constant.content for constant in viewed.constants] == [b"Eu"]
    assert viewed_table(View((rule,)), RowLayout.of("set", source)) is None
