"""Every error we raise, and what the supervisor does about it.

MillraceError
├── Retryable   nothing was lost: back off, run the same step again (task: DEGRADED)
├── Fenced      someone newer owns the task: stop, write nothing, ask ZooKeeper
└── Fatal       going on would lose, duplicate or corrupt rows: a human decides (task: BLOCKED)

The class that is raised says what happens next; the code says what happened. Codes live in one catalogue
(``millrace.codes``), and a code that is not in it can't be raised. Adapters translate driver errors at the edge
with ``raise Retryable("MR-1001", …) from exc``; everybody else catches a *branch*.

Not done here: no retry policy, no logging. The context must never hold a secret.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType

from millrace.codes import CATALOGUE

URL_CREDENTIALS = re.compile(r"(?<=://)[^/@\s:]+:[^@\s]*(?=@)")
CONTEXT_CHARACTERS_MAX = 1000  # beside a message: a quarter of what a status holds of a reason


class MillraceError(Exception):
    """A condition with a stable code, a message for this occurrence, and what the operator can do."""

    code: str
    message: str
    fix: str
    context: Mapping[str, str]

    def __init__(self, code: str, message: str, *, fix: str = "", **context: object) -> None:
        if code not in CATALOGUE:
            raise ValueError(f"{code} is not in millrace.codes.CATALOGUE")
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.fix = fix or CATALOGUE[code].fix
        self.context = MappingProxyType({name: str(value) for name, value in context.items()})

    @property
    def told(self) -> str:
        """For a status, which shows code and fix beside it: the message, and what it lacks of the context.

        Credentials in URLs are cut out. Never longer than the message by more than ``CONTEXT_CHARACTERS_MAX``.
        """
        said = [
            f"{name}={value}"
            for name, value in self.context.items()
            if value
            and (len(value) < 8 or value not in self.message)  # a short one stands there by chance
        ]
        details = URL_CREDENTIALS.sub("[redacted]", ", ".join(said))
        if len(details) > CONTEXT_CHARACTERS_MAX:
            details = details[: CONTEXT_CHARACTERS_MAX - 1] + "…"
        return self.message + (f" ({details})" if details else "")

    def __str__(self) -> str:
        """One line for people: code, message, context."""
        details = ", ".join(f"{name}={value}" for name, value in self.context.items())
        return f"{self.code} {self.message}" + (f" ({details})" if details else "")


class Retryable(MillraceError):
    """Nothing was lost; the same step may be tried again."""


class Fenced(MillraceError):
    """This process is no longer the owner; any further write is a bug."""


class Fatal(MillraceError):
    """Going on would lose, duplicate or corrupt rows."""
