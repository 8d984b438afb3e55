"""Which error codes a test asserts, read off its source: a code that a test only mentions is not provoked by it.

A code counts where it stands in an ``assert``, a comparison, a ``pytest.raises(…)``, an argument of a function that
asserts (``ASSERTING``); or in the values of a loop, an assignment or ``parametrize`` whose name is used in one of
these. What a function of the same module asserts counts for the test that calls it.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

CODE = re.compile(r"MR-[1-9][0-9]{3}")
TESTS = Path(__file__).parent
# they fail unless the code they are given is told
ASSERTING = {"raises", "refused", "_stands", "wait_report", "wait_unwell", "error_code"}


def codes_in(node: ast.AST) -> set[str]:
    """Codes in the texts below a node."""
    found: set[str] = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            found |= set(CODE.findall(inner.value))
    return found


def _asserted_in(function: ast.FunctionDef) -> set[str]:
    places = [node for node in ast.walk(function) if _is_assertion(node)]
    found = set[str]().union(*map(codes_in, places))
    names = {n.id for place in places for n in ast.walk(place) if isinstance(n, ast.Name)}
    for node in ast.walk(function):
        targets: list[ast.expr] = []
        if isinstance(node, ast.For):
            targets, values = [node.target], node.iter
        elif isinstance(node, ast.Assign):
            targets, values = node.targets, node.value
        elif isinstance(node, ast.Call) and _name(node.func) == "parametrize":
            targets, values = [ast.parse(_names(node.args[0])).body[0].value], node.args[1]  # type: ignore[attr-defined]
        for target in targets:
            if names & {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}:
                found |= codes_in(values)
    return found


def _is_assertion(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return _name(node.func) in ASSERTING
    return isinstance(node, ast.Assert | ast.Compare)


def _names(given: ast.expr) -> str:
    """The names of ``parametrize``: a text, or a tuple of texts."""
    return ",".join(str(n.value) for n in ast.walk(given) if isinstance(n, ast.Constant))


def _name(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


@cache
def asserted() -> Mapping[str, frozenset[str]]:
    """Test name → the codes it asserts, for every test of the suite."""
    return {
        name: frozenset(codes) for path in TESTS.rglob("test_*.py") for name, codes in _of(path)
    }


def _of(path: Path) -> Iterator[tuple[str, set[str]]]:
    module = ast.parse(path.read_text())
    functions = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
    own = {name: _asserted_in(node) for name, node in functions.items()}
    for name, node in functions.items():
        if name.startswith("test_"):
            called = {_name(c.func) for c in ast.walk(node) if isinstance(c, ast.Call)}
            yield name, own[name].union(*(own[c] for c in called & own.keys()))
