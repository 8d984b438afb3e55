"""The fault campaign knows every fault point of the product."""

import ast
from collections.abc import Iterator

import pytest

from tests.kit.faults.campaign import ELSEWHERE, POINTS, PROVOCATIONS, victim_of
from tests.kit.paths import ROOT

PRODUCT = ("millrace", "schemas", "drivers", "registry", "zk", "producer", "consumer", "deploy")


def registrations(tree: ast.Module) -> list[str]:
    """Return the names that a module registers, or ``?`` and the line if the name is not in the call itself."""
    own = {called for node in ast.walk(tree) for called in _imported(node)}
    return [
        node.args[0].value
        if len(node.args) == 1
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
        else f"? line {node.lineno}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in own
    ]


def _imported(node: ast.AST) -> Iterator[str]:
    """Return the name under which this import makes ``register`` of ``millrace.faults`` available."""
    if isinstance(node, ast.ImportFrom) and not node.level:
        for alias in node.names:
            if (node.module, alias.name) == ("millrace.faults", "register"):
                yield alias.asname or alias.name
            elif (node.module, alias.name) == ("millrace", "faults"):
                yield f"{alias.asname or alias.name}.register"
    elif isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name == "millrace.faults":
                yield f"{alias.asname or alias.name}.register"


def test_fault_campaign_covers_every_fault_point() -> None:
    """A point in a part that the campaign does not import would never be killed."""
    found = {
        name: str(path.relative_to(ROOT))
        for part in PRODUCT
        for path in (ROOT / part).rglob("*.py")
        if "faults" in (text := path.read_text())  # each import of ``register`` names it
        for name in registrations(ast.parse(text))
    }
    assert len(found) >= 30
    assert {name: path for name, path in found.items() if name not in POINTS} == {}


@pytest.mark.parametrize(
    "text",
    [
        "from millrace.faults import register\nA = register('a.b')",
        "from millrace.faults import fault_point, register as named\nA = named('a.b')",
        "from millrace import faults\nA = faults.register('a.b')",
        "import millrace.faults\nA = millrace.faults.register('a.b')",
    ],
)
def test_fault_point_registrations_are_found_in_any_form(text: str) -> None:
    """Other functions of the same name are ignored."""
    assert registrations(ast.parse(text)) == ["a.b"]
    assert registrations(ast.parse("def f(book):\n    book.register('a.b')")) == []
    computed = "from millrace.faults import register\nA = register(f'{1}')"
    assert registrations(ast.parse(computed)) == ["? line 2"]


def test_every_provocation_names_a_registered_fault_point() -> None:
    """A renamed point renames its provocation; each point has a victim."""
    assert set(PROVOCATIONS) <= set(POINTS)
    assert {victim_of(point) for point in POINTS} == {*ELSEWHERE, "worker", "scheduler", "apply"}
