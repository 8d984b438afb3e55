"""The tests that run only in ``make chaos``, read from their sources."""

import ast
from functools import cache

from tests.kit.sources import module_paths, parsed


@cache
def chaos_tests() -> frozenset[str]:
    """Tests that are marked as a whole; a test with only some marked parameters is not included."""
    return frozenset(
        node.name
        for path in module_paths()
        for module in [parsed(path)]
        for node in module.body
        if isinstance(node, ast.FunctionDef)
        and node.name.startswith("test_")
        and (
            path.parent.name == "chaos"
            or _is_chaos(module)
            or any(map(_names_chaos, node.decorator_list))
        )
    )


def _is_chaos(module: ast.Module) -> bool:
    return any(
        isinstance(node, ast.Assign)
        and ast.unparse(node.targets[0]) == "pytestmark"
        and "pytest.mark.chaos" in ast.unparse(node.value)
        for node in module.body
    )


def _names_chaos(decorator: ast.expr) -> bool:
    return ast.unparse(decorator) == "pytest.mark.chaos"
