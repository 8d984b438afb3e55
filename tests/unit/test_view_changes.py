"""The view of a table decides which rows are in it, and as what operation."""

import pytest

from millrace.consumer.view.changes import AFTER, BEFORE, OP, RECORD, SEQ, Changes
from millrace.consumer.view.program import view_of
from millrace.errors import Fatal
from millrace.schemas.record.row_layout import RowLayout
from millrace.schemas.table.structure import Column, ColumnType, TextEncoding, TypeCode
from tests.kit.apply.tables import integer, table, text
from tests.kit.apply.topic import SET
from tests.kit.apply.view_rows import Row, changes_of, view_from, walked

ORDERS = table("shop", "orders", integer("id"), integer("n", nullable=True))
SJIS = TextEncoding("sjis", 88)
NOTES = table(
    "shop", "notes", integer("id"), Column("t", ColumnType(TypeCode.VARCHAR, 40, text=SJIS), True)
)


def _order(n: int | None) -> dict[str, object]:
    return {"id": 7, "n": n}


def _shown(changes: Changes) -> list[tuple[int, str, bool, bool]]:
    """Seq, operation, and whether each image is there."""
    return [
        (
            int(line[SEQ]),
            chr(line[OP]),
            bool(line[BEFORE] >= 0),
            bool(line[AFTER] >= 0),
        )
        for line in changes.lines
    ]


def test_both_images_decide_what_becomes_of_a_row() -> None:
    """NULL is not true; a row that enters the view is an insert, one that leaves it is a delete."""
    values = (1, 0, None)
    rows = walked(
        ORDERS,
        [
            *(Row("u", _order(before), _order(after)) for before in values for after in values),
            *(Row("c", after=_order(n)) for n in values),
            *(Row("d", _order(n)) for n in values),
            *(Row("r", after=_order(n)) for n in values),
        ],
    )
    changes = changes_of(view_from(where="n = 1"), rows)
    assert _shown(changes) == [
        *((1, "u", True, True), (2, "d", True, False), (3, "d", True, False)),
        *((4, "c", False, True), (7, "c", False, True)),
        *((10, "c", False, True), (13, "d", True, False), (16, "r", False, True)),
    ]


def test_view_without_a_condition_has_all_rows() -> None:
    """Each with its record and its first cells."""
    rows = walked(
        ORDERS,
        [
            Row("c", after=_order(1)),
            Row("u", _order(1), _order(2)),
            Row("d", _order(2)),
            Row("r", after=_order(3)),
        ],
    )
    changes = changes_of(view_from(), rows)
    assert [letter for _, letter, _, _ in _shown(changes)] == ["c", "u", "d", "r"]
    assert changes.lines[:, RECORD].tolist() == [0, 1, 2, 3]
    assert changes.lines[:, [BEFORE, AFTER]].tolist() == [
        *([-1, 2], [4, 6], [8, -1], [-1, 14]),
    ]
    assert changes.payload is rows.values.payload


def test_text_that_is_not_valid_stops_a_view() -> None:
    """The error names table, column and seq, and not the value."""
    rows = walked(
        NOTES,
        [Row("c", after={"id": 1, "t": "a"}), Row("c", after={"id": 2, "t": b"\xf0\x40secret"})],
    )
    with pytest.raises(Fatal, match=r"MR-5202 .* t of shop\.notes") as stopped:
        changes_of(view_from(where="t = 'a'"), rows)
    assert stopped.value.context["seq"] == "2"
    assert "secret" not in str(stopped.value)
    assert len(changes_of(view_from(where="id > 0"), rows)) == 2


def test_rule_that_does_not_suit_a_table_has_a_code() -> None:
    """A generated column that the source did not log is named."""
    logged = table("shop", "t", integer("id"), text("t"), integer("g", nullable=True))
    layout = RowLayout.of(SET, logged.without((True, True, False)))
    with pytest.raises(Fatal, match=r"MR-5201 shop\.t: where: .*generated column g.* omit g"):
        view_of(view_from(where="g = 1"), layout)
    with pytest.raises(Fatal, match=r"MR-5201 shop\.t: mask\.nothing"):
        view_of(view_from(mask={"nothing": "redact"}), layout)
    assert view_of(view_from(**{"from": "other.*"}), layout) is None
