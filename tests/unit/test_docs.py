"""The documents say nothing that no test shows: the names they give exist, the commands they show can be run."""

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from deploy.servers.mariadb import MariadbDialect
from deploy.servers.mysql import MysqlDialect
from millrace.cli import COMMANDS
from millrace.errors import Fatal
from schemas.documents import ConflictPolicy, Consistency, TlsMode, parse_set, parse_task
from tests.chaos_marks import chaos_tests

ROOT = Path(__file__).parents[2]
DOCUMENTS = ("README.md", "docs/guarantees.md")
# why a claim has no test that takes its guard away; what stands behind a semicolon explains
REASONS = (
    "the oracle is an outsider",  # it judges what comes out, whatever guards it
    "the harm is made",  # the test beside it does it, and it must be found
    "nothing guards it",
    "only in a whole stack",
    "by hand",  # it was taken away once; a history that can't go red
)
BY_HAND_MAX = 3  # lines; it only goes down
_NO_TEST = re.compile(rf"none: ({'|'.join(REASONS)})(; |$)")
_TEST_NAME = re.compile(r"`(test_\w+)`")
_WITH_PARTS = re.compile(r"`(test_\w+)` \(([^()]*)\)")
_TAKEN_AWAY = {"guard", "rule", "off"}  # parameters of tests whose names are what they take away


@cache
def _modules() -> Mapping[str, str]:
    """Test name → its module."""
    return {
        name: ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)\(", path.read_text(), re.MULTILINE)
    }


def _known_tests() -> set[str]:
    return set(_modules())


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_test_that_a_document_names_exists(document: str) -> None:
    """A claim without its test is no claim."""
    named = set(_TEST_NAME.findall((ROOT / document).read_text()))
    assert named
    assert named <= _known_tests()


def _claims(text: str) -> list[list[str]]:
    """The cells of each line of the tables, headings among them."""
    return [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in text.partition("## Not promised")[0].splitlines()
        if line.startswith("|") and set(line) - set("|- ")
    ]


def _unshown(text: str) -> list[str]:
    """What is wrong with each claim that is not whole: claim, tests, tests of its guard (or why there are none)."""
    known, found = _known_tests(), []
    for claim, *cells in _claims(text):
        if claim == "claim":
            if cells != ["shown by", "its guard matters:"]:
                found.append(f"a table of {cells}")
        elif len(cells) != 2:
            found.append(f"{claim}: {1 + len(cells)} cells")
        elif not _names_tests(cells[0], known):
            found.append(f"{claim}: shown by nothing")
        elif not (_names_tests(cells[1], known) or _NO_TEST.match(cells[1])):
            found.append(f"{claim}: its guard")
    return found


def _names_tests(cell: str, known: set[str]) -> bool:
    named = set(_TEST_NAME.findall(cell))
    return bool(named) and named <= known


def test_every_claim_names_its_tests_and_those_of_its_guard() -> None:
    """No line of the guarantees stands without a test, nor without a word on what happens without its guard."""
    text = (ROOT / "docs/guarantees.md").read_text()
    assert len(_claims(text)) > 80
    assert _unshown(text) == []


def test_few_guards_were_taken_away_by_hand_alone() -> None:
    """Those that no test takes away are not to become more."""
    cells = [line[-1] for line in _claims((ROOT / "docs/guarantees.md").read_text())]
    assert sum(cell.startswith("none: by hand") for cell in cells) <= BY_HAND_MAX


def _plain(name: str) -> str:
    """As the page has it: without the number of a rule, and without what tells two of one name apart."""
    return re.sub(r"^\d | \([^()]*\)$", "", name.strip("`")).replace("_", " ")


@cache
def _taken_away(test: str) -> Mapping[str, bool]:
    """What a test takes away → whether ``make chaos`` alone does; nothing for a test of another kind."""
    if "_without_" not in test:
        return {}
    function = getattr(import_module(_modules()[test]), test)
    found: dict[str, bool] = {}
    for mark in getattr(function, "pytestmark", ()):
        names = mark.args[0] if mark.name == "parametrize" else ""
        if _TAKEN_AWAY & set(names.split(",") if isinstance(names, str) else names):
            for name, is_chaos in _named(mark.args[1], mark.kwargs.get("ids")):
                is_soon = not (is_chaos or test in chaos_tests())
                found[_plain(name)] = found.get(_plain(name), True) and not is_soon
    return found


