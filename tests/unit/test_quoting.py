"""Names of character sets, which servers show, in SQL."""

import pytest

from millrace.schemas.sql.quoting import characters, charset_name


@pytest.mark.parametrize(
    ("name", "quoted"),
    [("utf8mb4_0900_ai_ci", "utf8mb4_0900_ai_ci"), ("a; DROP", "`a; DROP`"), ("a`b", "`a``b`")],
)
def test_name_of_a_charset_stays_a_name(name: str, quoted: str) -> None:
    """A server may answer any text."""
    assert charset_name(name) == quoted


def test_introducer_is_only_used_for_a_plain_name() -> None:
    """It can't be quoted."""
    assert characters("e9", "latin1") == "_latin1 x'e9'"
    assert characters("e9", "x' OR '") == "CAST(x'e9' AS CHAR CHARACTER SET `x' OR '`)"
