"""The programs of ``examples/``: their source files, and how many lines of each are program."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.kit.clients.program import EXAMPLES, source_files

_SUFFIXES = (".py", ".sh", ".js", ".go", ".java", ".rs")
# a docstring at the top, and an import of many lines
_BLOCKS = re.compile(r'\A""".*?"""\n|^import \(.*?^\)\n', re.DOTALL | re.MULTILINE)
_NO_PROGRAM = re.compile(r"\s*(?:$|#|//|/\*|\*|import |from \S+ import |use |package )")


def example_programs(folder: Path = EXAMPLES) -> Iterator[Path]:
    """The source files of all examples."""
    return (path for path in source_files(folder) if path.suffix in _SUFFIXES)


def program_lines(path: Path) -> int:
    """Lines of a source file that are neither blank nor comments nor imports."""
    lines = _BLOCKS.sub("", path.read_text()).splitlines()
    return sum(1 for line in lines if not _NO_PROGRAM.match(line))
