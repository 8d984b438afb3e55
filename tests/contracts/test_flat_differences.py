"""The tables of differences from Maxwell and Canal in docs/formats.md are those of the comparison."""

import pytest

from millrace.schemas.gtid import Flavour
from tests.kit.flat.comparison import Difference, Kind
from tests.kit.flat.expected import CANAL, MAXWELL, Expected, table_rows
from tests.kit.paths import ROOT
from tests.kit.side_by_side import Verdict, judge


@pytest.mark.parametrize(
    ("name", "entries"), [("Maxwell", MAXWELL), ("Canal", CANAL)], ids=["maxwell", "canal"]
)
def test_documentation_lists_the_differences(name: str, entries: tuple[Expected, ...]) -> None:
    """In the order of the list."""
    text = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    part = text.split(f"## Differences from {name}\n")[1].split("\n## ")[0]
    _, _, *rows = (line for line in part.splitlines() if line.startswith("|"))
    assert tuple(rows) == table_rows(entries)


def test_list_is_exact_in_both_directions() -> None:
    """A difference without an entry is unexpected, and an entry without a difference is gone."""
    entry = Expected("ts", "", "another clock", "ts")
    clock, other = Difference("ts", "", Kind.DIFFERS), Difference("es", "", Kind.DIFFERS)
    assert judge((clock,), (entry,), Flavour.MYSQL) == Verdict((), ())
    assert judge((clock, other), (entry,), Flavour.MYSQL) == Verdict((other,), ())
    assert judge((), (entry,), Flavour.MYSQL) == Verdict((), (entry,))
