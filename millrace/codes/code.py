"""One entry of the catalogue."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Code:
    """One condition. ``fix`` is a sentence that tells the operator what to do."""

    code: str
    title: str
    cause: str
    fix: str
