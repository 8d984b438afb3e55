"""The register of provoked errors at work: a test that says it provokes a code must make the product raise it.

While a test of ``PROVOCATIONS`` runs, every error, and every finding about a member of a source set, that is made
outside of ``tests/`` is noted by its code. At the end
of a session the codes of each such test that ran (with all its parameters) must be among the noted ones.
"""

import sys
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from millrace.errors import MillraceError
from producer.source.preflight import Finding
from tests.provocations import PROVOCATIONS

_made: defaultdict[str, set[str]] = defaultdict(set)  # by test
_failed: set[str] = set()
_missed: list[str] = []
_WATCHED = frozenset(PROVOCATIONS.values())


def missed(made: dict[str, set[str]]) -> list[str]:
    """``code test`` for each code that its test, one of ``made``, did not provoke."""
    return [
        f"{code} {test}"
        for code, test in PROVOCATIONS.items()
        if test in made and code not in made[test]
    ]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    """Note what the product makes while a test of the register runs."""
    test = getattr(item, "originalname", item.name)
    if test not in _WATCHED:
        yield
        return
    with _noted(MillraceError, _made[test]), _noted(Finding, _made[test]):
        outcome = yield
    if outcome.excinfo is not None:
        _failed.add(test)


@contextmanager
def _noted(kind: type, made: set[str]) -> Iterator[None]:
    """Inside the block the code of each one that the product makes is put into ``made``."""
    real = vars(kind)["__init__"]

    def noting(self: object, code: str, *args: Any, **kwargs: Any) -> None:
        if "/tests/" not in sys._getframe(1).f_code.co_filename:
            made.add(code)
        real(self, code, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "__init__", noting)
        yield


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
