"""Tables of the source that a view merges into one: what is refused, and what their changes share."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from millrace.consumer.kernel import merge
from millrace.consumer.records.numbers import RecordNumbers
from millrace.consumer.tables.merged_sources import rows_condition
from millrace.consumer.write.row_writer import ConflictRule, RowWriter
from millrace.drivers.mysql.actions import Action, Actions
from millrace.drivers.mysql.catalog import CatalogColumn, ForeignKey, Inventory, UniqueKey
from millrace.errors import Fatal
from millrace.schemas.documents import ConflictPolicy
from millrace.schemas.view.view import TableRule
from tests.kit.apply.merged import (
    ID,
    NOTE,
    PRIMARY,
    RULE,
    SHARD,
    merged_target,
    merging,
    shard,
    walked,
)

SHARDS = 8
NUMBER = CatalogColumn("shard", "int", "int", "", "", False, False)
BIN = replace(SHARD, collation="utf8mb4_bin")
LATIN = replace(SHARD, charset="latin1", collation="latin1_german2_ci")


def test_shards_that_differ_are_merged() -> None:
    """The plan of each is one of the same table; a rule without ``merge`` refuses the second one."""
    plans, _ = merging([shard(1), shard(2)], merged_target())
    assert [plans.table_plan(slot).identity for slot in (0, 1)] == [(2, 0), (2, 0)]
    alone, _ = merging([shard(1), shard(2)], merged_target(), replace(RULE, merge=False))
    with pytest.raises(Fatal, match=r"MR-5207.*shop_2\.orders"):
        alone.table_plan(0)


@pytest.mark.parametrize(
    ("keys", "rule", "says"),
    [
        ((UniqueKey("PRIMARY", ("id",), True),), RULE, "unique key PRIMARY"),
        ((PRIMARY, UniqueKey("of_note", ("note",), True)), RULE, "unique key of_note"),
        ((PRIMARY, UniqueKey("part", ("note", "shard"), False, lengths=(0, 1))), RULE, "key part"),
        ((PRIMARY,), replace(RULE, add=(("shard", "all"),)), "unique key PRIMARY"),
    ],
)
def test_each_unique_key_has_an_added_column(
    keys: tuple[UniqueKey, ...], rule: TableRule, says: str
) -> None:
    """Whole, and with a part of the source's name: a constant of all shards parts nothing. One shard is enough."""
    plans, _ = merging([shard(1)], merged_target(*keys), rule)
    with pytest.raises(Fatal, match=f"MR-5208.*{says}"):
        plans.table_plan(0)


@pytest.mark.parametrize(
    ("column", "names", "is_taken"),
    [
        (SHARD, ("a", "b"), True),
        (SHARD, ("A", "a"), False),
        (SHARD, ("é", "e"), False),
        (SHARD, ("a ", "a"), False),
        (SHARD, ("😀", "🎉"), False),
        (BIN, ("A", "a"), True),
        (BIN, ("a ", "a"), False),
        (LATIN, ("a", "b"), False),
        (NUMBER, ("05", "6"), False),
    ],
)
def test_constants_differ_as_the_target_compares_them(
    column: CatalogColumn, names: tuple[str, str], *, is_taken: bool
) -> None:
    """Other bytes are not enough; what can't be compared here is refused, such as texts in a column of numbers."""
    shards = [shard(name) for name in names]
    plans, _ = merging(shards, merged_target(columns=(ID, NOTE, column)))
    if is_taken:
        plans.table_plan(1)
        return
    with pytest.raises(Fatal, match=r"MR-5208.*not apart"):
        plans.table_plan(1)


def test_numbers_of_rules_part_the_shards() -> None:
    """A rule for one table may have any constant; it is compared with those of the others."""
    rules = [
        TableRule(f"shop_{at}.orders", "w.orders", add=(("shard", at),), merge=True)
        for at in (1, 2)
    ]
    known = merged_target(columns=(ID, NOTE, NUMBER))
    plans, _ = merging([shard(1), shard(2)], known, *rules)
    assert plans.table_plan(0).target is plans.table_plan(1).target
    equal = [replace(rule, add=(("shard", 1),)) for rule in rules]
    plans, _ = merging([shard(1), shard(2)], known, *equal)
    with pytest.raises(Fatal, match=r"MR-5208.*shop_1\.orders"):
        plans.table_plan(1)


