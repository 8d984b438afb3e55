"""Building the wheel of this checkout."""

import subprocess
import sys
from pathlib import Path

from tests.kit.paths import ROOT

BUILD_S = 180.0


def built_wheel(folder: Path) -> Path:
    """Build the wheel into ``folder``; its path. Needs no package index."""
    command = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder))
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=BUILD_S)
    (built,) = folder.glob("*.whl")
    return built
