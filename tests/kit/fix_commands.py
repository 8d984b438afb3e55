"""The commands that a fix or a document shows: which are there, and what the real command line has against them."""

import re
import shlex
from typing import Any

from millrace.cli import COMMANDS, load_command


def printed(fix: str) -> list[list[str]]:
    """The arguments of each ``millrace`` command of a fix, in order, for ``millrace.cli.run``."""
    return [shlex.split(one)[1:] for one in re.findall(r"`(millrace \w[^`]*)`", fix)]


def problem_of(command: str, *, is_whole: bool = False) -> str:
    """Return what the parser has against a command; "" if nothing. ``is_whole``: it is no mention."""
    # a value that an f-string has instead of `task` or `set`
    command = command.replace("millrace 1 ", "millrace task ")
    words = shlex.split(re.sub(r" N\b", " 1", command), comments=True)[1:]
    if words[0].startswith("-"):
        return ""
    if words[0] not in COMMANDS:
        return "no such command"
    if re.search(r"[|…\[]", command):  # a synopsis
        return ""
    is_decision = words[0] == "unsafe" and words[1:2] != ["withdraw"] and len(words) > 2
    if is_whole and is_decision and not {"--reason", "--dry-run"} & set(words):
        return "a decision needs a reason"
    return _parse(load_command(words[0]), words[1:], is_whole=is_whole)


def _parse(command: Any, words: list[str], *, is_whole: bool) -> str:
    if hasattr(command, "commands") and not (words and words[0].startswith("-")):
        if words and words[0] not in command.commands:
            return f"no such command: {words[0]}"
        if not words:
            return ""
        return _parse(command.commands[words[0]], words[1:], is_whole=is_whole)
    try:
        if words or is_whole:
            command.make_context("millrace", words)
    except Exception as error:  # noqa: BLE001 - the parser has its own classes
        return str(error)
    return ""
