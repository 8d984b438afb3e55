"""The register of provoked errors at work: a test that says it provokes a code must make the product raise it.

While a test of ``PROVOCATIONS`` runs, every error that is made outside of ``tests/`` is noted by its code. At the end
of a session the codes of each such test that ran (with all its parameters) must be among the noted ones.
"""

import sys
from collections import defaultdict
from collections.abc import Generator
from typing import Any

import pytest

from millrace.errors import MillraceError
from tests.provocations import PROVOCATIONS, TOLD_OF_A_MEMBER

_made: defaultdict[str, set[str]] = defaultdict(set)  # by test
_failed: set[str] = set()
_missed: list[str] = []
_WATCHED = frozenset(PROVOCATIONS.values())


def missed(made: dict[str, set[str]]) -> list[str]:
    """``code test`` for each code that its test, one of ``made``, did not provoke."""
    return [
        f"{code} {test}"
        for code, test in PROVOCATIONS.items()
        if test in made and code not in made[test] and code not in TOLD_OF_A_MEMBER
    ]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    """Note what the product makes while a test of the register runs."""
    test = getattr(item, "originalname", item.name)
    if test not in _WATCHED:
        yield
        return
    made, real = _made[test], MillraceError.__init__

    def noting(self: MillraceError, code: str, *args: Any, **kwargs: Any) -> None:
        if "/tests/" not in sys._getframe(1).f_code.co_filename:
            made.add(code)
        real(self, code, *args, **kwargs)

    MillraceError.__init__ = noting  # type: ignore[method-assign]
    try:
        outcome = yield
    finally:
        MillraceError.__init__ = real  # type: ignore[method-assign]
    if outcome.excinfo is not None:
        _failed.add(test)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Red when a test of the register passed without its code; not looked at where only some parameters ran."""
    option = session.config.option
    is_part = (
        option.keyword or getattr(option, "lf", False) or any("[" in a for a in session.config.args)
    )
    if not is_part:
        _missed.extend(missed({test: made for test, made in _made.items() if test not in _failed}))
    if _missed and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name them."""
    if _missed:
        terminalreporter.section("not provoked", sep="!", red=True)
        for line in _missed:
            terminalreporter.line(
                f"{line} passed, and the product did not raise the code meanwhile"
            )
