"""The home folder: fetched servers, templates, compiled kernels, local stacks.

It is ``$MILLRACE_HOME``, else ``$XDG_CACHE_HOME/millrace``, else ``~/.cache/millrace``. Everything in it may be deleted
while nothing runs. Millrace fetches or makes it again.
"""

import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from millrace.errors import Fatal

ENVIRONMENT = "MILLRACE_HOME"
STACK = "MILLRACE_STACK"  # the local stack that commands speak to
STACK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def home() -> Path:
    """The absolute path. Creates the folder (mode 0700) if it is missing; Fatal MR-8008 if it cannot."""
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


def connector_folder() -> Path:
    """Where the jars of Spark's Kafka connector are: in an installation from a bundle, else in the home folder."""
    bundled = Path(sys.prefix, "share", "millrace", "jars", "spark")
    return bundled if bundled.is_dir() else home() / "jars" / "spark"


def local_stack_name(environment: Mapping[str, str] = os.environ) -> str:
    """The local stack that commands speak to, where they name none."""
    return environment.get(STACK) or "local"


def local_stack_folder(name: str = "local") -> Path:
    """The folder of the local stack ``name`` (``millrace up``). ValueError if ``name`` is not valid.

    The folder is removed with the stack: "" would remove every stack, ".." the home folder, and "/etc" the system's.
    """
    return _named_home() / "run" / _checked(name)


def _checked(name: str) -> str:
    if not STACK_NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a valid stack name: use letters, digits, _ and -, at most 64"
        )
    return name


def local_stack_environment() -> Mapping[str, str]:
    """The environment with which commands find the local stack. Empty if none runs or its file is unreadable.

    ValueError if MILLRACE_STACK is not a valid name.
    """
    name = _checked(local_stack_name())
    try:
        found = json.loads((local_stack_folder(name) / "environment.json").read_text())
    except (Fatal, OSError, ValueError):  # no stack, or the file is being written
        return {}
    if not isinstance(found, dict):
        return {}
    return {key: value for key, value in found.items() if isinstance(value, str)}
