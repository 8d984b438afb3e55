"""Each check of `make check` is a command that must exit with 0."""

import subprocess
import sys
from pathlib import Path

import pytest

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
    """The output of the command is the report."""
    program, *arguments = command
    done = subprocess.run(
        [BIN / program, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
