"""Views: their documents, the rule that decides about a table, and what they make of a table's structure."""

import pytest

from millrace.schemas.documents.fields import Fields, Problem
from millrace.schemas.documents.view import take_view
from millrace.schemas.table.structure import Column, ColumnType, TableSchema, TextEncoding, TypeCode
from millrace.schemas.view.table_view import RuleProblem, TableView, apply_view
from millrace.schemas.view.view import View, plain_view

UTF8_GENERAL, UTF8_BIN, UTF8_NOPAD_BIN = 45, 46, 1070


def _text(name: str, collation_id: int = UTF8_BIN, *, nullable: bool = True) -> Column:
    kind = ColumnType(TypeCode.VARCHAR, 160, text=TextEncoding("utf8mb4", collation_id))
    return Column(name, kind, nullable)


def _of(name: str, code: TypeCode, *, nullable: bool = True) -> Column:
    return Column(name, ColumnType(code), nullable)


ORDERS = TableSchema(
    "shop_eu",
    "orders_7",
    (
        _of("id", TypeCode.LONG, nullable=False),
        _text("status"),
        _text("mail", UTF8_GENERAL),
        _text("note"),
        _of("born", TypeCode.DATE, nullable=False),
    ),
    primary_key=(0,),
)


def _read(*rules: object) -> tuple[View, list[Problem]]:
    problems: list[Problem] = []
    return take_view(Fields({"tables": list(rules)}, "", problems)), problems


def _view(**rule: object) -> View:
    view, problems = _read({"from": "shop_*.orders_*", **rule})
    assert problems == []
    return view


def _of_orders(table: TableSchema = ORDERS, /, **rule: object) -> TableView:
    found = apply_view(_view(**rule), table)
    assert found is not None
    return found


def test_view_keeps_its_meaning_in_its_plain_form() -> None:
    """So the document in ZooKeeper is read back, and equal views have one hash."""
    rule = {
        "to": "warehouse.{2}",
        "where": "status='paid' and CRC32(id) % 4 = 1",
        "columns": {"drop": ["note"], "rename": {"mail": "email"}, "add": {"shard": "{1}", "n": 5}},
        "mask": {"email": "hmac-sha256(file:/run/salt)", "status": "truncate(1)", "born": "redact"},
        "merge": True,
    }
    view = _view(**rule)
    again, problems = _read(*plain_view(view))
    assert (again, problems) == (view, [])
    assert again.hash == view.hash
    assert (
        _view(**{**rule, "where": "(status = 'paid') AND mod(crc32(`id`), 4) = 1"}).hash
        == view.hash
    )
    assert _view(**{**rule, "merge": False}).hash != view.hash


def test_first_rule_that_matches_decides_about_a_table() -> None:
    """A table that no rule matches is left out, and so are the servers' own."""
    view, problems = _read(
        {"from": "a.b.c", "to": "x.{table}"},
        {"from": "a.*", "to": "{database}_copy.t_{1}"},
        {"from": "*.*"},
    )
    assert problems == []
    names = {
        (database, table): match.name
        for database, table in (
            ("a", "b.c"),
            ("a", "b"),
            ("z", "q"),
            ("mysql", "user"),
            ("millrace", "x"),
        )
        if (match := view.match(database, table)) is not None
    }
    assert names == {
        ("a", "b.c"): ("x", "b.c"),
        ("a", "b"): ("a_copy", "t_b"),
        ("z", "q"): ("z", "q"),
    }


def test_columns_are_dropped_renamed_and_added_in_order() -> None:
    """An added one has the text that its table's name gives."""
    columns = {"drop": ["NOTE"], "rename": {"mail": "email"}, "add": {"shard": "{1}-{2}", "n": 5}}
    found = _of_orders(columns=columns, to="warehouse.orders")
    assert found.name == ("warehouse", "orders")
    shown = [(column.name, column.source, column.value) for column in found.columns]
    assert shown == [
        *(("id", 0, None), ("status", 1, None), ("email", 2, None), ("born", 4, None)),
        *(("n", -1, 5), ("shard", -1, "eu-7")),
    ]
    assert (found.key, found.condition) == ((0,), None)
    kept = _of_orders(columns={"keep": ["born", "id"]})
    assert [column.name for column in kept.columns] == ["id", "born"]


def test_masked_and_added_columns_have_their_own_types() -> None:
    """So a format needs not know the mask: an HMAC is a text, and all others keep their type."""
    masks = {"born": "hmac-sha256(file:/run/salt)", "note": "truncate(1)", "mail": "redact"}
    view = _of_orders(mask=masks, columns={"add": {"shard": "x", "n": 5}})
    columns = {column.name: column.column for column in view.columns}
    born = columns["born"].type
    assert (born.code, born.parameter, columns["born"].nullable) == (TypeCode.VARCHAR, 64, False)
    assert born.text == TextEncoding("ascii", 65)
    assert [columns[name] for name in ("note", "mail")] == [ORDERS.columns[3], ORDERS.columns[2]]
    assert columns["n"] == _of("n", TypeCode.LONGLONG, nullable=False)
    assert columns["shard"].type.is_text


def test_masked_key_has_no_labels_that_are_numbers() -> None:
    """An ENUM without a label is its number, which would have the HMAC of the label."""
    for labels, is_refused in ((("a", "b"), False), (("a", "0"), True)):
        kind = Column("kind", ColumnType(TypeCode.ENUM, 1, labels=labels), False)
        table = TableSchema("shop_eu", "orders_7", (kind,), primary_key=(0,))
        if is_refused:
            with pytest.raises(RuleProblem, match="labels that are not numbers"):
                _of_orders(table, mask={"kind": "hmac-sha256(file:/run/salt)"})
        else:
            assert _of_orders(table, mask={"kind": "hmac-sha256(file:/run/salt)"}).key == (0,)


