"""Rows of an apply task under a view: which are written, by which operation, with which values."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millrace.consumer.kernel import walk
from millrace.consumer.records.numbers import RecordNumbers
from millrace.consumer.records.row_schemas import RowSchemas, make_programs
from millrace.consumer.records.rows import Rows, walk_values
from millrace.consumer.tables.filter import Route
from millrace.consumer.tables.table_plan import plan_table
from millrace.consumer.tables.table_plans import Catalogue, TablePlans
from millrace.consumer.view.layout import ViewedTable, viewed_table
from millrace.drivers.mysql.actions import Action, Actions
from millrace.drivers.mysql.catalog import (
    CatalogColumn,
    CatalogTable,
    ForeignKey,
    Inventory,
    UniqueKey,
)
from millrace.errors import Fatal
from millrace.schemas.record.avro_schema import envelope_schema
from millrace.schemas.record.row_layout import RowLayout
from millrace.schemas.table.structure import TableSchema
from millrace.schemas.view.view import View
from tests.kit.apply.tables import integer, table, text, uuid
from tests.kit.apply.topic import SET, RecordStream
from tests.kit.apply.values import values_of
from tests.kit.apply.view_rows import value_of, view_from

ORDERS = table("shop", "orders", integer("id"), integer("v", nullable=True), text("note"))
IN, OUT, NULL = 1, 9, None


def _seen(
    view: View, stream: RecordStream, source: TableSchema = ORDERS
) -> tuple[Rows, RecordNumbers, Rows]:
    """The rows under the view, the numbers of those that are in it, and the rows of the topic."""
    values = values_of([value for value in stream.values if value[5] in (0, 2)])
    schemas = RowSchemas({100: envelope_schema(SET, source).text})
    plans = TablePlans(Catalogue("", schemas, route=Route(view)))
    rows = walk_values(values, plans.programs)
    assert rows.status == walk.OK
    found, numbers = plans.through_view(rows, RecordNumbers(np.arange(len(rows))))
    return found, numbers, walk_values(values, make_programs(schemas))


def _row(key: int, value: int | None, note: str = "planted") -> dict[str, object]:
    return {"id": key, "v": value, "note": note}


def _images(rows: Rows, number: int) -> list[list[object]]:
    width = int(rows.programs.widths[0])
    first = int(rows.records[number, walk.FIRST_CELL])
    op = int(rows.records[number, walk.OP])
    begins = [first] if op != walk.OP_CREATE else []
    begins += [first + width] if op != walk.OP_DELETE else []
    return [
        [value_of(rows.values.payload, rows.cells, b + at) for at in range(width)] for b in begins
    ]


def test_both_images_decide_about_a_row_of_the_target() -> None:
    """The table of docs/views.md; NULL is out. Only what the view makes of an update loses its foreign key checks."""
    stream = RecordStream()
    for before, after in ((IN, IN), (IN, OUT), (OUT, IN), (OUT, OUT), (IN, NULL), (NULL, IN)):
        stream.update(ORDERS, _row(1, before), _row(1, after))
    for value in (IN, OUT):
        stream.insert(ORDERS, _row(2, value))
        stream.delete(ORDERS, _row(2, value))
        stream.snapshot(ORDERS, _row(3, value))
    rows, numbers, _ = _seen(view_from(where="v < 5"), stream)
    found = [
        (
            int(number),
            chr(rows.records[number, walk.OP]),
            int(rows.records[number, walk.FLAGS]) & walk.NO_FOREIGN_KEY_CHECKS,
            int(rows.records[number, walk.IS_SAFE]),
        )
        for number in numbers
    ]
    assert found == [
        (0, "u", 0, 0),
        (1, "d", 2, 0),
        (2, "c", 2, 0),
        (4, "d", 2, 0),
        (5, "c", 2, 0),
        (6, "c", 0, 0),
        (7, "d", 0, 0),
        (8, "c", 0, 1),
    ]


def test_added_columns_are_cells_of_both_images() -> None:
    """Texts and numbers of any sign; the record itself stays as the topic has it."""
    stream = RecordStream()
    stream.update(ORDERS, _row(1, 1), _row(1, 2))
    stream.insert(ORDERS, _row(2, None))
    view = view_from(columns={"add": {"shard": "é{1}", "n": -(2**62), "m": 300}})
    rows, numbers, raw = _seen(view, stream)
    more = [300, -(2**62), "éshop"]
    assert _images(rows, 0) == [[1, 1, "planted", *more], [1, 2, "planted", *more]]
    assert _images(rows, 1) == [[2, None, "planted", *more]]
    assert [rows.values.value(n) for n in (0, 1)] == [raw.values.value(n) for n in (0, 1)]
    assert rows.gtid(1) == raw.gtid(1)
    assert not rows.values.payload.flags.writeable
    assert len(numbers) == 2


def test_masked_values_replace_those_of_both_images(tmp_path: Path) -> None:
    """With a condition on the masked column, which reads the value of the source."""
    secret = tmp_path / "salt"
    secret.write_text("salt")
    stream = RecordStream()
    stream.update(ORDERS, _row(1, 1), _row(1, 9))
    stream.update(ORDERS, _row(2, 1), _row(2, 2, "other"))
    stream.delete(ORDERS, _row(3, 3))
    rule: dict[str, Any] = {
        "where": "v < 5",
        "columns": {"add": {"s": "x"}},
        "mask": {"note": f"hmac-sha256(file:{secret})", "v": "redact"},
    }
    rows, numbers, _ = _seen(view_from(**rule), stream)
    assert numbers.tolist() == [0, 1, 2]
    one, two = _images(rows, 1)
    assert (one[0], one[1], one[3]) == (2, None, "x")
    assert len(str(one[2])) == len(str(two[2])) == 64
    assert one[2] != two[2]
    assert _images(rows, 0) == [[1, None, one[2], "x"]]
    assert _images(rows, 2) == [[3, None, one[2], "x"]]


def test_view_without_rules_returns_the_same_rows() -> None:
    """An existing task pays nothing."""
    stream = RecordStream()
    stream.insert(ORDERS, _row(1, 1))
    values = values_of([value for value in stream.values if value[5] in (0, 2)])
    plans = TablePlans(Catalogue("", RowSchemas({100: envelope_schema(SET, ORDERS).text})))
    rows, numbers = walk_values(values, plans.programs), RecordNumbers(np.arange(1))
    found = plans.through_view(rows, numbers)
    assert found[0] is rows
    assert found[1] is numbers


# ---- what the target's table must be like ------------------------------------------------------------------


def _column(name: str, base: str = "varchar", octets: int = 256) -> CatalogColumn:
    charset = ("utf8mb4", "utf8mb4_bin") if base != "int" else ("", "")
    return CatalogColumn(name, base, base, *charset, True, False, octets=octets)


def _plan(
    rule: dict[str, Any], *columns: CatalogColumn, unique: str = "", foreign: Any = ()
) -> None:
    viewed = viewed_table(view_from(to="w.t", **rule), RowLayout.of(SET, ORDERS))
    assert viewed is not None
    known = {column.name: column for column in (_column("id", "int"), *columns)}
    known["id"] = replace(known["id"], nullable=False)
    keys = [UniqueKey("PRIMARY", ("id",), True)]
    keys += [UniqueKey("more", (unique,), True)] if unique else []
    made = CatalogTable("w", "t", known, tuple(keys))
    plan_table(viewed, Inventory(tables={made.key: made}, foreign_keys=tuple(foreign)))


V, NOTE = _column("v", "int"), _column("note")


@pytest.mark.parametrize(
    ("mask", "column", "unique", "says"),
    [
        pytest.param("redact", NOTE, "note", "keys different", id="redacted"),
        ("truncate(2)", NOTE, "note", "keys different"),
        ("HMAC", NOTE, "note", "_bin"),
        ("HMAC", _column("note", octets=40), "", "64 characters"),
        ("HMAC", _column("note", "int"), "", "64 characters"),
        ("HMAC", NOTE, "", ""),
        ("redact", NOTE, "", ""),
    ],
)
def test_masks_suit_the_keys_and_columns_of_the_target(
    mask: str, column: CatalogColumn, unique: str, says: str, tmp_path: Path
) -> None:
    """Two rows of the source never become one: the source's text has a collation that calls others equal."""
    secret = tmp_path / "salt"
    secret.write_text("salt")
    rule = {"mask": {"note": mask.replace("HMAC", f"hmac-sha256(file:{secret})")}}
    if not says:
        _plan(rule, V, column, unique=unique)
        return
    with pytest.raises(Fatal, match=f"MR-5206.*{says}"):
        _plan(rule, V, column, unique=unique)


