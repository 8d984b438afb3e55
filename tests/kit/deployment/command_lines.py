"""Reads `millrace …` command lines with the real command line, without running them."""

from collections.abc import Sequence
from typing import Any

from millrace.cli import load_command


def values_of(arguments: Sequence[str]) -> dict[str, object]:
    """The values of the options of `millrace ARGUMENTS`. Raises click's UsageError for a wrong one."""
    name, *rest = arguments
    command: Any = load_command(name)
    while place := next((n for n, word in enumerate(rest) if word in _commands(command)), -1) + 1:
        command, rest = _commands(command)[rest[place - 1]], rest[place:]
    return dict(command.make_context(name, rest).params)


def _commands(command: Any) -> dict[str, Any]:
    found: dict[str, Any] = getattr(command, "commands", {})
    return found
