"""Every statement of apply names its row by a whole unique key, or by all columns and LIMIT 1. Texts stay literals."""

import re
from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millrace.consumer.tables.row_statements import (
    delete_template,
    insert_template,
    update_template,
)
from millrace.consumer.tables.table_plan import TablePlan, check_names_row, plan_table
from millrace.consumer.view.layout import ViewedTable
from millrace.drivers.mysql.catalog import CatalogColumn, CatalogTable, Inventory, UniqueKey
from millrace.errors import Fatal
from millrace.schemas.gtid import Flavour
from millrace.schemas.record.row_layout import RowLayout
from millrace.schemas.sql.quoting import hex_bytes, number, quoted, string
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import SET

NAMES = ("a", "b", "c", "d")


@dataclass(frozen=True)
class Case:
    """A target table, and which of its columns the record has."""

    target: CatalogTable
    recorded: tuple[str, ...]

    @property
    def table_plan(self) -> TablePlan:
        """Return the binding of the record to the table."""
        return self.plan(Flavour.MYSQL)

    def plan(self, flavour: Flavour) -> TablePlan:
        """The plan for a target of a flavour."""
        made = table("shop", "t", *map(integer, self.recorded), key=())
        inventory = Inventory(flavour, tables={("shop", "t"): self.target})
        return plan_table(ViewedTable.of(RowLayout.of(SET, made)), inventory)

    @property
    def usable(self) -> list[frozenset[str]]:
        """Return the unique keys that name at most one row."""
        keys = (key for key in self.target.unique_keys if key.is_whole)
        columns = self.target.columns
        return [
            frozenset(key.columns)
            for key in keys
            if not any(columns[name].nullable for name in key.columns)
        ]


def _column(name: str, *, nullable: bool = False, generated: bool = False) -> CatalogColumn:
    return CatalogColumn(name, "int", "int", "", "", nullable, generated)


def _table(*columns: CatalogColumn, keys: tuple[UniqueKey, ...]) -> CatalogTable:
    return CatalogTable("shop", "t", {column.name: column for column in columns}, keys)


@st.composite
def _cases(draw: st.DrawFn) -> Case:
    columns = [
        _column(name, nullable=draw(st.booleans()), generated=draw(st.booleans())) for name in NAMES
    ]
    keys = []
    for place in range(draw(st.integers(0, 3))):
        parts = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
        is_expression = draw(st.integers(0, 5)) == 0
        parts = ["", *parts] if is_expression else parts
        is_whole = not is_expression and draw(st.integers(0, 5)) > 0  # else a prefix
        keys.append(UniqueKey(f"k{place}", tuple(parts), is_whole))
    recorded = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    return Case(_table(*columns, keys=tuple(keys)), tuple(recorded))


def _compared(text: bytes) -> set[str]:
    _, has_where, condition = text.partition(b" WHERE ")
    assert has_where, text
    return {name for name in NAMES if quoted(name) in condition.partition(b" SET ")[0]}


@given(_cases(), st.sampled_from([Flavour.MYSQL, Flavour.MARIADB]))
def test_statements_name_a_whole_key_or_a_whole_row(case: Case, flavour: Flavour) -> None:
    """Keys may be generated, nullable, prefix or expression keys, and columns may exist on one side only."""
    table_plan = case.plan(flavour)
    for make in (update_template, delete_template):
        if not table_plan.named:
            with pytest.raises(Fatal, match="MR-5019"):
                make(table_plan, flavour)
            continue
        text = make(table_plan, flavour).glue.tobytes()
        if text.endswith(b" LIMIT 1"):
            assert _compared(text) == {column.name for _, column in table_plan.columns}
        else:
            assert _compared(text) in case.usable
    for pieces in (table_plan.delete, table_plan.update):
        if pieces is not None:
            _, _, joined = pieces.tail.partition(b" ON ")
            assert _compared(b" WHERE " + joined if joined else pieces.lead) in case.usable
    insert_template(table_plan)


def test_key_without_generated_columns_is_preferred() -> None:
    """The target computes generated columns itself; a value from the record is safer."""
    columns = (_column("a"), _column("b", generated=True))
    keys = (UniqueKey("PRIMARY", ("b",), True), UniqueKey("other", ("a",), True))
    assert Case(_table(*columns, keys=keys), ("a", "b")).table_plan.identity == (0,)
    assert Case(_table(*columns, keys=keys[:1]), ("a", "b")).table_plan.identity == (1,)
    assert Case(_table(*columns, keys=keys[:1]), ("a",)).table_plan.identity == ()


@pytest.mark.parametrize(
    ("named", "is_limited"),
    [((), False), ((), True), (("t",), False), (("n", "u"), False), (("x",), False)],
    ids=["nothing", "nothing, limited", "a part", "a nullable key", "a prefix"],
)
def test_statement_without_a_whole_key_is_refused(
    named: tuple[str, ...], *, is_limited: bool
) -> None:
    """A partial key, a key with NULLs and a prefix name several rows: the task blocks and nothing is written."""
    columns = (_column("t"), _column("g"), _column("n", nullable=True), _column("u"), _column("x"))
    keys = (
        UniqueKey("PRIMARY", ("t", "g"), True),
        UniqueKey("nullable", ("n", "u"), True),
        UniqueKey("prefix", ("x",), False),
    )
    with pytest.raises(Fatal) as caught:
        check_names_row(_table(*columns, keys=keys), named, is_limited=is_limited)
    assert caught.value.code == "MR-5019"
    check_names_row(_table(*columns, keys=keys), ("g", "t"))


@given(st.text())
@example("1' OR 1=1 -- ")
@example("00' OR ''='")
@example("1 OR 1=1")
@example("\\' OR 1=1 -- ")
@example("-1.5e-300")
def test_text_of_a_server_stays_a_literal(text: str) -> None:
    """The number or hex digits of the source become SQL on the target."""
    for make in (number, hex_bytes, string):
        rest = re.sub(r"'(?:[^'\\]|\\.)*'", "", make(text), flags=re.DOTALL)
        assert re.fullmatch(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?|x|UNHEX\(\)|", rest), rest
