"""Every error that Millrace raises, and what the supervisor does about it.

MillraceError
├── Retryable   nothing was lost: back off and retry the step (task: DEGRADED)
├── Fenced      a newer owner has the task: stop, write nothing, ask ZooKeeper
└── Fatal       continuing would lose, duplicate or corrupt rows: an operator decides (task: BLOCKED)

The class determines the next action. The code identifies the problem. All codes are in one catalogue
(``millrace.codes``); no other code can be raised. Adapters translate driver errors at the edge with
``raise Retryable("MR-1001", …) from exc``. All other code catches one of the three branches.

Not done here: retry policy, logging. The context must never hold a secret.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Self

from millrace.codes import CATALOGUE
from millrace.wording import with_names

URL_CREDENTIALS = re.compile(r"(?<=://)[^/@\s:]+:[^@\s]*(?=@)")
CONTEXT_CHARACTERS_MAX = 1000  # a quarter of the reason that a status can hold


class MillraceError(Exception):
    """An error with a stable code, a message for this occurrence, and a fix for the operator."""

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
        self.fix = with_names(fix or CATALOGUE[code].fix, context)
        self.context = MappingProxyType({name: str(value) for name, value in context.items()})

    def name(self, **names: object) -> Self:
        """The same error; the commands of its fix have these names (``millrace.wording``)."""
        self.fix = with_names(self.fix, names)
        return self

    @property
    def errno(self) -> int | None:
        """The number of the database server's error that it translates, 0 if only the driver had one; else None."""
        return int(self.context["errno"]) if "errno" in self.context else None

    @property
    def own_fix(self) -> str:
        """The fix of this occurrence; empty if it is the one of the code."""
        is_own = self.fix != with_names(CATALOGUE[self.code].fix, self.context)
        return self.fix if is_own else ""

    @property
    def full_message(self) -> str:
        """The message, and the values of the context that it does not mention. For a status, which adds code and fix.

        Credentials in URLs are cut out. At most ``CONTEXT_CHARACTERS_MAX`` characters are added to the message.
        """
        values = [
            f"{name}={value}"
            for name, value in self.context.items()
            if value
            and (len(value) < 8 or value not in self.message)  # a short one may match by chance
        ]
        details = URL_CREDENTIALS.sub("[redacted]", ", ".join(values))
        if len(details) > CONTEXT_CHARACTERS_MAX:
            details = details[: CONTEXT_CHARACTERS_MAX - 1] + "…"
        return self.message + (f" ({details})" if details else "")

    def __str__(self) -> str:
        details = ", ".join(f"{name}={value}" for name, value in self.context.items())
        return f"{self.code} {self.message}" + (f" ({details})" if details else "")


@contextmanager
def naming(**names: object) -> Iterator[None]:
    """Errors of the block get these names in the commands of their fixes."""
    try:
        yield
    except MillraceError as error:
        raise error.name(**names)  # noqa: B904 - the same error


class Retryable(MillraceError):
    """Nothing was lost. The same step may be retried."""


class Fenced(MillraceError):
    """This process no longer owns the task. Any further write is a bug."""


class Fatal(MillraceError):
    """Continuing would lose, duplicate or corrupt rows."""


def defect(error: BaseException) -> Fatal:
    """An error that no part of Millrace expects, as MR-9001: its class and its place.

    Its text is only in the log, which its owner alone can read: a text such as that of a KeyError is a value, perhaps
    of a row, and the status is read by everyone.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = ""
    if trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        place = f" at {'/'.join(file.parts[-3:])}:{trace.tb_lineno}"
    return Fatal("MR-9001", f"{type(error).__name__}{place}")
