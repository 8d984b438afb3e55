"""Values as SQL literals, for types whose text needs no server."""

from typing import cast

import pytest

from millrace.consumer.tables.exact_text import Exact, Form, literals
from millrace.drivers.mysql.connection import MySqlSession


@pytest.mark.parametrize(
    ("form", "text", "wanted"),
    [
        (Form.NUMBER, "-1.50", "-1.50"),
        (Form.QUOTED, "12:00:00", "'12:00:00'"),
        (Form.QUOTED, "a'\\\0", "'a\\'\\\\\\0'"),
        (Form.UUID, "123E4567E89B12D3A456426655440000", "'123e4567-e89b-12d3-a456-426655440000'"),
        (Form.ADDRESS, "0A000001", "'10.0.0.1'"),
        (Form.ADDRESS, "FE80" + "0" * 27 + "1", "'fe80::1'"),
        (Form.BYTES, "00FF", "x'00ff'"),
        (Form.DIGEST, "1a2b3c4d5e6f" * 4, "(digest 1a2b3c4d5e6f)"),
        (Form.BYTES, None, "NULL"),
    ],
)
def test_each_form_has_its_literal(form: Form, text: str | None, wanted: str) -> None:
    """Text is quoted and escaped, bytes are hex digits, NULL is a word."""
    no_session = cast(MySqlSession, None)
    assert literals(no_session, [Exact("", form)], (text,)) == [wanted]


@pytest.mark.parametrize(
    ("form", "text", "wanted"),
    [(Form.ENUM, "0:", "0"), (Form.SET, "1:", "0"), (Form.SET, "0:", "1")],
)
def test_values_with_an_empty_text_are_numbers(form: Form, text: str, wanted: str) -> None:
    """No label of an ENUM or a SET, and the label '' of a SET."""
    no_session = cast(MySqlSession, None)
    assert literals(no_session, [Exact("", form)], (text,)) == [wanted]


def test_charset_of_a_server_is_quoted_in_sql() -> None:
    """A name that no server has can't become more than a name."""
    asked: list[str] = []

    class _Session:
        def query(self, sql: str) -> list[tuple[str]]:
            asked.append(sql)
            return [("41",)]

    columns = [Exact("", Form.TEXT, charset) for charset in ("latin1", "x) OR (1")]
    for column in columns:
        assert literals(cast(MySqlSession, _Session()), [column], ("41",)) == ["'A'"]
    assert "AS CHAR CHARACTER SET latin1)" in asked[0]
    assert "AS CHAR CHARACTER SET `x) OR (1`)" in asked[1]