def _foreign(column: str, *, is_parent: bool, actions: Actions) -> list[ForeignKey]:
    own, other = ("w", "t"), ("w", "other")
    if is_parent:
        return [ForeignKey(other, ("x",), own, (column,), actions)]
    return [ForeignKey(own, (column,), other, ("id",), actions)]


CASCADE = Actions(on_delete=Action.CASCADE)


@pytest.mark.parametrize(
    ("column", "is_parent", "actions", "is_refused"),
    [
        pytest.param("id", True, CASCADE, True, id="parent"),
        ("id", True, Actions(), False),
        ("v", False, CASCADE, True),
        ("id", False, CASCADE, False),
    ],
)
def test_condition_is_refused_where_a_cascade_leaves_no_record(
    column: str, is_parent: bool, actions: Actions, is_refused: bool
) -> None:
    """A parent out of the view would delete no child, and a child whose key a cascade changes would stay."""
    foreign = _foreign(column, is_parent=is_parent, actions=actions)
    if not is_refused:
        _plan({"where": "v < 5"}, V, NOTE, foreign=foreign)
        return
    with pytest.raises(Fatal, match=r"MR-5206.*cascade"):
        _plan({"where": "v < 5"}, V, NOTE, foreign=foreign)


def test_condition_on_what_may_be_a_uuid_is_refused() -> None:
    """The binlog has a UUID of MariaDB as 16 bytes in another order."""
    source = table("shop", "t", integer("id"), uuid("u"))
    for where in ("u = x'00112233445566778899aabbccddeeff'", "crc32(u) % 2 = 1"):
        with pytest.raises(Fatal, match=r"MR-5201.*may be a UUID"):
            viewed_table(view_from(where=where), RowLayout.of(SET, source))
    assert isinstance(
        viewed_table(view_from(where="u IS NOT NULL"), RowLayout.of(SET, source)), ViewedTable
    )
