"""The program as a user of a local stack runs it."""

import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from millrace.cli import run
from tests.kit.forked import fork

COMMAND_S = 600.0


def run_millrace(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The ended process; its exit code is not checked."""
    command = [sys.executable, "-m", "millrace", *arguments]
    return subprocess.run(
        command,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )


def run_forked(*arguments: str, **environment: str) -> tuple[int, str]:
    """Exit status and output of a command, in a fork: half of the CPU time of a short command is that of imports."""
    with TemporaryDirectory() as folder:
        log = Path(folder, "log")
        process = fork(run, list(arguments), environment=environment, log=log)
        try:
            return process.wait(COMMAND_S), log.read_text()
        finally:
            process.kill()


def metrics_address(log: Path) -> str:
    """The address that the process has logged at its last start."""
    return str(re.findall(r"http listens .*address=(\S+)", log.read_text())[-1])
