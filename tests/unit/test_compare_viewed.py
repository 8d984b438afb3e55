"""The rows that the source selects for a comparison under a view, and the rows of the target beside them."""

import pickle
from dataclasses import replace

import pytest

from millrace.consumer.compare.table import Pair, viewed_pair
from millrace.consumer.compare.viewed import PRIMARY, ViewedRows, viewed_rows
from millrace.drivers.mysql.catalog import CatalogColumn, CatalogTable, UniqueKey
from millrace.drivers.mysql.chunks.chunk import Border, Chunk
from millrace.drivers.mysql.table_schema import table_schema
from millrace.schemas.gtid import Flavour
from millrace.schemas.view.table_view import RuleProblem
from millrace.schemas.view.view import Mask, MaskKind, TableRule, View

COLLATIONS = {"utf8mb4_bin": 46, "utf8mb4_general_ci": 45}


def column(name: str, base: str, collation: str = "") -> CatalogColumn:
    """A column of this type."""
    charset = collation.partition("_")[0]
    return CatalogColumn(name, base, base, charset, collation, False, generated=False)


def made(name: str, *columns: CatalogColumn, keys: tuple[UniqueKey, ...] = ()) -> CatalogTable:
    """A table with these columns."""
    database, name = name.split(".")
    return CatalogTable(database, name, {one.name: one for one in columns}, keys)


SOURCE = made(
    "shop.orders",
    column("id", "bigint"),
    column("note", "text", "utf8mb4_bin"),
    column("mail", "varchar", "utf8mb4_bin"),
    keys=(
        UniqueKey("PRIMARY", ("id",), is_whole=True),
        UniqueKey("notes", ("note",), is_whole=True),
    ),
)
TARGET = made(
    "w.sales",
    column("EMAIL", "varchar", "utf8mb4_bin"),
    column("key", "bigint"),
    column("shard", "char", "utf8mb4_general_ci"),
    column("part", "int"),
    keys=(UniqueKey("PRIMARY", ("key",), is_whole=True),),
)
RULE = TableRule(
    "shop.*",
    "w.sales",
    where="note = 'paid' OR id > 3",
    drop=("note",),
    rename=(("mail", "email"), ("id", "key")),
    add=(("shard", "{table}"), ("part", -3)),
)


def viewed(rule: TableRule = RULE, target: CatalogTable = TARGET) -> ViewedRows:
    """The rows of the rule."""
    schema = table_schema(SOURCE, Flavour.MYSQL, COLLATIONS)
    return viewed_rows(SOURCE, schema, target, View((rule,)), folds=False)


def pair() -> Pair:
    """Both sides under the rule."""
    return viewed_pair(viewed(), TARGET)


def test_source_selects_the_columns_and_rows_of_the_view() -> None:
    """Under the target's names. The texts of the condition have their character set and collation."""
    condition = "((`note` = _utf8mb4 x'70616964' COLLATE utf8mb4_bin) OR (`id` > 3))"
    assert viewed().rows == (
        "(SELECT `id` AS `key`, `mail` AS `email`, _utf8mb4 x'6f7264657273' COLLATE utf8mb4_bin AS `shard`,"
        f" CAST(-3 AS SIGNED) AS `part` FROM `shop`.`orders` WHERE {condition}) AS viewed"
    )
    assert list(viewed().table.columns) == ["key", "email", "shard", "part"]
    assert [key.name for key in viewed().table.unique_keys] == [PRIMARY]
    assert pair().source.sums(Chunk(0)).endswith(f"FROM {viewed().rows} WHERE TRUE")
    assert pair().name == "shop.orders (w.sales)"
    assert pickle.loads(pickle.dumps(pair())) == pair()  # executors get it


def test_target_is_read_where_it_has_the_constants() -> None:
    """Byte by byte: a collation may call another shard equal. No read is without the condition."""
    limits = "CAST(CONVERT(`shard` USING utf8mb4) AS BINARY) = x'6f7264657273' AND `part` = -3"
    chunk = Chunk(0, Border(("1",)), Border(("5",)))
    target, name = pair().target, ("4",)
    assert pair().is_keyed
    for sql in (
        target.sums(chunk),
        target.all_rows(chunk),
        target.states([name]),
        target.sums(Chunk(0)),
    ):
        assert f"WHERE {limits} AND (" in sql
    assert f"{limits} AND (`key` > 1 AND `key` <= 5)" in target.sums(chunk)
    assert pair().columns == ["key", "email", "shard", "part"]


def test_constants_for_other_types_and_masked_columns_are_left_out() -> None:
    """Each with its reason, and the target is not limited by them. Also masks that a server could compute."""
    masks = (("email", Mask(MaskKind.TRUNCATE, length=1)),)
    dates = replace(
        TARGET,
        columns={
            **TARGET.columns,
            "shard": column("shard", "date"),
            "part": TARGET.columns["shard"],
        },
    )
    found = viewed(replace(RULE, masks=masks), dates)
    assert found.unread == ("email (masked)", "shard (a constant for another type)")
    assert list(found.table.columns) == ["key", "part"]
    assert found.limits == "CAST(CONVERT(`part` USING utf8mb4) AS BINARY) = x'2d33'"
    words = replace(RULE, add=(("part", "03"),))
    assert viewed(words).unread == ("part (a constant for another type)",)
    assert viewed(replace(RULE, add=(("part", "3"),))).limits == "`part` = 3"


def test_keyed_row_is_named_by_the_column_of_the_view() -> None:
    """A key with a column that is not in the view names no row."""
    assert viewed_pair(viewed(), TARGET).shown_key == ("key",)
    without = replace(TARGET, unique_keys=())
    assert not viewed_pair(viewed(), without).is_keyed
    assert viewed_pair(viewed(), without).shown_key == ("key",)


def test_repair_knows_what_the_view_does_not_compare() -> None:
    """A missing row would be without it; without a constant it is unknown whose a row is."""
    found = viewed_pair(viewed(), TARGET)
    assert (found.unread, found.is_limited) == (
        viewed().unread + tuple(found.only_on(found.source)),
        True,
    )
    words = viewed(replace(RULE, add=(("part", "03"),)))
    pair = viewed_pair(words, TARGET)
    assert not pair.is_limited


def test_rule_that_does_not_fit_is_a_problem() -> None:
    """Also a text whose collation the source has not weighed."""
    source = replace(
        SOURCE,
        columns={**SOURCE.columns, "note": column("note", "text", "utf8mb4_general_ci")},
    )
    schema = table_schema(source, Flavour.MYSQL, COLLATIONS)
    with pytest.raises(RuleProblem, match="where"):
        viewed_rows(source, schema, TARGET, View((RULE,)), folds=False)
    with pytest.raises(RuleProblem, match=r"columns\.drop"):
        viewed(replace(RULE, drop=("missing",)))