def test_rules_may_name_a_column_that_was_not_logged() -> None:
    """The rows of an UPDATE are without it, those of an INSERT have it. A condition can't read it."""
    present = [column.name != "born" for column in ORDERS.columns]
    rules: list[dict[str, object]] = [
        {"columns": {"drop": ["born"]}},
        {"columns": {"rename": {"born": "day"}}, "mask": {"day": "redact"}},
        {"columns": {"keep": ["id", "born"]}},
    ]
    names = [
        [column.name for column in _of_orders(ORDERS.without(present), **rule).columns]
        for rule in rules
    ]
    assert names == [["id", "status", "mail", "note"]] * 2 + [["id"]]
    with pytest.raises(RuleProblem, match="generated column born"):
        _of_orders(ORDERS.without(present), where="born = DATE '2026-01-31'")


@pytest.mark.parametrize(
    ("rule", "place", "found"),
    [
        ({"columns": {"drop": ["nott"]}}, "columns.drop", "the column nott"),
        ({"columns": {"drop": ["id"]}}, "columns", "without the key's column id"),
        ({"columns": {"keep": ["status"]}}, "columns", "without the key's column id"),
        ({"columns": {"rename": {"mail": "STATUS"}}}, "columns", "two columns STATUS"),
        ({"columns": {"add": {"note": "x"}}}, "columns", "two columns note"),
        (
            {"columns": {"drop": ["mail"], "rename": {"mail": "x"}}},
            "columns.rename.mail",
            "does not pass",
        ),
        (
            {"columns": {"rename": {"mail": "email"}}, "mask": {"mail": "redact"}},
            "mask.mail",
            "the column mail",
        ),
        ({"columns": {"add": {"n": 1}}, "mask": {"n": "redact"}}, "mask.n", "the column n"),
        ({"mask": {"id": "redact"}}, "mask.id", "redact of id"),
        ({"mask": {"born": "redact"}}, "mask.born", "DATE NOT NULL"),
        ({"mask": {"born": "truncate(2)"}}, "mask.born", "truncate of born"),
        ({"where": "mail = 'a'"}, "where", "calls different texts equal"),
    ],
)
def test_rule_that_does_not_suit_a_table_is_refused(
    rule: dict[str, object], place: str, found: str
) -> None:
    """Before a row is read."""
    with pytest.raises(RuleProblem) as refused:
        _of_orders(**rule)
    assert refused.value.place == place
    assert found in refused.value.found
    assert refused.value.wanted


@pytest.mark.parametrize("collation_id", [UTF8_GENERAL, UTF8_BIN, UTF8_NOPAD_BIN])
def test_masked_key_needs_a_collation_that_keeps_texts_apart(collation_id: int) -> None:
    """Two texts that the key calls equal would get two masks, and so become two keys."""
    table = TableSchema("shop_x", "orders_1", (_text("k", collation_id, nullable=False),), (0,))
    rule = {"mask": {"k": "hmac-sha256(env:SALT)"}}
    if collation_id == UTF8_NOPAD_BIN:
        assert _of_orders(table, **rule).columns[0].mask is not None
        return
    with pytest.raises(RuleProblem):
        _of_orders(table, **rule)


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ({"from": "shop"}, "tables[0].from: found 'shop', wanted a pattern database.table"),
        ({"from": "a.*", "to": "x"}, "tables[0].to: found 'x', wanted database.table"),
        (
            {"from": "a.*", "to": "x.{2}"},
            "tables[0].to: found {2}, wanted one of {1}, {database}, {table}",
        ),
        (
            {"from": "a.*", "columns": {"add": {"n": "{nul}"}}},
            "tables[0].columns.add.n: found {nul}, wanted one of",
        ),
        (
            {"from": "a.*", "where": "id = "},
            "tables[0].where: found the end of the expression, wanted a column",
        ),
        ({"from": "a.*", "where": 7}, "tables[0].where: found 7, wanted a condition"),
        (
            {"from": "a.*", "columns": {"keep": ["a"], "drop": ["b"]}},
            "found keep and drop, wanted one of them",
        ),
        ({"from": "a.*", "columns": {"rename": []}}, "tables[0].columns.rename: found a list of 0"),
        (
            {"from": "a.*", "mask": {"x": "truncate(0)"}},
            "found truncate with a content that is not shown",
        ),
        (
            {"from": "a.*", "mask": {"x": "redact(1)"}},
            "found redact with a content that is not shown",
        ),
        (
            {"from": "a.*", "mask": {"x": "hmac-sha256(pass9)"}},
            "not shown for x, wanted redact, truncate",
        ),
        ({"from": "a.*", "mask": {"x": 9}}, "found a mask that is not shown"),
        (
            {"from": "a.*", "masks": {}},
            "tables[0].masks: found an unknown field, wanted 'mask' (nearest)",
        ),
        ("a.*", "tables[0]: found 'a.*', wanted a mapping"),
    ],
)
def test_wrong_rule_is_refused_with_its_path(rule: object, problem: str) -> None:
    """A key that was written in place of its reference is not repeated."""
    _, problems = _read(rule)
    assert problem in "\n".join(map(str, problems))
    assert "pass9" not in "\n".join(map(str, problems))
