"""A count agrees with its noun."""

import pytest

from millrace.wording import counted


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (12_345, "12,345 rows")]
)
def test_only_one_is_singular(count: int, text: str) -> None:
    """Large numbers have separators."""
    assert counted(count, "row") == text


def test_words_after_the_noun_agree_too() -> None:
    """The plural is given if it is not the noun with an s."""
    assert counted(1, "file is missing", "files are missing") == "1 file is missing"
    assert counted(3, "batch", "batches") == "3 batches"
