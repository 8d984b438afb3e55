"""Shards of one table, a view that merges them, and the target's table."""

from collections.abc import Sequence
from typing import Any

from millrace.consumer.records.row_schemas import RowSchemas
from millrace.consumer.records.rows import Rows, walk_values
from millrace.consumer.tables.filter import Route
from millrace.consumer.tables.table_plans import Catalogue, TablePlans
from millrace.drivers.mysql.catalog import (
    CatalogColumn,
    CatalogTable,
    ForeignKey,
    Inventory,
    UniqueKey,
)
from millrace.schemas.record.avro_schema import envelope_schema
from millrace.schemas.table.structure import TableSchema
from millrace.schemas.view.view import TableRule, View
from tests.kit.apply.folds import general_fold
from tests.kit.apply.tables import integer, table, text
from tests.kit.apply.topic import SET, RecordStream
from tests.kit.apply.values import values_of

CI = "utf8mb4_general_ci"
RULE = TableRule("shop_*.orders", "w.orders", add=(("shard", "{1}"),), merge=True)
ID = CatalogColumn("id", "int", "int", "", "", False, False)
NOTE = CatalogColumn("note", "varchar(20)", "varchar", "utf8mb4", CI, True, False)
SHARD = CatalogColumn("shard", "varchar(255)", "varchar", "utf8mb4", CI, False, False)
PRIMARY = UniqueKey("PRIMARY", ("shard", "id"), True)


def shard(name: object) -> TableSchema:
    """The table of one shard."""
    return table(f"shop_{name}", "orders", integer("id"), text("note"))


def merged_target(
    *keys: UniqueKey, columns: Sequence[CatalogColumn] = (ID, NOTE, SHARD), **more: Any
) -> Inventory:
    """The table ``w.orders`` with these columns and unique keys."""
    foreign: tuple[ForeignKey, ...] = more.pop("foreign_keys", ())
    named = {column.name: column for column in columns}
    made = CatalogTable("w", "orders", named, keys or (PRIMARY,), **more)
    folds = {CI: general_fold()}
    return Inventory(tables={made.key: made}, folds=folds, foreign_keys=foreign)


def merging(
    shards: Sequence[TableSchema], known: Inventory, *rules: TableRule
) -> tuple[TablePlans, RecordStream]:
    """The plans of these shards, whose slots are in their order, and a stream that has introduced them."""
    stream = RecordStream()
    for each in shards:
        stream.introduce(each)
    texts = {100 + at: envelope_schema(SET, each).text for at, each in enumerate(shards)}
    route = Route(View(rules or (RULE,)))
    return TablePlans(Catalogue("merged", RowSchemas(texts), known, route)), stream


def walked(plans: TablePlans, stream: RecordStream) -> Rows:
    """The row records of the stream."""
    return walk_values(
        values_of([value for value in stream.values if value[5] in (0, 2)]), plans.programs
    )