def _named(given: object, ids: object) -> Iterator[tuple[str, bool]]:
    """The names of a test's parameters, as pytest makes them, and whether each is chaos."""
    assert isinstance(given, list | tuple)
    for number, value in enumerate(given):
        of = getattr(value, "values", value)  # of a `pytest.param`
        first = of[0] if isinstance(of, tuple) else of
        given_id = getattr(value, "id", None)
        name = ids(first) if callable(ids) else ids[number] if isinstance(ids, list) else first
        is_chaos = any(mark.name == "chaos" for mark in getattr(value, "marks", ()))
        yield str(given_id or name), is_chaos


def _misnamed(cell: str) -> list[str]:
    """What stands behind a test in parentheses and is no guard that it takes away, soon or as chaos."""
    found = []
    for test, parts in _WITH_PARTS.findall(cell):
        known, is_chaos = _taken_away(test), False
        for part in re.split("[,;] ", parts):
            is_chaos |= part.startswith("chaos: ")
            if known and known.get(_plain(part.removeprefix("chaos: "))) != is_chaos:
                found.append(part)
    return found


def test_a_guard_that_the_guarantees_name_is_taken_away_by_its_test() -> None:
    """By the name that the test's parameter has; what chaos alone takes away is said to be."""
    cells = [line[-1] for line in _claims((ROOT / "docs/guarantees.md").read_text())]
    tests = [test for cell in cells for test, _ in _WITH_PARTS.findall(cell)]
    assert sum(bool(_taken_away(test)) for test in tests) > 50
    assert [wrong for cell in cells for wrong in _misnamed(cell)] == []


@pytest.mark.parametrize(
    ("said", "is_misnamed"),
    [
        ("an alias is refused", False),
        ("an alias is refused, an id has few digits", False),
        ("an alias is told", True),
        ("an alias is refused, an id", True),
        ("chaos: an alias is refused", True),
        ("an alias is refused; chaos: an id has few digits", True),
    ],
)
def test_a_guard_that_no_test_takes_away_is_found(said: str, is_misnamed: bool) -> None:
    """In whichever place of its parentheses."""
    cell = f"`test_without_its_guard_the_test_of_it_is_red` ({said})"
    assert bool(_misnamed(cell)) == is_misnamed


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_test_that_chaos_alone_runs_is_said_to_be_one(document: str) -> None:
    """`make test` does not show what it shows."""
    text = (ROOT / document).read_text()
    late = [name for name in _TEST_NAME.findall(text) if name in chaos_tests()]
    assert [name for name in late if f"`{name}` (chaos" not in text] == []


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("| rows | `{test}` | none: the oracle is an outsider |", []),
        ("| rows | `{test}` | none: by hand; without it rows are lost |", []),
        ("| rows | `{test}` | `{test}`: a part of it |", []),
        ("| rows | `{test}` |", ["rows: 2 cells"]),
        ("| rows | `{test}` | `{test}` | more |", ["rows: 4 cells"]),
        ("| rows | | `{test}` |", ["rows: shown by nothing"]),
        ("| rows | `test_nobody_wrote` | `{test}` |", ["rows: shown by nothing"]),
        ("| rows | `{test}` | |", ["rows: its guard"]),
        ("| rows | `{test}` | the same |", ["rows: its guard"]),
        ("| rows | `{test}` | none: |", ["rows: its guard"]),
        ("| rows | `{test}` | none: the refusal is the claim |", ["rows: its guard"]),
        ("| rows | `{test}` | none: by hands |", ["rows: its guard"]),
        ("| rows | `{test}` | `test_nobody_wrote` |", ["rows: its guard"]),
        ("| claim | shown by |", ["a table of ['shown by']"]),
    ],
)
def test_a_claim_that_is_not_whole_is_found(line: str, wrong: list[str]) -> None:
    """Whatever is left out."""
    assert _unshown(line.format(test="test_every_harm_is_named")) == wrong


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
