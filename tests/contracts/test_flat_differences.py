"""The tables of differences from Maxwell and Canal in docs/formats.md are those of the comparison."""

import pytest

from tests.kit.flat.expected import CANAL, MAXWELL, Expected, table_rows
from tests.kit.paths import ROOT


@pytest.mark.parametrize(
    ("name", "entries"), [("Maxwell", MAXWELL), ("Canal", CANAL)], ids=["maxwell", "canal"]
)
def test_documentation_lists_the_differences(name: str, entries: tuple[Expected, ...]) -> None:
    """In the order of the list."""
    text = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    part = text.split(f"## Differences from {name}\n")[1].split("\n## ")[0]
    _, _, *rows = (line for line in part.splitlines() if line.startswith("|"))
    assert tuple(rows) == table_rows(entries)
