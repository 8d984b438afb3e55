"""Every error code is raised somewhere, provoked by a test, and listed on a page."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.cli import COMMANDS, load_command
from millrace.codes import CATALOGUE, PAGE, Branch
from millrace.pages import page_text
from tests.fixtures.provocations import missed
from tests.kit.chaos_marks import chaos_tests
from tests.kit.fix_commands import problem_of
from tests.kit.paths import ROOT
from tests.kit.provocations import PROVOCATIONS
from tests.kit.sources import names_of_tests, nodes

CODE = re.compile(r"MR-[1-9][0-9]{3}")
PACKAGES = ("millrace", "schemas", "drivers", "registry", "zk", "producer", "consumer", "deploy")


def _paths_with_codes() -> Iterator[Path]:
    """The product's modules that name a code."""
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            if CODE.search(path.read_text()):
                yield path


def _codes_of_the_product() -> Iterator[tuple[str, str]]:
    """Return (code, file) of every string in the product's code that is exactly a code."""
    for path in _paths_with_codes():
        for node in nodes(path):
            if isinstance(node, ast.Constant) and CODE.fullmatch(str(node.value)):
                yield str(node.value), str(path.relative_to(ROOT))


def test_declared_error_codes_are_exactly_those_raised() -> None:
    """No entry is unused, and no code is undeclared."""
    used = {code for code, _ in _codes_of_the_product()}
    assert used == CATALOGUE.keys()


_RAISED = {"Retryable": Branch.RETRIES, "Fatal": Branch.OPERATOR, "Fenced": Branch.FENCED}


def test_each_code_declares_the_branch_it_is_raised_with() -> None:
    """The code raises ``Retryable("MR-…")``, ``Fatal("MR-…")`` or ``Fenced("MR-…")``; two kinds are EITHER."""
    raised: defaultdict[str, set[Branch]] = defaultdict(set)
    for path in _paths_with_codes():
        for node in nodes(path):
            match node:
                case ast.Call(func=ast.Name(id=kind), args=[ast.Constant(value=code), *_]):
                    if kind in _RAISED:
                        raised[str(code)].add(_RAISED[kind])
    assert len(raised) > 100
    wrong = {
        code: found
        for code, found in raised.items()
        if CATALOGUE[code].branch is not (Branch.EITHER if len(found) > 1 else min(found, key=str))
    }
    assert wrong == {}


@pytest.mark.guarantee("explained")
def test_every_error_code_has_a_provocation() -> None:
    """The register has no other entries."""
    assert PROVOCATIONS.keys() == CATALOGUE.keys()


@pytest.mark.guarantee("explained")
def test_each_provocation_is_a_test_of_make_test() -> None:
    """Whether it provokes its code is checked where it runs (``tests/fixtures/provocations.py``)."""
    assert set(PROVOCATIONS.values()) - names_of_tests() == set()
    assert set(PROVOCATIONS.values()) & chaos_tests() == set()


def test_test_that_does_not_provoke_its_code_fails() -> None:
    """A wrong entry of the register must be found."""
    test = PROVOCATIONS["MR-2001"]
    assert missed({test: {"MR-2001"}}) == []
    assert missed({test: {"MR-2002"}}) == [f"MR-2001 {test}"]
    assert missed({}) == []


def test_every_row_of_the_errors_page_is_an_entry() -> None:
    """The page is the catalogue; `millrace explain --markdown` prints it."""
    page = (ROOT / "docs/errors.md").read_text()
    assert re.findall(r"^\| (MR-\d{4}) \|", page, re.MULTILINE) == list(CATALOGUE)
    assert page_text(PAGE) == page


def test_commands_in_fixes_and_documents_parse() -> None:
    """An operator can type every command that a fix or a document shows. A bare name is a mention, except in a fix."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    mentions = {part for code in CATALOGUE.values() for part in code.cause.split("`")[1::2]}
    for page in pages:
        text = "" if page.name == "errors.md" else page.read_text()
        mentions |= set(re.findall(r"`(millrace [^`\n]+)`", text))
        mentions |= set(re.findall(r"^ *(?:\.venv/bin/)?(millrace .*)$", text, re.MULTILINE))
        mentions |= {
            f"millrace {part}" for part in re.findall(r"`([^`\n]+)`", text) if _is_short(part)
        }
    fixes = {part for code in CATALOGUE.values() for part in code.fix.split("`")[1::2]}
    for text, is_fix in _texts_of_the_product():
        shown = set(re.findall(r"`(millrace \w[^`]+)`", text))
        fixes |= shown if is_fix else set()
        mentions |= shown
    commands = dict.fromkeys(mentions, False) | dict.fromkeys(fixes, True)
    commands = {one: whole for one, whole in commands.items() if one.startswith("millrace ")}
    assert len(commands) > 100
    found = {one: problem_of(one, is_whole=is_whole) for one, is_whole in commands.items()}
    assert {one: problem for one, problem in found.items() if problem} == {}


def _is_short(part: str) -> bool:
    """Whether a document's code is a command without its first word, such as ``replica unpin SET HOST:PORT``."""
    words = part.split()
    return (
        len(words) > 2
        and words[0] in COMMANDS
        and words[1] in getattr(load_command(words[0]), "commands", {})
    )


def _texts_of_the_product() -> Iterator[tuple[str, bool]]:
    """Every text outside docstrings, with 1 for values that it gets, and whether it is a fix."""
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        parts: set[int] = set()  # docstrings, and parts of other texts
        for node in nodes(path):
            match node:
                case ast.JoinedStr():
                    parts |= {id(value) for value in node.values}
                case ast.Expr(value=ast.Constant()):
                    parts.add(id(node.value))
        fixes = {id(text) for node in nodes(path) for text in _fix_texts(node)}
        for node in nodes(path):
            if id(node) not in parts and (text := _text_of(node)):
                yield text, id(node) in fixes


def _fix_texts(node: ast.AST) -> Iterator[ast.AST]:
    """The texts of ``fix=…``, and of a name that ends with FIX."""
    match node:
        case ast.keyword(arg="fix", value=value):
            yield from ast.walk(value)
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if name.lower().endswith("fix"):
            yield from ast.walk(value)


def _text_of(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(
                str(one.value) if isinstance(one, ast.Constant) else "1" for one in values
            )
    return ""


def test_fixes_that_install_millrace_take_the_pinned_versions() -> None:
    """Without them, pip installs another PySpark than the one that was tested."""
    texts = [code.fix for code in CATALOGUE.values()]
    texts += [text for text, _ in _texts_of_the_product()]
    shown = [text for text in texts if re.search(r"pip install.*\[(apply|local|1)\]", text)]
    assert len(shown) > 1
    assert [text for text in shown if "-c constraints.txt" not in text] == []
