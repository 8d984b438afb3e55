"""Which generated columns may have another value in another session."""

import pytest

from millrace.schemas.sql.expressions import Operand, depends_on_session

COLUMNS = [
    Operand(name, type_text, type_text.split("(")[0].split()[0], generated)
    for name, type_text, generated in (
        ("ts", "timestamp", False),
        ("dt", "datetime(6)", False),
        ("d", "date", False),
        ("a", "int", False),
        ("u", "int unsigned", False),
        ("n", "decimal(10,2)", False),
        ("s", "varchar(30)", False),
        ("c", "char(5)", False),
        ("j", "json", False),
        ("g", "date", True),
    )
]
FREE = [
    ("(`a` * 2)", "int"),
    ("`a` + `n` - 1", "decimal"),
    ("(case when (`a` >= 3) then 1 else NULL end)", "tinyint"),
    (r"concat(`s`,_utf8mb4\'it\\\'s now()\')", "varchar"),
    ("lower(`s`)", "varchar"),
    ("concat(`s`,'x')", "text"),
    (r"json_unquote(json_extract(`j`,_utf8mb4\'$.a\'))", "varchar"),
    (r"cast(json_extract(`j`,_utf8mb4\'$.a\') as unsigned)", "bigint"),
    ("year(`d`)", "int"),
    ("((year(`dt`) * 100) + month(`d`))", "int"),
]
DEPENDENT = [
    ("cast(`ts` as date)", "date"),
    ("hour(`ts`)", "int"),
    ("`ts`", "varchar"),
    ("from_unixtime(`a`)", "datetime"),
    ("monthname(`d`)", "varchar"),
    ("date_format(`d`,_utf8mb4\\'%M\\')", "varchar"),
    ("week(`d`)", "int"),
    ("concat(`c`,_utf8mb4\\'x\\')", "varchar"),
    ("`dt`", "datetime"),
    ("`s`", "date"),
    ("year(`s`)", "int"),
    ("(`u` - `a`)", "bigint"),
    ("(`a` - (`a` & 3))", "bigint"),
    ("(`a` / 3)", "decimal"),
    ("year(`g`)", "int"),
    ("md5(`a`)", "char"),
    ("unknown(`a`)", "int"),
    ("`no_such_column`", "int"),
    ("`a", "int"),
    ("`s` like 'a%'", "int"),
    ("(`d` > '2024-01-01')", "int"),
]


@pytest.mark.parametrize(("expression", "result"), FREE)
def test_known_expressions_give_the_same_value_everywhere(expression: str, result: str) -> None:
    """Their columns cost apply nothing."""
    assert not depends_on_session(expression, result, COLUMNS)


@pytest.mark.parametrize(("expression", "result"), DEPENDENT)
def test_other_expressions_are_checked(expression: str, result: str) -> None:
    """A setting of the session changes them, or nothing is known of them."""
    assert depends_on_session(expression, result, COLUMNS)
