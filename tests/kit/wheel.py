"""Apart: the wheel of the last commit before one name was installed, and environments with one wheel."""

import os
import subprocess
import sys
import sysconfig
import tarfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from millrace.deploy.package.bundle import build_wheel
from tests.kit.paths import ROOT

RUN_S = 900.0  # compiling kernels takes a minute or two on two idle cores
# Present as long as a wheel installed `schemas`, `producer`, … beside `millrace`
_MARK_OF_SEVERAL_NAMES = "schemas/py.typed"


def earlier_wheel(folder: Path) -> Path:
    """The wheel of the last commit whose wheel installed several names. AssertionError in a clone without history."""
    found = _git("log", "-1", "--diff-filter=D", "--format=%H", "--", _MARK_OF_SEVERAL_NAMES)
    commit = found.decode().strip()
    assert commit, (
        f"the history of this clone has no commit that removes {_MARK_OF_SEVERAL_NAMES}:"
        " the earlier wheel can't be built. Clone with the whole history (git fetch --unshallow)."
    )
    source = folder / "source"
    with tarfile.open(fileobj=BytesIO(_git("archive", f"{commit}^"))) as archive:
        archive.extractall(source, filter="data")
    return build_wheel(folder / "dist", source=source)


def _git(*arguments: str) -> bytes:
    done = subprocess.run(("git", *arguments), cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@dataclass(frozen=True, slots=True)
class Installation:
    """A virtual environment with a wheel. It borrows all other packages from the environment of the tests.

    So two installations differ in Millrace alone, and need no package index.
    """

    folder: Path

    @classmethod
    def of(cls, wheel: Path, folder: Path) -> "Installation":
        """Create the environment and install the wheel with pip."""
        subprocess.run(
            (sys.executable, "-m", "venv", folder),
            check=True,
            capture_output=True,
            timeout=RUN_S,
        )
        made = cls(folder)
        (made.site_packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
        made.install(wheel)
        return made

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        (found,) = self.folder.glob("lib/python*/site-packages")
        return found

    @property
    def program(self) -> tuple[str, ...]:
        """The command line of ``millrace``, without its arguments."""
        return (str(self.python), "-P", "-m", "millrace")

    def install(self, wheel: Path) -> None:
        """Install a wheel over the one that is there, as an operator does."""
        self.run(self.python, "-m", "pip", "install", "--no-deps", "--no-index", wheel)

    def run(self, *command: str | Path, **environment: str) -> str:
        """The output of a command that finds nothing of this checkout. AssertionError if it fails."""
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": "", **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=RUN_S,
        )
        said = f"{command} ended with {done.returncode}\n{done.stdout}{done.stderr}"
        assert done.returncode == 0, said
        return done.stdout
