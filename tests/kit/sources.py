"""The sources of the tests, parsed once per process."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.kit.paths import ROOT, TESTS


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(path.read_text())


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a module."""
    return tuple(ast.walk(parsed(path)))


@cache
def module_paths() -> tuple[Path, ...]:
    """Every test file."""
    return tuple(sorted(TESTS.rglob("test_*.py")))


def python_files() -> Iterator[Path]:
    """Every module of the product and of the tests."""
    folders = (path for path in ROOT.iterdir() if (path / "__init__.py").exists())
    return (path for folder in folders for path in sorted(folder.rglob("*.py")))


def module_name(path: Path) -> str:
    """The name that imports a module: the folders of the product are parts of ``millrace``."""
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return name if name.startswith(("millrace.", "tests.")) else f"millrace.{name}"


def functions(path: Path) -> Iterator[ast.FunctionDef]:
    """The functions of a module, without methods."""
    return (node for node in parsed(path).body if isinstance(node, ast.FunctionDef))


def names_of_tests() -> set[str]:
    """The name of every test."""
    return {
        node.name
        for path in module_paths()
        for node in functions(path)
        if node.name.startswith("test_")
    }
