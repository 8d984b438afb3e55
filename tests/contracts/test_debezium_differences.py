"""docs/formats.md lists the differences from Debezium that the comparison expects."""

from tests.kit.debezium import expected_structures
from tests.kit.debezium.expected import table_rows
from tests.kit.paths import ROOT

HEAD = "| field | type | reason |\n|---|---|---|\n"


def test_page_has_the_expected_differences() -> None:
    """The rows are those of the list, in its order."""
    page = (ROOT / "docs" / "formats.md").read_text()
    table = page.split("## Differences from Debezium")[1].split(HEAD)[1].split("\n\n")[0]
    assert tuple(table.splitlines()) == table_rows()


def test_page_has_the_expected_differences_of_schema_changes() -> None:
    """The rows are those of the list, in its order."""
    page = (ROOT / "docs" / "formats.md").read_text()
    head = "| field of a schema change | reason |\n|---|---|\n"
    table = page.split(head)[1].split("\n\n")[0]
    assert tuple(table.splitlines()) == expected_structures.table_rows()
