"""The documents say nothing that no test shows: the names they give exist, the commands they show can be run."""

import re
from pathlib import Path

import pytest

from millrace.cli import COMMANDS

ROOT = Path(__file__).parents[2]
DOCUMENTS = ("README.md", "docs/guarantees.md")
_TEST_NAME = re.compile(r"`(test_\w+)`")


def _known_tests() -> set[str]:
    return {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)\(", path.read_text(), re.MULTILINE)
    }


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_test_that_a_document_names_exists(document: str) -> None:
    """A claim without its test is no claim."""
    named = set(_TEST_NAME.findall((ROOT / document).read_text()))
    assert named
    assert named <= _known_tests()


def test_every_table_row_of_the_guarantees_names_a_test() -> None:
    """In the tables of claims no line stands without a test."""
    text = (ROOT / "docs/guarantees.md").read_text().partition("## Not promised")[0]
    rows = [
        line
        for line in text.splitlines()
        if line.startswith("| ") and not line.startswith("| claim")
    ]
    assert rows
    assert [row for row in rows if not _TEST_NAME.search(row)] == []


def test_every_command_in_the_readme_exists() -> None:
    """`millrace NAME` is a command, `make NAME` is a target."""
    text = (ROOT / "README.md").read_text()
    commands = set(re.findall(r"(?:bin/|`|&? *\b)millrace ([a-z]+)", text))
    assert commands
    assert commands <= set(COMMANDS) | {"is", "turns"}
    targets = set(re.findall(r"make ([a-z]+)", text))
    assert {"demo", "test"} <= targets
    makefile = (ROOT / "Makefile").read_text()
    assert [t for t in targets if not re.search(rf"^{t}:", makefile, re.MULTILINE)] == []


def test_relative_links_lead_somewhere() -> None:
    """Links between our own documents."""
    for document in (*DOCUMENTS, "ARCHITECTURE.md", "docs/record.md"):
        path = ROOT / document
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
            assert (path.parent / target).exists(), f"{document} → {target}"


def test_every_file_that_the_architecture_names_exists() -> None:
    """A map with a wrong name on it is worse than none."""
    named = set(re.findall(r"`((?:\w+/)+\w+\.py)`", (ROOT / "ARCHITECTURE.md").read_text()))
    assert named
    found = [
        name for name in named if (ROOT / name).exists() or (ROOT / "consumer" / name).exists()
    ]
    assert sorted(named - set(found)) == []
