"""The catalogue of errors: every code is raised somewhere, provoked by a test, and told on a page."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.codes import CATALOGUE
from millrace.codes.page import markdown
from tests.assertions import asserted, codes_in
from tests.chaos_marks import chaos_tests
from tests.fix_provocations import missed
from tests.provocations import MAPPED, MAPPERS, PROVOCATIONS

ROOT = Path(__file__).parents[2]
PACKAGES = ("millrace", "schemas", "zk", "producer", "consumer", "deploy")


def _codes_of_the_product() -> Iterator[tuple[str, str]]:
    """(code, file) of every text in the product's code that is a code and nothing else."""
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            if path.parent == ROOT / "millrace" / "codes":
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    for code in codes_in(node):
                        if node.value == code:
                            yield code, str(path.relative_to(ROOT))


def test_every_code_is_raised_somewhere_and_every_code_raised_is_declared() -> None:
    """No dead entry, no number out of the air."""
    used = {code for code, _ in _codes_of_the_product()}
    assert used == CATALOGUE.keys()


def test_every_code_is_in_the_register_of_provocations() -> None:
    """And nothing else is."""
    assert PROVOCATIONS.keys() == CATALOGUE.keys()


@pytest.mark.parametrize("code", PROVOCATIONS)
def test_the_test_of_a_code_exists_and_asserts_it(code: str) -> None:
    """Read off its source: a mention is no assertion."""
    assert PROVOCATIONS[code] in asserted()
    assert code in asserted()[PROVOCATIONS[code]]


def test_a_code_is_provoked_without_chaos() -> None:
    """Whether a test provokes its code is looked at where it runs: that is in `make test`."""
    assert set(PROVOCATIONS.values()) & chaos_tests() == set()


def test_codes_that_are_provoked_by_a_mapping_alone_are_known() -> None:
    """A test that calls a function of ``MAPPERS`` itself: its codes, of all in the register, are ``MAPPED``."""
    called = {
        function.name: _called(function) & MAPPERS
        for path in (ROOT / "tests").rglob("test_*.py")
        for function in ast.parse(path.read_text()).body
        if isinstance(function, ast.FunctionDef)
    }
    assert set[str]().union(*called.values()) == MAPPERS
    assert {code for code, test in PROVOCATIONS.items() if called[test]} == MAPPED


def _called(function: ast.FunctionDef) -> set[str]:
    return {ast.unparse(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)}


def test_a_test_that_did_not_provoke_its_code_is_named() -> None:
    """The register is worth something only if a wrong line in it is found."""
    test = PROVOCATIONS["MR-2001"]
    assert missed({test: {"MR-2001"}}) == []
    assert missed({test: {"MR-2002"}}) == [f"MR-2001 {test}"]
    assert missed({}) == []


def test_the_page_of_errors_is_the_catalogue() -> None:
    """`millrace explain --markdown > docs/errors.md` writes it anew."""
    assert (ROOT / "docs/errors.md").read_text() == markdown()


def test_a_fix_names_only_commands_that_exist() -> None:
    """What an operator is told to type can be typed."""
    from millrace.cli import COMMANDS

    for code in CATALOGUE.values():
        for part in f"{code.cause} {code.fix}".split("`")[1::2]:
            words = part.split()
            if words[0] == "millrace" and len(words) > 1:
                assert words[1] in COMMANDS, code
