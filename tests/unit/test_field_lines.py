"""A changed field is shown on one short line."""

import pytest

from millrace.cli.history import field_line
from millrace.schemas.documents import FieldChange

LONG = [f"shop.table_{number}" for number in range(20)]


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        (4, 8, "f: 4 → 8"),
        (None, "0-1-5", "f: not set → 0-1-5"),
        ([], ["shop.*"], 'f: [] → ["shop.*"]'),
        ("", "a\x1b[2Jb", 'f: "" → "a\\u001b[2Jb"'),
        (["é\u202e"], [], 'f: ["\\u00e9\\u202e"] → []'),
        (
            LONG,
            [*LONG[1:], "shop.new"],
            'f: 20 → 20 entries, without ["shop.table_0"], with ["shop.new"]',
        ),
    ],
)
def test_changed_field_is_shown_on_one_line(before: object, after: object, line: str) -> None:
    """Nothing in a document can control the terminal."""
    assert field_line(FieldChange("f", before, after)) == line


def test_long_texts_are_cut_around_their_difference() -> None:
    """GTID sets often differ only in their last number."""
    common = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-" * 20
    line = field_line(FieldChange("start", common + "5", common + "17"))
    assert line == f"start: …{common[-20:]}5 → …{common[-20:]}17"
    assert len(field_line(FieldChange("start", common, "x" * 1000))) < 150
