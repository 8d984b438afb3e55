"""Where Millrace keeps what lies outside the repository: fetched servers, templates, local stacks.

``$MILLRACE_HOME``, else ``$XDG_CACHE_HOME/millrace``, else ``~/.cache/millrace``. Everything below it can be deleted
while nothing runs and is fetched or made again.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from millrace.errors import Fatal

ENVIRONMENT = "MILLRACE_HOME"
STACK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def home() -> Path:
    """The folder, absolute; created (mode 0700) when it is not there. Fatal MR-8008 when it can't be."""
    path = _named_home()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise Fatal("MR-8008", f"{path}: {exc.strerror}") from exc
    return path


def _named_home() -> Path:
    try:
        if named := os.environ.get(ENVIRONMENT):
            return Path(named).expanduser().resolve()
        cache = os.environ.get("XDG_CACHE_HOME")
        return (Path(cache) if cache else Path.home() / ".cache").resolve() / "millrace"
    except RuntimeError as exc:
        raise Fatal("MR-8008", str(exc)) from exc


def local_stack_folder(name: str = "local") -> Path:
    """Where the local stack of this name keeps its state (``millrace up``); ValueError for what is no name.

    The folder is removed with the stack: "" would be every stack's, ".." the home, and "/etc" the system's own.
    """
    if not STACK_NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is no name of a local stack: letters, digits, _ and -, at most 64"
        )
    return _named_home() / "run" / name


def local_stack_environment(name: str = "local") -> Mapping[str, str]:
    """What a command needs to speak to the local stack; empty when none was started, or its file can't be read."""
    try:
        found = json.loads((local_stack_folder(name) / "environment.json").read_text())
    except (Fatal, OSError, ValueError):  # none, or being written just now
        return {}
    if not isinstance(found, dict):
        return {}
    return {key: value for key, value in found.items() if isinstance(value, str)}
