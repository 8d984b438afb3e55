"""Each check of `make check` is a command that must exit with 0."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from millrace.home_folder import home
from tests.kit.paths import ROOT

BIN = Path(sys.executable).parent
CHECKS = {
    "ruff": ("ruff", "check", "."),
    "format": ("ruff", "format", "--check", "."),
    "mypy": ("mypy",),
    "imports": ("lint-imports",),
    "english": ("python", "-m", "tests.kit.english"),
    "one root": ("python", "-m", "millrace.process.installation"),
}


@pytest.mark.parametrize("command", CHECKS.values(), ids=CHECKS)
def test_check_passes(command: tuple[str, ...]) -> None:
    """The output of the command is the report.

    All checkouts share a cache of mypy, which compares contents: in a new one it took as long as all unit tests.
    """
    program, *arguments = command
    cache = home() / "mypy"
    cache.mkdir(exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            [BIN / program, *arguments],
            cwd=ROOT,
            env={**os.environ, "MYPY_CACHE_DIR": str(cache)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
