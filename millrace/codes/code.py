"""One entry of the catalogue."""

from dataclasses import dataclass
from enum import Enum


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


def skip_fix(code: str) -> str:
    """How to get past an event that can't be published because of ``code``, which the decision records as its reason."""
    return (
        f"To leave out the source transaction in the message, `millrace unsafe skip-gtid TASK --gtid GTID --reason {code}`. To"
        f" leave out all up to a GTID set, `millrace unsafe reset-position TASK --gtid GTID-SET --reason {code}`. The topic"
        " will never have their changes: apply tasks stop there until you have repaired their targets."
    )
