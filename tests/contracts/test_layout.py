"""Files and functions are short, no test imports a test, tests use public names, each mutant names a test.

Kernels have honest types, and no SQL reads a number through a DOUBLE.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import FLAVOUR_FIXTURES, MYSQL_FIXTURES
from tests.kit import lengths
from tests.kit.paths import ROOT, TESTS
from tests.kit.sources import functions, module_name, nodes, parsed, python_files
from tests.mutants.catalogue import LEVELS

_ADDS_ZERO = re.compile(r"\}`? ?\+ ?0(?![\d.])")
FILE_LINES_MAX, FUNCTION_LINES_MAX = 900, 120
SMALL_LINES = 60
# machine code of loads and stores: LLVM instructions, and the calls to them, have no types
_INTRINSICS = {"memory_machine.py", "memory_checked.py"}
# `mutants` takes guards away, which are private
PUBLIC_ONLY = sorted(
    {path.name for path in TESTS.iterdir() if path.is_dir()} - {"mutants", "__pycache__"}
)
# documented names of Python's, and what an oracle's subclass repairs in python-mysql-replication
FOREIGN = {"_exit", "_getframe", "_read_status_vars_value_for_key"}


def test_no_test_imports_a_test() -> None:
    """Shared code is in ``tests/kit``, ``tests/fixtures`` or ``tests/oracle``; the kit's contracts are shared tests."""
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in TESTS.rglob("*.py")
        for node in nodes(path)
        for name in _imported(node)
        if name.rpartition(".")[2].startswith("test_") and not name.startswith("tests.kit.")
    }
    assert found == set()


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def test_fixtures_named_in_conftest_exist() -> None:
    """It selects tests by the fixtures they use; a renamed fixture would silently change the selection."""
    defined = {
        node.name
        for path in TESTS.rglob("*.py")
        for node in parsed(path).body
        if isinstance(node, ast.FunctionDef)
        and any("fixture" in ast.unparse(decorator) for decorator in node.decorator_list)
    }
    assert {*FLAVOUR_FIXTURES, *MYSQL_FIXTURES} - defined == set()


@pytest.mark.parametrize("folder", PUBLIC_ONLY)
def test_tests_use_only_public_names(folder: str) -> None:
    """A test of a private name breaks with the implementation and shows nothing that a caller sees."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted((TESTS / folder).rglob("*.py"))
        for node in nodes(path)
        for line, name in _private_names(node)
        if name not in FOREIGN | _defined(path)
    ]
    assert found == []


@cache
def _defined(path: Path) -> set[str]:
    return {node.name for node in nodes(path) if isinstance(node, ast.FunctionDef)}


def test_private_names_are_found_in_any_form() -> None:
    """An attribute, an import, and a name that is patched."""
    source = """
from millrace.zk.run.worker import _open_session
value = publisher._audit
patch.setattr(spark, "_share", None)
patch.setattr("millrace.zk.run.worker._open_session", None)
patch.setattr(SparkDriver, "__init__", None)
self._kept, cls._kept, KafkaError._FENCED
"""
    found = [line for node in ast.walk(ast.parse(source)) for line, _ in _private_names(node)]
    assert sorted(found) == [2, 3, 4, 5]


def _private_names(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of each private name that another object or module owns.

    Public in spite of their underscore: ``os._exit``, and the Kafka client's constants of its local errors. The binlog
    oracle extends a method of its decoder's ``QueryEvent``, for which that library has no public way.
    """
    match node:
        case ast.Attribute(
            value=ast.Name(id="self" | "cls" | "os" | "KafkaError" | "QueryEvent"),
        ):
            return
        case ast.Attribute(attr=name, lineno=line):
            names = [name]
        case ast.ImportFrom(names=imported, lineno=line):
            names = [alias.name for alias in imported]
        case ast.Call(func=ast.Attribute(attr="setattr") | ast.Name(id="setattr"), lineno=line):
            values = [part.value for part in node.args if isinstance(part, ast.Constant)]
            names = [value.rpartition(".")[2] for value in values if isinstance(value, str)]
        case _:
            return
    yield from ((line, name) for name in names if name[:1] == "_" and name[:2] != "__")


def test_files_and_functions_are_short() -> None:
    """``python -m tests.kit.lengths`` reports those above half of it, in which a reader may ask why."""
    assert lengths.above(lengths.of_files(), FILE_LINES_MAX) == {}
    assert lengths.above(lengths.of_functions(), FUNCTION_LINES_MAX) == {}


def test_small_modules_say_why_they_are_alone() -> None:
    """A module of a few lines with one importer is a jump more for a reader, unless it has a reason."""
    product = [path for path in python_files() if not path.is_relative_to(TESTS)]
    importers: dict[str, set[Path]] = {}
    for path in product:
        for name in {name for node in nodes(path) for name in _imported(node)}:
            importers.setdefault(name, set()).add(path)
    silent = []
    for path in product:
        place, lines = path.relative_to(ROOT), path.read_text().splitlines()
        users = importers.get(module_name(path), ())
        is_small = len(lines) < SMALL_LINES and len(users) == 1
        if is_small and place.parts[0] != "deploy" and "Apart: " not in lines[0]:
            silent.append(str(place))
    assert silent == []


def test_kernels_have_honest_types() -> None:
    """A kernel that takes ``Any`` accepts an array for an offset."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in python_files()
        if _is_of_kernels(path) and path.name not in _INTRINSICS
        for node in nodes(path)
        if (isinstance(node, ast.Name) and node.id == "Any")
        or (isinstance(node, ast.alias) and node.name == "Any")
    ]
    assert found == []


def _is_of_kernels(path: Path) -> bool:
    """A folder of kernels, or a file that has one."""
    return path.parent.name in ("kernel", "binlog") or any(
        isinstance(node, ast.FunctionDef) and "compiled" in map(ast.unparse, node.decorator_list)
        for node in nodes(path)
    )


def test_no_sql_reads_a_number_by_adding_zero() -> None:
    """The sum is a DOUBLE for a SET, an ENUM and a text: it has 53 bits. ``whole_number`` of a key has 64."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in python_files()
        if path.relative_to(ROOT).parts[0] in ("consumer", "producer", "schemas")
        for node in nodes(path)
        if isinstance(node, ast.JoinedStr) and _ADDS_ZERO.search(ast.unparse(node))
    ]
    assert found == []


def test_each_mutant_names_an_existing_test() -> None:
    """`make mutants` runs them; this finds a renamed test."""
    missing = [
        f"{mutant.name}: {mutant.file}::{test}"
        for mutants in LEVELS.values()
        for mutant in mutants
        for test in mutant.shows
        if test.partition("[")[0] not in _tests_of(ROOT / mutant.file)
    ]
    assert missing == []


def _tests_of(path: Path) -> set[str]:
    """Its own tests, and those of a contract that it imports."""
    own = {node.name for node in functions(path)}
    return own.union(name.rpartition(".")[2] for node in nodes(path) for name in _imported(node))
