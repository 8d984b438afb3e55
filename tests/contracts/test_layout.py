"""No test imports a test, and each mutant names an existing test."""

import ast

from tests.kit.paths import ROOT, TESTS
from tests.kit.sources import functions, parsed
from tests.mutants.catalogue import LEVELS


def test_no_test_imports_a_test() -> None:
    """Shared code is in ``tests/kit``, ``tests/fixtures`` or ``tests/oracle``."""
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in TESTS.rglob("*.py")
        for node in ast.walk(parsed(path))
        for name in _imported(node)
        if name.rpartition(".")[2].startswith("test_")
    }
    assert found == set()


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def test_each_mutant_names_an_existing_test() -> None:
    """`make mutants` runs them; this finds a renamed test."""
    missing = [
        f"{mutant.name}: {mutant.file}::{test}"
        for mutants in LEVELS.values()
        for mutant in mutants
        for test in mutant.shows
        if test.partition("[")[0] not in {node.name for node in functions(ROOT / mutant.file)}
    ]
    assert missing == []