CASCADE = ForeignKey(
    ("w", "orders"), ("note",), ("w", "notes"), ("note",), Actions(on_delete=Action.CASCADE)
)


@pytest.mark.parametrize(
    ("known", "says"),
    [
        (merged_target(is_versioned=True), "history"),
        (merged_target(foreign_keys=(CASCADE,)), "cascades"),
        (merged_target(columns=(ID, NOTE, replace(SHARD, nullable=True))), "no key"),
    ],
)
def test_what_joins_rows_of_sources_is_refused(known: Inventory, says: str) -> None:
    """History and cascades know no shard, and equal rows of two shards would be one."""
    plans, _ = merging([shard(1)], known)
    with pytest.raises(Fatal, match=f"MR-5208.*{says}"):
        plans.table_plan(0)


class _Session:
    """Answers as a server that finds each row."""

    def __init__(self) -> None:
        self.statements: list[str] = []

    def run(self, sql: bytes) -> int:
        self.statements.append(sql.decode())
        return sql.count(b"),(") + sql.count(b"),ROW(") + 1


def test_one_statement_writes_the_rows_of_all_sources() -> None:
    """INSERT, UPDATE and DELETE of eight shards, each with its own constants, are three statements."""
    shards = [shard(at) for at in range(SHARDS)]
    plans, stream = merging(shards, merged_target())
    for row in range(2):
        for each in shards:
            stream.insert(each, {"id": row, "note": "new"})
    for each in shards:
        stream.update(each, {"id": 7, "note": "one"}, {"id": 7, "note": "two"})
    for each in shards:
        stream.delete(each, {"id": 8, "note": "gone"})
    rows = walked(plans, stream)
    rows, numbers = plans.through_view(rows, RecordNumbers(np.arange(len(rows))))
    session: Any = _Session()
    RowWriter(session, plans, ConflictRule("task", ConflictPolicy.STOP)).write(rows, numbers)
    of_rows = [sql for sql in session.statements if "orders" in sql]
    assert [sql.split()[0] for sql in of_rows] == ["INSERT", "DELETE", "UPDATE"]
    for sql, count in zip(of_rows, (2, 1, 1), strict=True):
        assert [sql.count(f"'{at}'") for at in range(SHARDS)] == [count] * SHARDS, sql


def test_slots_merge_if_their_constants_differ() -> None:
    """Two structures of one shard keep their order; the other shards still merge."""
    again = replace(shard(1), columns=(*shard(1).columns, replace(NOTE_COLUMN, name="more")))
    more = replace(NOTE, name="more")
    known = merged_target(columns=(ID, NOTE, SHARD, more))
    plans, _ = merging([shard(1), shard(2), again, shard(3)], known)
    rules = plans.merge_rules(range(4)).rules[:, merge.MODE]
    assert rules.tolist() == [merge.KEEP, merge.NET, merge.KEEP, merge.NET]
    assert plans.merge_rules([0, 1, 3]).rules[[0, 1, 3], merge.MODE].tolist() == [merge.NET] * 3


NOTE_COLUMN = shard(1).columns[1]


def test_other_structures_have_other_statements() -> None:
    """Rows of shards with other columns are grouped by their columns."""
    other = replace(shard(2), columns=shard(2).columns[:1])
    plans, _ = merging(
        [shard(1), other, shard(3), replace(other, database="shop_4")], merged_target()
    )
    slots: Any = np.array([0, 1, 2, 3, 2])
    assert plans.grouped(slots).tolist() == [0, 1, 0, 1, 0]


def test_constant_that_ends_with_a_space_has_no_condition() -> None:
    """Without padding, it parts its source from that of the same text without the space."""
    target = merged_target().tables["w", "orders"]
    assert rows_condition(target, {"shard": "a"})
    assert rows_condition(target, {"shard": "a "}) is None
    assert rows_condition(target, {"shard": 1}) is None
