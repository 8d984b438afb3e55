"""Builds the wheel of PySpark once for all checkouts of a machine: ``$MILLRACE_HOME/wheels``.

    python -m millrace.deploy.local.wheel

PySpark is a source distribution of 434 MB. uv keeps what it builds only while the index says how long an answer holds.
Of an index that sends neither an ETag nor Cache-Control, it fetches the file again, twice in each checkout, and each
copy stays in its cache with its sources, its wheel and its contents.

Guarantees: a wheel that is there is whole. Checkouts that prepare at the same time build it once.
Not done here: the removal of wheels of other versions. The folder may be deleted while nothing is installed.
"""

import fcntl
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from millrace.home_folder import home

PACKAGE = "pyspark"
CONSTRAINTS = Path("constraints.txt")


def wheels() -> Path:
    """The folder. Creates it: uv refuses to look into one that is missing."""
    folder = home() / "wheels"
    folder.mkdir(exist_ok=True)
    return folder


def ensure(version: str, build: Callable[[Path], object]) -> None:
    """Have the wheel of this version. ``build`` makes it in the folder that it gets."""
    folder = wheels()
    with (home() / "wheels.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if any(folder.glob(f"{PACKAGE}-{version}-*.whl")):
            return
        with tempfile.TemporaryDirectory(dir=folder) as name:
            build(Path(name))
            (wheel,) = Path(name).glob("*.whl")
            wheel.replace(folder / wheel.name)


def pinned(constraints: str) -> str:
    """The version of PySpark in these lines."""
    (version,) = re.findall(rf"^{PACKAGE}==(\S+)", constraints, re.MULTILINE)
    return str(version)


def main() -> int:
    version = pinned(CONSTRAINTS.read_text())
    # build tools come first: constraints do not apply to isolated builds. pip's cache would be another copy
    options = ("--no-deps", "--no-build-isolation", "--no-cache-dir", f"{PACKAGE}=={version}")
    command = (sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir")
    try:
        ensure(version, lambda folder: subprocess.run((*command, str(folder)), check=True))
    except subprocess.CalledProcessError as failed:
        return failed.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
