"""Which shared fixtures a test file uses, directly or through other fixtures: read from the texts, without an import.

A fixture is asked for as a parameter of a test or of another fixture, by ``usefixtures``, or by ``getfixturevalue``.
A parameter that a decorator gives (``parametrize``) is none, unless it is ``indirect``. Fixtures are in
``tests/fixtures`` and in the test files themselves.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.kit.paths import ROOT

FIXTURES = ROOT / "tests" / "fixtures"
_ASKS = ("usefixtures", "getfixturevalue")

Asked = Mapping[str, frozenset[str]]  # by each fixture


def shared_fixtures(path: Path, shared: Iterable[str]) -> frozenset[str]:
    """Which of ``shared`` the tests of this file use."""
    return _used_fixtures(path).intersection(shared)


@cache
def _used_fixtures(path: Path) -> frozenset[str]:
    """All fixtures that the tests of this file use."""
    module = ast.parse(path.read_text())
    fixtures = {**_project_fixtures(), **_fixtures(module)}
    waiting = [
        name
        for function in _functions(module)
        if function.name.startswith("test")
        for name in _asked(function)
    ]
    waiting.extend(_marks(module))
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(fixtures.get(name, ()))
    return frozenset(seen)


@cache
def _project_fixtures() -> Asked:
    fixtures: dict[str, frozenset[str]] = {}
    for path in sorted(FIXTURES.glob("*.py")):
        fixtures.update(_fixtures(ast.parse(path.read_text())))
    return fixtures


def _functions(module: ast.AST) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(module) if isinstance(node, ast.FunctionDef))


def _fixtures(module: ast.AST) -> Asked:
    return {
        function.name: frozenset(_asked(function))
        for function in _functions(module)
        if any("fixture" in ast.unparse(each) for each in function.decorator_list)
    }


def _marks(module: ast.Module) -> Iterator[str]:
    """``pytestmark``."""
    for node in module.body:
        if isinstance(node, ast.Assign):
            yield from _named(node)


def _asked(function: ast.FunctionDef) -> set[str]:
    arguments = function.args
    names = {argument.arg for argument in (*arguments.args, *arguments.kwonlyargs)}
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and not _is_indirect(decorator):
            names.difference_update(*map(_words, decorator.args))
            names.difference_update(str(keyword.arg) for keyword in decorator.keywords)
    for node in (*function.decorator_list, *function.body):
        names.update(_named(node))
    return names


def _is_indirect(decorator: ast.Call) -> bool:
    return any(keyword.arg == "indirect" for keyword in decorator.keywords)


def _named(node: ast.AST) -> Iterator[str]:
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and getattr(call.func, "attr", "") in _ASKS:
            for argument in call.args:
                yield from _words(argument)


def _words(node: ast.AST) -> Iterator[str]:
    """The words in texts; for a text with a variable part, each fixture whose name ends as it does."""
    for text in ast.walk(node):
        if isinstance(text, ast.Constant) and isinstance(text.value, str):
            yield from text.value.replace(",", " ").split()
        elif isinstance(text, ast.JoinedStr) and isinstance(end := text.values[-1], ast.Constant):
            yield from (name for name in _SERVERS if name.endswith(str(end.value)))


_SERVERS = ("mariadb_server", "mysql_server")
