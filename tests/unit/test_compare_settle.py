"""The bracket rule and the merge of digests: which rows differ under writes."""

import pytest

from millrace.consumer.compare import settle
from millrace.consumer.compare.chunk import unmatched_rows
from millrace.consumer.compare.settle import States, Suspect
from millrace.consumer.compare.table import Name

NAME: Name = ("1",)


@pytest.mark.parametrize(
    ("before", "there", "after", "wanted"),
    [
        ("a", "a", "b", "equal"),
        ("a", "b", "b", "equal"),
        (None, "a", "a", "equal"),
        ("a", "b", "a", "different"),
        ("a", None, "a", "different"),
        (None, "b", None, "different"),
        ("a", "c", "b", "again"),
        (None, "a", "b", "again"),
    ],
)
def test_row_differs_only_if_the_source_did_not_change(
    before: str | None, there: str | None, after: str | None, wanted: str
) -> None:
    """The states of one row: on the source, on the target, on the source again. None: it does not exist."""
    states: list[States] = [
        {} if state is None else {NAME: state} for state in (before, there, after)
    ]
    found = settle.look([Suspect(NAME, after, there)], *states)
    counts = len(found.different), len(found.again)
    assert counts == {"equal": (0, 0), "different": (1, 0), "again": (0, 1)}[wanted]


def test_difference_needs_two_looks_with_the_same_states() -> None:
    """The first look that finds other states than the last only remembers them."""
    states: list[States] = [{NAME: "a"}, {NAME: "b"}, {NAME: "a"}]
    first = settle.look([Suspect(NAME, "a", "c")], *states)
    assert (first.different, first.again) == ((), (Suspect(NAME, "a", "b"),))
    assert settle.look(first.again, *states).different == (Suspect(NAME, "a", "b"),)


def test_equal_rows_are_matched_as_often_as_they_exist() -> None:
    """Two of three equal rows are left if the other side has one; the order of other rows does not matter."""
    row, other, third = (b"a", ()), (b"b", ()), (b"c", ())
    left, right = unmatched_rows(iter([row, row, row, other]), iter([row, other, third]))
    assert (left.rows, right.rows) == ([row, row], [third])
