"""Errors have a code from the catalogue, a fix, and a branch that decides the next step."""

import re

import pytest

from millrace.codes import CATALOGUE
from millrace.errors import CONTEXT_CHARACTERS_MAX, Fatal, Fenced, MillraceError, Retryable


def test_undeclared_code_cannot_be_raised() -> None:
    """A typo in a code is found when the error is created."""
    with pytest.raises(ValueError, match="MR-0000"):
        Fatal("MR-0000", "never")


def test_fix_defaults_to_the_catalogue() -> None:
    """An operator always gets a fix; the caller may give a better one."""
    assert Fatal("MR-8003", "x").fix == CATALOGUE["MR-8003"].fix
    assert Fatal("MR-8003", "x", fix="y").fix == "y"


def test_error_prints_code_message_and_context() -> None:
    """One line has everything that is known."""
    error = Retryable("MR-8003", "no answer", host="a", port=3306)
    assert str(error) == "MR-8003 no answer (host=a, port=3306)"
    assert error.context == {"host": "a", "port": "3306"}


def test_status_shows_error_context_once_and_within_bounds() -> None:
    """The message gets context that it does not mention (key, seq, GTID), without empty or repeated values."""
    error = Fatal("MR-5010", "update of a row of shop.orders", table="shop.orders", key="7", seq=9)
    assert error.full_message == "update of a row of shop.orders (key=7, seq=9)"
    assert Fatal("MR-5010", "x", gtid="0-1-9", database="").full_message == "x (gtid=0-1-9)"
    assert Fatal("MR-5010", "complete").full_message == "complete"
    assert (
        "hunter2"
        not in Fatal("MR-5041", "x", sql="CONNECTION='mysql://u:hunter2@h/d'").full_message
    )
    assert len(Fatal("MR-5010", "x", key="k" * 9999).full_message) < CONTEXT_CHARACTERS_MAX + 9


def test_three_error_branches_exclude_each_other() -> None:
    """The supervisor decides by the branch."""
    branches = (Retryable, Fenced, Fatal)
    assert all(issubclass(branch, MillraceError) for branch in branches)
    assert not any(issubclass(a, b) for a in branches for b in branches if a is not b)


@pytest.mark.parametrize("code", CATALOGUE.values(), ids=lambda code: code.code)
def test_every_code_has_title_cause_and_fix(code: object) -> None:
    """Codes are MR- and four digits; nothing is empty; a fix is a sentence."""
    found = CATALOGUE[code.code]  # type: ignore[attr-defined]
    assert re.fullmatch(r"MR-[1-9]\d{3}", found.code)
    assert found.title
    assert found.cause
    assert found.fix.rstrip("`'\"").endswith((".", ")")), found.fix
