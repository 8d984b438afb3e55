"""One entry of the catalogue."""

from dataclasses import dataclass
from enum import Enum

# How to get past an event: `start` is read only for a topic that never held a record.
START_AFTER = (
    "If the topic has never held a record, give the task a later `start`"
    " (`millrace task create -f FILE --replace`). Otherwise create a capture task with a new topic and a later `start`,"
    " load the target's tables as they were at that GTID set, and create an apply task with a new name for the new topic."
)


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
