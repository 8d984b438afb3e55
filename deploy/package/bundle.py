"""``make bundle``: everything that a host without network needs, with its hashes.

    build/millrace-VERSION-bundle/
        install             makes a virtual environment from these files alone
        core.txt, apply.txt requirements of pip with the hash of each wheel
        wheels/             ours and all that it needs, built where an index has only sources
        jars/spark/         Spark's Kafka connector
        python-version      such as 3.11: the wheels are for this version and for Linux on x86-64
        SHA256SUMS          of all of these
    build/millrace-VERSION-bundle.tar

Versions are those of ``constraints.txt``. Guarantees: the folder gets its name only when it is complete. Not done here:
servers (Kafka, ZooKeeper, databases) and Java, which are yours.
"""

import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

from millrace import __version__
from millrace.deploy.local.wheel import wheels
from millrace.home_folder import home

CHECKOUT = Path(__file__).resolve().parents[2]
BUILD_S = 180.0
CORE, APPLY = "core", "apply"
INSTALL = Path(__file__).with_name("install")
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def build_wheel(folder: Path, *, source: Path = CHECKOUT) -> Path:
    """Build the wheel of a checkout into an empty ``folder``; its path. Needs no package index."""
    command = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder))
    subprocess.run(command, cwd=source, capture_output=True, check=True, timeout=BUILD_S)
    (built,) = folder.glob("*.whl")
    return built


def collect_wheels(folder: Path, wheel: Path, *, extra: str = "") -> list[Path]:
    """Have ``wheel`` and all that it needs in ``folder``, in the versions of ``constraints.txt``; all of them.

    A package that an index has only as sources is built. CalledProcessError if pip fails; it says why.
    """
    folder.mkdir(exist_ok=True)
    wanted = f"{wheel}[{extra}]" if extra else str(wheel)
    links = ("--find-links", str(wheels()), "--find-links", str(folder))
    constraints = ("-c", str(CHECKOUT / "constraints.txt"))
    # constraints do not apply to isolated builds
    command = (*_PIP, "wheel", "-q", "--no-build-isolation", "-w", str(folder), *constraints)
    subprocess.run((*command, *links, wanted), check=True, stdout=sys.stderr)
    return sorted(folder.glob("*.whl"))


def requirements(files: Iterable[Path]) -> str:
    """Lines for ``pip install --require-hashes``."""
    lines = []
    for file in files:
        name, version, *_ = file.name.split("-")
        lines.append(f"{name.replace('_', '-')}=={version} --hash=sha256:{_digest(file)}\n")
    return "".join(sorted(lines))


def make_bundle(folder: Path) -> None:
    """Fill the empty ``folder``."""
    with tempfile.TemporaryDirectory() as name:
        wheel = build_wheel(Path(name))
        core = {file.name for file in collect_wheels(folder / "wheels", wheel)}
        every = collect_wheels(folder / "wheels", wheel, extra=APPLY)
    (folder / f"{CORE}.txt").write_text(requirements(file for file in every if file.name in core))
    (folder / f"{APPLY}.txt").write_text(requirements(every))
    subprocess.run(
        (sys.executable, "-m", "millrace.deploy.servers.fetch", "spark"),
        check=True,
        stdout=sys.stderr,
    )
    shutil.copytree(home() / "jars" / "spark", folder / "jars" / "spark")
    shutil.copy(INSTALL, folder / "install")
    version = f"{sys.version_info.major}.{sys.version_info.minor}\n"
    (folder / "python-version").write_text(version)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    sums = [f"{_digest(file)}  {file.relative_to(folder)}\n" for file in files]
    (folder / "SHA256SUMS").write_text("".join(sums))


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def main() -> int:
    build = CHECKOUT / "build"
    build.mkdir(exist_ok=True)
    name = f"millrace-{__version__}-bundle"
    with tempfile.TemporaryDirectory(dir=build) as work:
        folder = Path(work) / name
        folder.mkdir()
        make_bundle(folder)
        shutil.rmtree(build / name, ignore_errors=True)
        with tarfile.open(build / f"{name}.tar", "w") as archive:
            archive.add(folder, name)
        folder.rename(build / name)
    print(f"build/{name}.tar")
    return 0


if __name__ == "__main__":
    sys.exit(main())
