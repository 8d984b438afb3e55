"""Documents name only existing tests, commands, files and fields."""

import ast
import re
from enum import StrEnum

import pytest

from millrace.cli import COMMANDS
from millrace.deploy.servers.mariadb import MariadbDialect
from millrace.deploy.servers.mysql import MysqlDialect
from millrace.deploy.site import hooks
from millrace.errors import Fatal
from millrace.schemas.documents import (
    Compression,
    ConflictPolicy,
    Consistency,
    RelayMode,
    TlsMode,
    parse_set,
    parse_task,
)
from tests.kit import guarantees
from tests.kit.chaos_marks import chaos_tests
from tests.kit.paths import ROOT, TESTS
from tests.kit.sources import names_of_tests, parsed, python_files

DOCUMENTS = ("README.md", "docs/guarantees.md")
MAPS = ("ARCHITECTURE.md", "CONTRIBUTING.md")  # they name files
_OUR_NAME = re.compile(r"``((?:schemas|drivers|registry|zk|producer|consumer|deploy)(?:\.\w+)+)``")
_ROW = re.compile(
    r"^ *([a-z_]+(?:, [a-z_]+)*(?:\.py)?) {2,}\S", re.MULTILINE
)  # of a list of modules
_TEST_NAME = re.compile(r"`(test_\w+)`")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_tests_named_in_documents_exist(document: str) -> None:
    """Every claim has its test."""
    named = set(_TEST_NAME.findall((ROOT / document).read_text()))
    assert named
    assert named <= names_of_tests()


def test_guarantees_page_matches_the_test_marks() -> None:
    """Each guarantee has a test in `make test`, each mark a guarantee. `python -m tests.kit.guarantees` writes it."""
    assert guarantees.PAGE.read_text() == guarantees.page()
    soon = {
        word for word, tests in guarantees.marked().items() if not chaos_tests().issuperset(tests)
    }
    assert soon == set(guarantees.headlines()) == guarantees.marked().keys()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_documents_label_tests_that_only_chaos_runs(document: str) -> None:
    """`make test` does not run these tests."""
    text = (ROOT / document).read_text()
    late = [name for name in _TEST_NAME.findall(text) if name in chaos_tests()]
    assert [name for name in late if f"`{name}` (chaos" not in text] == []


def test_commands_in_the_readme_exist() -> None:
    """`millrace NAME` is a command, `make NAME` is a target."""
    text = (ROOT / "README.md").read_text()
    commands = set(re.findall(r"(?:bin/|`|&? *\b)millrace ([a-z]+)", text))
    assert commands
    assert commands <= set(COMMANDS)
    targets = set(re.findall(r"make ([a-z]+)", text))
    assert {"demo", "test"} <= targets
    makefile = (ROOT / "Makefile").read_text()
    assert [t for t in targets if not re.search(rf"^{t}:", makefile, re.MULTILINE)] == []


@pytest.mark.parametrize("dialect", [MariadbDialect, MysqlDialect])
def test_readme_grants_match_those_used_in_tests(
    dialect: type[MariadbDialect] | type[MysqlDialect],
) -> None:
    """Every test server gives the service's account exactly these grants."""
    readme = (ROOT / "docs/install.md").read_text().partition("CREATE USER")[2].partition("\n\n")[0]
    rights = ", ".join(re.findall(r"^    GRANT (.*) ON \*\.\* TO millrace;", readme, re.MULTILINE))
    if dialect is MariadbDialect:
        rights += ", " + "".join(re.findall(r"MariaDB also: (.*)$", readme, re.MULTILINE))
    assert sorted(rights.split(", ")) == sorted(dialect.source_privileges.split(", "))


def test_relative_links_resolve() -> None:
    """Each link between the project's pages leads to a file or folder, and its anchor to a heading."""
    wrong = []
    for page in (*(ROOT / "docs").rglob("*.md"), *hooks.PAGES.values()):
        for target, anchor in hooks.links_of(page.read_text()):
            path = page.parent / target if target else page
            has_anchors = bool(anchor) and path.suffix == ".md" and path.exists()
            anchors = hooks.anchors_of(path.read_text()) if has_anchors else {anchor}
            if not path.exists() or anchor not in anchors:
                wrong.append(f"{page.relative_to(ROOT)} → {target}#{anchor}")
    assert wrong == []


@pytest.mark.parametrize("document", MAPS)
def test_files_named_in_the_architecture_exist(document: str) -> None:
    """A map with a wrong name is worse than none."""
    named = set(re.findall(r"`((?:\w+/)+\w+\.py)`", (ROOT / document).read_text()))
    assert named
    found = [
        name for name in named if (ROOT / name).exists() or (ROOT / "consumer" / name).exists()
    ]
    assert sorted(named - set(found)) == []


def test_modules_named_in_docstrings_exist() -> None:
    """A module that is renamed or merged leaves no wrong map, neither in a dotted name nor in a package's list."""
    wrong = []
    for path in filter(lambda path: TESTS not in path.parents, python_files()):
        text = path.read_text()
        wrong += [f"{path}: {name}" for name in _OUR_NAME.findall(text) if not _exists(name)]
        if path.name == "__init__.py":
            rows = _ROW.findall(ast.get_docstring(parsed(path)) or "")
            names = {name for row in rows for name in re.split(r"\.py|, ", row) if name}
            modules = {other.stem for other in path.parent.iterdir()}
            wrong += [f"{path}: {name}" for name in names - modules if names & modules]
    assert wrong == []


def _exists(name: str) -> bool:
    """Return whether a dotted name is a module, or is in the text of one."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        folder = ROOT.joinpath(*parts[:end])
        for path in (folder.with_suffix(".py"), folder / "__init__.py"):
            if path.exists():
                return (
                    parts[end:] == []
                    or re.search(rf"\b{parts[end]}\b", path.read_text()) is not None
                )
    return False


def _fields_told(heading: str) -> list[str]:
    """Return the first column of the table under a heading of docs/documents.md."""
    text = (ROOT / "docs/documents.md").read_text()
    part = next(part for part in text.split("\n## ") if part.startswith(heading))
    return re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE)


@pytest.mark.parametrize(
    ("heading", "kind"), [("A set", ""), ("A capture", "capture"), ("An apply", "apply")]
)
def test_documents_page_lists_every_field(heading: str, kind: str) -> None:
    """The refusal of an unknown field names all fields: the page has these and no other."""
    unknown = {"?": 1, **({"kind": kind} if kind else {})}
    with pytest.raises(Fatal) as caught:
        (parse_task if kind else parse_set)(unknown)
    (known,) = re.findall(r"an unknown field, wanted one of (.*)", caught.value.message)
    assert sorted([*_fields_told(heading), "format"]) == known.split(", ")


@pytest.mark.parametrize("choices", [TlsMode, ConflictPolicy, Consistency, RelayMode, Compression])
def test_documents_page_lists_every_choice(choices: type[StrEnum]) -> None:
    """A user never has to guess a word."""
    text = (ROOT / "docs/documents.md").read_text()
    assert [word for word in choices if f"`{word}`" not in text] == []
