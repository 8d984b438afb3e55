"""The documents say nothing that no test shows: the names they give exist, the commands they show can be run."""

import re
from enum import StrEnum
from pathlib import Path

import pytest

from deploy.servers.mariadb import MariadbDialect
from deploy.servers.mysql import MysqlDialect
from millrace.cli import COMMANDS
from millrace.errors import Fatal
from schemas.documents import ConflictPolicy, Consistency, TlsMode, parse_set, parse_task

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


@pytest.mark.parametrize("dialect", [MariadbDialect, MysqlDialect])
def test_the_grants_of_a_source_are_those_that_capture_is_tried_with(
    dialect: type[MariadbDialect] | type[MysqlDialect],
) -> None:
    """Every server of ours gives the service's account these, and no more."""
    told = (ROOT / "README.md").read_text().partition("CREATE USER")[2].partition("\n\n")[0]
    rights = ", ".join(re.findall(r"^    GRANT (.*) ON \*\.\* TO millrace;", told, re.MULTILINE))
    if dialect is MariadbDialect:
        rights += ", " + "".join(re.findall(r"MariaDB also: (.*)$", told, re.MULTILINE))
    assert sorted(rights.split(", ")) == sorted(dialect.source_privileges.split(", "))


def test_relative_links_lead_somewhere() -> None:
    """Links between our own documents."""
    for document in (*DOCUMENTS, "ARCHITECTURE.md", "docs/record.md", "docs/documents.md"):
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


def _fields_told(heading: str) -> list[str]:
    """The first column of the table below a heading of docs/documents.md."""
    text = (ROOT / "docs/documents.md").read_text()
    part = next(part for part in text.split("\n## ") if part.startswith(heading))
    return re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE)


@pytest.mark.parametrize(
    ("heading", "kind"), [("A set", ""), ("A capture", "capture"), ("An apply", "apply")]
)
def test_every_field_of_a_document_is_in_the_documents_page(heading: str, kind: str) -> None:
    """A field that nobody takes is refused with the names of all that are: the page has these and no other."""
    unknown = {"?": 1, **({"kind": kind} if kind else {})}
    with pytest.raises(Fatal) as caught:
        (parse_task if kind else parse_set)(unknown)
    (known,) = re.findall(r"an unknown field, wanted one of (.*)", caught.value.message)
    assert sorted([*_fields_told(heading), "format"]) == known.split(", ")


@pytest.mark.parametrize("choices", [TlsMode, ConflictPolicy, Consistency])
def test_every_choice_of_a_field_is_in_the_documents_page(choices: type[StrEnum]) -> None:
    """Nobody has to guess a word and be refused."""
    text = (ROOT / "docs/documents.md").read_text()
    assert [word for word in choices if f"`{word}`" not in text] == []
