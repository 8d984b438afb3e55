"""The one catalogue of error codes: what happened, why, and how to fix it.

Its entries are the rows of ``docs/errors.md``. A code is stable once released: its meaning never changes and its number
is never reused. ``branch`` states what happens next: the class that is raised decides it (``millrace.errors``), and a
test compares the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from millrace.pages import page_tables

PAGE = "errors.md"


class Branch(Enum):
    """The action after an error with the code; the value is the text for users."""

    RETRIES = "retries by itself"
    OPERATOR = "needs you"
    FENCED = "another owner continues"
    EITHER = "either: the status shows which"


@dataclass(frozen=True, slots=True)
class Code:
    """One condition: ``title`` states what happened, ``cause`` why, ``fix`` what the operator does."""

    code: str
    title: str
    cause: str
    fix: str
    branch: Branch


def _catalogue() -> Mapping[str, Code]:
    """By code; a page that has a code twice fails the import."""
    catalogue: dict[str, Code] = {}
    for rows in page_tables(PAGE).values():
        for code, title, cause, fix, branch in rows:
            if code in catalogue:
                raise ValueError(f"{code} is declared twice")
            catalogue[code] = Code(code, title, cause, fix, Branch(branch))
    return MappingProxyType(catalogue)


CATALOGUE: Mapping[str, Code] = _catalogue()
