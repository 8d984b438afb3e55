"""The text of views' expressions: what is read, what is refused and where, and what a text in them means."""

import pytest

from millrace.schemas.view.expression import (
    DEPTH_MAX,
    ColumnName,
    Octets,
    Operation,
    Refused,
    Text,
    Whole,
    canonical,
    columns_of,
    parse,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 1 OR b = 2 AND c = 3", "((`a` = 1) OR ((`b` = 2) AND (`c` = 3)))"),
        ("NOT a = 1 AND b = 2", "((NOT (`a` = 1)) AND (`b` = 2))"),
        ("a + 2 * 3 % 4 - -5 = 1", "(((`a` + ((2 * 3) % 4)) - (-5)) = 1)"),
        ("a NOT IN (1, 2)", "(NOT ((`a` = 1) OR (`a` = 2)))"),
        (
            "a BETWEEN 1 AND 2 AND b IS NOT NULL",
            "(((`a` >= 1) AND (`a` <= 2)) AND (NOT (`b` IS NULL)))",
        ),
        ("mod(a, 3) != 0x00Ff", "((`a` % 3) <> x'00ff')"),
        ("`we``ird` = 'it''s \\'ok\\' \\%'", "(`we``ird` = 'it\\'s \\'ok\\' \\\\%')"),
        (
            "d = date'2026-01-31' AND t = 1.50 -- why",
            "((`d` = DATE '2026-01-31') AND (`t` = 1.50))",
        ),
    ],
)
def test_expression_is_read_with_the_precedence_of_mysql(text: str, expected: str) -> None:
    """The canonical text is read as the same tree."""
    tree = parse(text)
    assert canonical(tree) == expected
    assert parse(expected) == tree


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "the end of the expression"),
        ("a = ", "the end of the expression"),
        ("a = 1 b", "'b' at character 7"),
        ("a = 'open", r"\"'open\" at character 5"),
        ("a = 'open\\\\\\'", "at character 5"),
        ('a = "x"', "at character 5"),
        ("a <= > 1", "at character 3"),
        ("a || b = 1", "'|| b = 1' at character 3"),
        ("a = 1e3", "1e3"),
        ("a = x'0'", "'0'"),
        ("sleep(9) = 1", "'sleep(9) = 1' at character 1"),
        ("a LIKE 'x%'", "at character 3"),
        ("a = /*! 1 */", "at character 5"),
        ("a = 1; DROP TABLE t", "'; DROP TABLE t' at character 6"),
        ("(" * (DEPTH_MAX + 1), "more than"),
        ("a = " + "-(" * DEPTH_MAX + "1", "more than"),
        ("a = 1" + " + 1" * (DEPTH_MAX + 1), "more than"),
        ("a" * 20_000, "20000 characters"),
        ("a < " + "9" * 5_000, "99999999999999999999…"),
        ("a < 0." + "9" * 5_000, "0.999999999999999999…"),
    ],
)
def test_refusal_names_the_place_and_the_text_found(text: str, found: str) -> None:
    """A reader of the message can put a finger on the place."""
    with pytest.raises(Refused, match="found") as refused:
        parse(text)
    assert found.replace("\\", "") in refused.value.found.replace("\\", "")
    assert refused.value.wanted


def test_texts_have_escapes_and_bytes_have_none() -> None:
    """As between the quotes of a statement in the default sql_mode."""
    assert parse(r"a = '\0\n\\''\x'") == Operation("=", (ColumnName("a"), Text("\0\n\\'x")))
    assert parse("X'0aFF' = b") == Operation("=", (Octets(b"\x0a\xff"), ColumnName("b")))
    assert parse("true <> `true`") == Operation("<>", (Whole(1), ColumnName("true")))


def test_columns_of_an_expression_are_all_its_names() -> None:
    """A statement that changes one of them changes the view."""
    assert columns_of(parse("a = 1 AND NOT (b IN (1, 2) OR CRC32(c) % d = 0)")) == set("abcd")
