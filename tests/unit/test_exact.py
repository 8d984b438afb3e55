"""Values as SQL literals, for types whose text needs no server."""

from typing import cast

import pytest

from consumer.exact import Exact, Form, literals
from consumer.target.connection import TargetConnection


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
    no_session = cast(TargetConnection, None)
    assert literals(no_session, [Exact("", form)], (text,)) == [wanted]
