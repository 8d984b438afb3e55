"""The lengths of files and functions. ``python -m tests.kit.lengths`` lists those that a reader should question."""

import ast
from collections.abc import Mapping

from tests.kit.paths import ROOT
from tests.kit.sources import nodes, python_files

FILE_LINES, FUNCTION_LINES = 500, 70


def of_files() -> dict[str, int]:
    """Lines by file."""
    return {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in python_files()
    }


def of_functions() -> dict[str, int]:
    """Lines by function; without kernels, which are compiled and may be longer."""
    return {
        f"{path.relative_to(ROOT)}: {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in python_files()
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef)
        and "compiled" not in map(ast.unparse, node.decorator_list)
    }


def above(lengths: Mapping[str, int], lines: int) -> dict[str, int]:
    """Those with more lines."""
    return {name: length for name, length in lengths.items() if length > lines}


if __name__ == "__main__":
    for longs in (above(of_files(), FILE_LINES), above(of_functions(), FUNCTION_LINES)):
        for name, length in sorted(longs.items(), key=lambda one: -one[1]):
            print(f"{length:>5}  {name}")
