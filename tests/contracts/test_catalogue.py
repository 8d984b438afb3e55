"""Every error code is raised somewhere, provoked by a test, and listed on a page."""

import ast
import re
import shlex
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millrace.cli import COMMANDS, load_command
from millrace.codes import CATALOGUE, Branch
from millrace.codes.page import markdown
from tests.fixtures.provocations import missed
from tests.kit.chaos_marks import chaos_tests
from tests.kit.paths import ROOT
from tests.kit.provocations import PROVOCATIONS
from tests.kit.sources import names_of_tests, nodes

CODE = re.compile(r"MR-[1-9][0-9]{3}")
PACKAGES = ("millrace", "schemas", "registry", "zk", "producer", "consumer", "deploy")


def _paths_with_codes() -> Iterator[Path]:
    """The product's modules that name a code, apart from the catalogue."""
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            if path.parent != ROOT / "millrace" / "codes" and CODE.search(path.read_text()):
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


def test_errors_page_matches_the_catalogue() -> None:
    """`millrace explain --markdown > docs/errors.md` writes the page."""
    assert (ROOT / "docs/errors.md").read_text() == markdown()


def test_commands_in_fixes_and_documents_parse() -> None:
    """An operator can type every command that a fix or a document shows; a bare name is only a mention."""
    texts = [f"{code.cause} {code.fix}" for code in CATALOGUE.values()]
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    shown = {part for text in texts for part in text.split("`")[1::2]}
    for page in pages:
        text = page.read_text()
        shown |= set(re.findall(r"`(millrace [^`\n]+)`", text))
        shown |= set(re.findall(r"^(?:\.venv/bin/)?(millrace .*)$", text, re.MULTILINE))
    commands = [command for command in shown if command.startswith("millrace ")]
    assert len(commands) > 30
    assert {command: _problem(command) for command in commands if _problem(command)} == {}


def _problem(command: str) -> str:
    """Return what the parser has against a command; "" if nothing."""
    words = shlex.split(command.replace(" N", " 1"), comments=True)[1:]
    if words[0].startswith("-"):
        return ""
    if words[0] not in COMMANDS:
        return "no such command"
    if re.search(r"[|…\[]", command):  # a synopsis
        return ""
    return _parse(load_command(words[0]), words[1:])


def _parse(command: Any, words: list[str]) -> str:
    if hasattr(command, "commands") and not (words and words[0].startswith("-")):
        if words and words[0] not in command.commands:
            return f"no such command: {words[0]}"
        return _parse(command.commands[words[0]], words[1:]) if words else ""
    try:
        if words:
            command.make_context("millrace", words)
    except Exception as error:  # noqa: BLE001 - the parser has its own classes
        return str(error)
    return ""
