"""Which keys of a table are comparable, what they compare, and which tables are applied in order."""

from dataclasses import replace

import numpy as np

from millrace.consumer.kernel import hashes
from millrace.consumer.records.numbers import RecordNumbers
from millrace.consumer.records.row_schemas import RowSchemas
from millrace.consumer.records.rows import walk_values
from millrace.consumer.tables.causality_keys import find_keys
from millrace.consumer.tables.table_plans import Catalogue, TablePlans
from millrace.drivers.mysql.catalog import (
    CatalogColumn,
    CatalogTable,
    ForeignKey,
    Inventory,
    TableKey,
    UniqueKey,
)
from millrace.schemas.record.avro_schema import envelope_schema
from millrace.schemas.table.structure import Column, ColumnType, TableSchema, TypeCode
from tests.kit.apply.folds import general_fold
from tests.kit.apply.tables import UTF8, integer, table, text
from tests.kit.apply.topic import SET, RecordStream
from tests.kit.apply.values import values_of

FOLDS = {"utf8mb4_general_ci": general_fold()}
_PLAIN = ("", "")
_FOLDED = ("utf8mb4", "utf8mb4_general_ci")


def _target(name: str, keys: tuple[UniqueKey, ...], **types: str) -> CatalogTable:
    columns = {
        column: CatalogColumn(
            column,
            type_,
            type_.split("(")[0].split(" ")[0],
            *(_FOLDED if type_.startswith(("varchar", "text", "enum", "set")) else _PLAIN),
            column != "id",
            False,
        )
        for column, type_ in types.items()
    }
    return CatalogTable("shop", name, columns, keys)


def _plans(
    sources: list[TableSchema], targets: list[CatalogTable], *foreign: ForeignKey
) -> TablePlans:
    texts = {100 + at: envelope_schema(SET, source).text for at, source in enumerate(sources)}
    tables: dict[TableKey, CatalogTable] = {("shop", each.table): each for each in targets}
    inventory = Inventory(tables=tables, foreign_keys=foreign, folds=FOLDS)
    return TablePlans(Catalogue("1", RowSchemas(texts), inventory))


def _unique_hashes(source: TableSchema, target: CatalogTable, *values: object) -> list[int]:
    """The hash of each inserted value of column ``v``, under the last key of the table."""
    plans = _plans([source], [target])
    stream = RecordStream()
    for number, value in enumerate(values):
        stream.insert(source, {"id": number, "v": value})
    rows = walk_values(values_of(stream.values[1:]), plans.programs)
    entries = find_keys(rows, plans.key_programs([0]), RecordNumbers(np.arange(len(rows))))
    taken = {}
    for owner, key, mode in zip(entries.owners, entries.hashes, entries.modes, strict=True):
        if int(mode) == hashes.EXCLUSIVE:
            taken[int(owner)] = int(key)  # the keys of a record come in the order of its lines
    return [taken[number] for number in range(len(values))]


PRIMARY = UniqueKey("PRIMARY", ("id",), True)


def test_prefix_key_compares_only_the_first_characters() -> None:
    """UNIQUE (v(3)): texts that differ later share a key, and characters are counted, not bytes."""
    source = table("shop", "t", integer("id"), text("v"))
    prefix = UniqueKey("v", ("v",), False, lengths=(3,))
    target = _target("t", (PRIMARY, prefix), id="int", v="varchar(20)")
    one, other, short, long, blank = _unique_hashes(
        source, target, "äbcX", "ABCY", "abd", "äb", "ab "
    )
    assert one == other
    assert one != short
    assert long == blank
    assert _plans([source], [target]).tables_in_order() == ()


def test_prefix_key_of_unknown_length_is_not_compared() -> None:
    """An inventory without the lengths, as of an expression: all changes in order."""
    source = table("shop", "t", integer("id"), text("v"))
    target = _target("t", (PRIMARY, UniqueKey("v", ("v",), False)), id="int", v="varchar(20)")
    assert _plans([source], [target]).tables_in_order() == (
        ("shop.t", "unique key over an expression"),
    )


def test_zero_and_minus_zero_share_a_key() -> None:
    """The server calls them equal, though their bytes differ."""
    double = Column("v", ColumnType(TypeCode.DOUBLE, 8), nullable=True)
    source = table("shop", "t", integer("id"), double)
    target = _target("t", (PRIMARY, UniqueKey("v", ("v",), True)), id="int", v="double")
    zero, minus, one, minus_one = _unique_hashes(source, target, 0.0, -0.0, 1.0, -1.0)
    assert zero == minus
    assert len({zero, one, minus_one}) == 3


def test_collation_without_a_fold_is_applied_in_order() -> None:
    """The reason names the column, its type and its collation."""
    source = table("shop", "t", integer("id"), text("v"))
    target = _target("t", (PRIMARY, UniqueKey("v", ("v",), True)), id="int", v="varchar(20)")
    odd = replace(target.columns["v"], collation="tis620_thai_ci")
    target = replace(target, columns={**target.columns, "v": odd})
    assert _plans([source], [target]).tables_in_order() == (
        ("shop.t", "key column v varchar(20) tis620_thai_ci"),
    )


def _family(child_type: str, parent_type: str, code: TypeCode) -> TablePlans:
    key = Column("k", ColumnType(code), nullable=True)
    sources = [table("shop", name, integer("id"), key) for name in ("child", "parent")]
    parent_key = UniqueKey("k", ("k",), True)
    targets = [
        _target("child", (PRIMARY,), id="int", k=child_type),
        _target("parent", (PRIMARY, parent_key), id="int", k=parent_type),
    ]
    foreign = ForeignKey(("shop", "child"), ("k",), ("shop", "parent"), ("k",))
    return _plans(sources, targets, foreign)


def test_foreign_key_over_dates_is_parallel() -> None:
    """Both sides have the same type, and the source too."""
    assert _family("date", "date", TypeCode.DATE).tables_in_order() == ()


def test_foreign_key_over_other_types_is_applied_in_order() -> None:
    """Different types on the target, or another type at the source: equal keys may have other bytes."""
    why = dict(_family("bigint", "int", TypeCode.LONG).tables_in_order())
    assert set(why) == {"shop.child", "shop.parent"}
    assert set(dict(_family("datetime", "datetime", TypeCode.DATE).tables_in_order())) == set(why)
    assert set(dict(_family("int", "int", TypeCode.DOUBLE).tables_in_order())) == set(why)


def test_set_is_comparable_if_both_sides_have_its_labels() -> None:
    """Each set then has one text. Otherwise two texts may be one set of the target, so changes are applied in order."""
    labels = ("red", "Green", "it's")
    kind = ColumnType(TypeCode.SET, 1, text=UTF8, labels=labels)
    source = table("shop", "t", integer("id"), Column("v", kind, True))
    key = UniqueKey("v", ("v",), True)
    sets = ("red", "Green", "red,Green", "red,it's", "")
    for there, is_exact in (
        ("set('red','green','it''s')", True),
        ("set('green','red','it''s')", False),
        ("set('red','it''s')", False),
        ("enum('red','green','it''s')", False),
    ):
        target = _target("t", (PRIMARY, key), id="int", v=there)
        assert bool(_plans([source], [target]).tables_in_order()) != is_exact, there
        if is_exact:
            found = _unique_hashes(source, target, *sets, "red,Green")
            assert found[2] == found[-1]
            assert len(set(found)) == len(sets)
