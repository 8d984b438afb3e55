"""The program as a user of a local stack runs it."""

import os
import re
import subprocess
import sys
from pathlib import Path


def run_millrace(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The ended process; its exit code is not checked."""
    command = [sys.executable, "-m", "millrace", *arguments]
    return subprocess.run(
        command,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def metrics_address(log: Path) -> str:
    """The address that the process has logged."""
    (address,) = re.findall(r"http listens .*address=(\S+)", log.read_text())
    return str(address)
