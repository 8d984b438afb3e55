"""The exit codes of ``millrace``, and the form of an error for people and for scripts.

A script decides by the exit code alone: 0 is done, 1 is an answer that it asked for, 3 is worth another try, 4 is not.
``millrace --help`` and ``docs/commands.md`` show the table.

With ``--json``, an error is one JSON object, the last line of standard error. Standard output holds only the result.
Credentials in URLs are cut out; contexts of errors never hold a secret.
"""

import json
import select
import sys
from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

from millrace.errors import URL_CREDENTIALS, Fenced, MillraceError, Retryable


class ExitCode(IntEnum):
    DONE = 0
    FINDING = 1
    USAGE = 2
    RETRY = 3
    OPERATOR = 4
    FENCED = 5
    # EX_SOFTWARE; a worker whose task does not stop ends with it, too (``zk.run.worker``)
    DEFECT = 70
    RESTART = 75  # EX_TEMPFAIL
    INTERRUPTED = 130  # 128 + SIGINT
    CLOSED = 141  # 128 + SIGPIPE


MEANINGS: Mapping[ExitCode, str] = MappingProxyType(
    {
        ExitCode.DONE: "done, or nothing to do",
        ExitCode.FINDING: "a finding: a difference, a failed verification, a plan with changes",
        ExitCode.USAGE: "wrong usage: an unknown command or option, or an invalid value",
        ExitCode.RETRY: "an error that may pass: try again",
        ExitCode.OPERATOR: "an error that needs you: follow the fix",
        ExitCode.FENCED: "another process has taken over",
        ExitCode.DEFECT: "a defect of Millrace, or a service whose tasks do not stop",
        ExitCode.RESTART: "an apply driver without its JVM: start it again",
        ExitCode.INTERRUPTED: "interrupted with Ctrl-C",
        ExitCode.CLOSED: "the program that reads the output has ended, such as `head`",
    }
)


class Finding(Exception):
    """A command verified something and found it wrong. Ends the command with ``FINDING`` after printing the error."""

    def __init__(self, error: MillraceError) -> None:
        super().__init__(str(error))
        self.error = error


class OutputClosed(Exception):
    """Nothing reads standard output any more. Ends the command quietly with ``CLOSED``."""


def is_output_closed() -> bool:
    """Whether standard output is a pipe that nothing reads any more."""
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):  # no file
        return False
    return any(event & select.POLLERR for _, event in poll.poll(0))


def exit_code_of(error: MillraceError) -> ExitCode:
    if isinstance(error, Retryable):
        return ExitCode.RETRY
    return ExitCode.FENCED if isinstance(error, Fenced) else ExitCode.OPERATOR


def print_error(error: MillraceError, code: ExitCode, *, as_json: bool) -> ExitCode:
    """Print an error to standard error, as two lines or as one JSON object; returns ``code``."""
    if as_json:
        text = json.dumps(plain_error(error, code), ensure_ascii=False)
    else:
        text = f"{error}\n  {error.fix}"
    print(text, file=sys.stderr, flush=True)
    return code


def plain_error(error: MillraceError, code: ExitCode) -> dict[str, object]:
    return {
        "code": error.code,
        "class": type(error).__name__.lower(),
        "message": _redacted(error.message),
        "fix": _redacted(error.fix),
        "context": {name: _redacted(value) for name, value in error.context.items()},
        "exit_code": int(code),
    }


def is_json_wanted(arguments: list[str]) -> bool:
    """Whether a command line asks for JSON. Words after ``--`` are no options."""
    words = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in words


def table() -> str:
    """The exit codes, one a line."""
    return "\n".join(f"{code:>5}  {meaning}" for code, meaning in MEANINGS.items())


def _redacted(text: str) -> str:
    return URL_CREDENTIALS.sub("[redacted]", text)
