"""The definition of a table under a view, line by line."""

import pytest

from millrace.schemas.table.structure import TableSchema
from millrace.schemas.view.definition import Definition, Parent, viewed_definition
from millrace.schemas.view.table_view import apply_view
from millrace.schemas.view.view import Mask, MaskKind, TableRule, View
from tests.kit.apply.tables import integer, table, text

TEXT = r"""CREATE TABLE `orders` (
  `id` int NOT NULL AUTO_INCREMENT COMMENT 'a, (b) ''c''',
  `mail` varchar(80) COLLATE utf8mb4_bin DEFAULT 'planted' COMMENT 'planted',
  `no``te` text,
  `buyer` int DEFAULT NULL,
  `total` int DEFAULT (`buyer` + 1) /*!80023 INVISIBLE */,
  `twice` int GENERATED ALWAYS AS ((`total` * 2)) STORED NOT NULL,
  `size` int GENERATED ALWAYS AS (length(`no``te`)) VIRTUAL COMMENT 'kept',
  PRIMARY KEY (`id`),
  UNIQUE KEY `by_note` (`no``te`(5)),
  KEY `by_mail` (`mail`(10),`buyer`),
  KEY `by_lower` ((lower(`mail`))),
  FULLTEXT KEY `words` (`mail`),
  CONSTRAINT `fk` FOREIGN KEY (`buyer`) REFERENCES `buyers` (`id`) ON DELETE CASCADE,
  CONSTRAINT `orders_chk_1` CHECK ((`total` > 0)),
  CONSTRAINT `orders_chk_2` CHECK ((`buyer` <> 13))
) ENGINE=InnoDB AUTO_INCREMENT=7 DEFAULT CHARSET=utf8mb4 COMMENT='x'
/*!50100 PARTITION BY HASH (`id`)
PARTITIONS 4 */"""


def _schema() -> TableSchema:
    names = [integer("id"), text("mail"), text("no`te"), integer("buyer", nullable=True)]
    names += [integer("total"), integer("twice"), integer("size")]
    return table("shop", "orders", *names)


def _made(rule: TableRule, parent: Parent | None = None) -> Definition:
    schema = _schema()
    view = apply_view(View((rule,)), schema)
    assert view is not None
    return viewed_definition(TEXT, view, schema, lambda *_: parent)


def test_renamed_table_keeps_all_but_foreign_keys() -> None:
    """Constraints are without their names, which may be those of another table there."""
    found = _made(TableRule("shop.orders", "house.sales"))
    assert found.sql.startswith(
        "CREATE TABLE `house`.`sales` (\n  `id` int NOT NULL AUTO_INCREMENT COMMENT"
    )
    assert found.left_out == (
        "CONSTRAINT `fk` FOREIGN KEY (`buyer`) REFERENCES `buyers` (`id`) ON DELETE CASCADE",
    )
    assert "orders_chk" not in found.sql
    assert "CHECK ((`total` > 0))" in found.sql
    assert "(length(`no``te`)) VIRTUAL COMMENT 'kept'" in found.sql
    assert found.sql.endswith("PARTITIONS 4 */")


def test_everything_follows_a_renamed_column_or_is_left_out() -> None:
    """Keys and foreign keys follow; an expression can't."""
    rule = TableRule("shop.orders", "house.sales", rename=(("id", "no"), ("buyer", "who")))
    found = _made(rule, Parent(("house", "people"), {"id": "nr"}))
    assert "PRIMARY KEY (`no`)" in found.sql
    assert "KEY `by_mail` (`mail`(10),`who`)" in found.sql
    foreign = "FOREIGN KEY (`who`) REFERENCES `house`.`people` (`nr`) ON DELETE CASCADE"
    assert foreign in found.sql
    assert "`total` int  /*!80023 INVISIBLE */" in found.sql
    assert "PARTITION" not in found.sql
    assert found.left_out == (
        "a CHECK or a period of columns that change",
        "the default of total",
        "the partitions",
    )


def test_hidden_columns_take_what_names_them_along() -> None:
    """A dropped, a masked and a shortened column; nothing that was planted in the source's definition is left."""
    mask = Mask(MaskKind.HMAC, secret="file:/salt")
    rule = TableRule(
        "shop.orders",
        "house.sales",
        drop=("no`te",),
        add=(("shard", "s"), ("part", 1)),
        masks=(("mail", mask),),
    )
    found = _made(rule)
    assert "planted" not in found.sql
    assert "no``te" not in found.sql
    assert "`mail` varchar(64) CHARACTER SET ascii COLLATE ascii_bin" in found.sql
    assert "KEY `by_mail` (`mail`,`buyer`)" in found.sql
    assert "`size` int COMMENT 'kept'" in " ".join(found.sql.split())
    assert "`twice` int GENERATED ALWAYS AS ((`total` * 2)) STORED NOT NULL" in found.sql
    shard = (
        "`shard` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,\n  `part` bigint"
    )
    assert shard in found.sql
    assert {"KEY `by_lower` ((lower(`mail`)))", "UNIQUE KEY `by_note` (`no``te`(5))"} <= {
        *found.left_out
    }
    assert "the expression of the generated column size" in found.left_out


@pytest.mark.parametrize("mask", [Mask(MaskKind.REDACT), Mask(MaskKind.TRUNCATE, length=2)])
def test_masked_column_keeps_its_type_alone(mask: Mask) -> None:
    """Its default and its comment may show values."""
    found = _made(TableRule("shop.orders", masks=(("mail", mask),)))
    assert "`mail` varchar(80) COLLATE utf8mb4_bin NULL" in found.sql.replace("NOT NULL", "NULL")
    assert "planted" not in found.sql
