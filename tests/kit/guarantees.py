"""Which tests show which guarantee of docs/guarantees.md: read from their marks, written into the page.

    python -m tests.kit.guarantees      rewrites the table of the page

A test has ``@pytest.mark.guarantee("complete")``; the page explains each word.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from tests.kit.chaos_marks import chaos_tests
from tests.kit.paths import ROOT
from tests.kit.sources import functions, module_paths

PAGE = ROOT / "docs" / "guarantees.md"
BEGIN, END = "<!-- tests: begin -->\n", "<!-- tests: end -->\n"
_HEADLINE = re.compile(r"^## \d+\. ([A-Z][\w ]*)$", re.MULTILINE)


def headlines() -> list[str]:
    """The words of the page, as in the marks."""
    return [found.lower() for found in _HEADLINE.findall(PAGE.read_text())]


def marked() -> Mapping[str, list[str]]:
    """Word → tests with its mark."""
    found = defaultdict(list)
    for path in module_paths():
        for node in functions(path):
            for word in _words(node):
                found[word].append(node.name)
    return found


def _words(test: ast.FunctionDef) -> Iterator[str]:
    for decorator in test.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith(".guarantee"):
            yield from (str(ast.literal_eval(argument)) for argument in decorator.args)


def table() -> str:
    """Markdown, in the order of the page."""
    tests = marked()
    lines = ["| guarantee | shown by |", "|---|---|"]
    for word in headlines():
        named = [
            f"`{test}`{' (chaos)' if test in chaos_tests() else ''}" for test in tests.get(word, [])
        ]
        lines.append(f"| {word} | {', '.join(named)} |")
    return "\n".join([*lines, ""])


def page() -> str:
    """The page with the current table."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page())
