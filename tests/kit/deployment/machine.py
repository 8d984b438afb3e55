"""A machine that runs the units: systemd as PID 1 in a container of systemd-nspawn, on a copy of this system's files.

    with Machine(folder, files={"/etc/millrace/millrace.env": "…"}, program=folder / "opt") as machine:
        machine.run("systemctl", "start", "millrace-scheduler")

The root is an overlay: this system's files below, a memory file system above. So nothing outside changes: the
container has its own /tmp, /run, /dev and units. It shares the network, so that it reaches servers on loopback.
It ends with this process.

Needs root, and Debian for `systemd-nspawn`, which is fetched into ``$MILLRACE_HOME/tools`` and not installed.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from millrace.deploy.package.bundle import build_wheel
from millrace.deploy.servers import die_with_parent
from millrace.home_folder import home
from tests.kit.paths import ROOT
from tests.kit.waiting import eventually

UNITS = ROOT / "deploy" / "systemd"
PROGRAM_FOLDER = "/opt/millrace"
INSTALL_S = 900.0
COMMAND_S = 1200.0  # `task wait` of a new installation waits for the compiler
ROOT_BYTES_MAX = 4 << 30  # of memory: kernels, JVM archive, relay log, journal
_BOOT = """\
set -e
mount --make-rprivate /
mount -t tmpfs -o size={bytes} tmpfs {folder}
mkdir {folder}/upper {folder}/work {folder}/root
mount -t overlay overlay -o lowerdir=/,upperdir={folder}/upper,workdir={folder}/work {folder}/root
rm -rf {folder}/root/etc/systemd/system
mkdir -p {folder}/root/etc/systemd/system {folder}/root{program_folder}
cp -r --no-preserve=ownership {files}/. {folder}/root/
exec {nspawn} -D {folder}/root --register=no --keep-unit --boot --link-journal=no --resolv-conf=off --timezone=off \\
    --console=pipe --bind-ro={program}:{program_folder} -- --unit=basic.target --show-status=0
"""
_INSTALL = """\
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /opt
mkdir {program_folder}
mount --bind {program} {program_folder}
umask 022
/usr/bin/python3 -m venv --without-pip {program_folder}
exec {uv} pip install --quiet --python {program_folder}/bin/python --constraint constraints.txt "{wheel}[apply]"
"""


def install_program(folder: Path) -> Path:
    """A virtual environment for ``/opt/millrace`` with the wheel of this checkout and its extra ``apply``."""
    program = folder / "opt"
    program.mkdir()
    program.chmod(0o755)  # another user runs it
    script = _INSTALL.format(
        program=program,
        program_folder=PROGRAM_FOLDER,
        uv=Path(sys.executable).with_name("uv"),
        wheel=build_wheel(folder),
    )
    done = subprocess.run(
        ("unshare", "--mount", "bash", "-c", script),
        cwd=ROOT,
        env={**os.environ, "UV_FIND_LINKS": str(home() / "wheels")},
        capture_output=True,
        text=True,
        timeout=INSTALL_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return program


class Machine:
    """``files``: texts by their path in the container. ``program``: what is bound to ``/opt/millrace``."""

    def __init__(self, folder: Path, *, files: Mapping[str, str], program: Path) -> None:
        self._folder = folder
        self._files = files
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None
        self._leader = 0

    def __enter__(self) -> Self:
        root, files = self._folder / "machine", self._folder / "files"
        root.mkdir()
        for name, text in self._files.items():
            path = files / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        script = _BOOT.format(
            bytes=ROOT_BYTES_MAX,
            folder=root,
            files=files,
            nspawn=_nspawn(),
            program=self._program,
            program_folder=PROGRAM_FOLDER,
        )
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                (
                    *(sys.executable, "-IS", die_with_parent.__file__, str(os.getpid())),
                    *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
                    *("bash", "-c", script),
                ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            eventually(self._has_booted, timeout_s=60, what=f"systemd runs: see {self.log}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        process = self._process
        assert process is not None
        for pid in (self._leader, process.pid):
            if pid:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        process.wait()

    @property
    def log(self) -> Path:
        """The output of the container."""
        return self._folder / "machine.log"

    def run(self, *command: str, user: str = "") -> str:
        """Standard output of a command in the container, which must succeed."""
        done = self.try_run(*command, user=user)
        if done.returncode:
            log = self.try_run("journalctl", "--no-pager", "--lines=60").stdout
            raise AssertionError(f"{' '.join(command)}: {done.stdout}{done.stderr}\n{log}")
        return done.stdout

    def try_run(self, *command: str, user: str = "") -> "subprocess.CompletedProcess[str]":
        """Run a command in the container, as root or another user. Its exit code is not checked."""
        as_user = ("runuser", "-u", user, "--") if user else ()
        inside = ("nsenter", "--target", str(self._leader), "--mount", "--pid", "--uts", "--ipc")
        return subprocess.run(
            (
                *inside,
                "--wdns=/",
                "env",
                "-i",
                "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
                *as_user,
                *command,
            ),
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )

    def copy(self, source: Path, path: str) -> None:
        """Copy a folder of this system into the container."""
        shutil.copytree(source, Path(f"/proc/{self._leader}/root", path.lstrip("/")))

    def shows(self, unit: str, *names: str) -> Mapping[str, str]:
        """Properties of a unit, as `systemctl show` prints them."""
        text = self.run("systemctl", "show", unit, *(f"--property={name}" for name in names))
        return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)

    def journal(self, unit: str) -> str:
        """The log of a unit."""
        return self.run("journalctl", "--no-pager", "--output=cat", f"--unit={unit}")

    def _has_booted(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text()
        if not self._leader:
            self._leader = _systemd_below(self._process.pid)
        return (
            bool(self._leader)
            and not self.try_run("systemctl", "is-active", "basic.target").returncode
        )


def _systemd_below(pid: int) -> int:
    """The first process below ``pid`` that is systemd; 0 if none is."""
    waiting = [pid]
    while waiting:
        process = waiting.pop()
        with suppress(OSError):
            if Path(f"/proc/{process}/comm").read_text().strip() == "systemd":
                return process
            children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
            waiting += map(int, children)
    return 0


def _nspawn() -> Path:
    """`systemd-nspawn` of this system, or of Debian's package."""
    assert os.geteuid() == 0, "systemd in a container needs root"
    if found := shutil.which("systemd-nspawn"):
        return Path(found)
    folder = home() / "tools" / "systemd-container"
    program = folder / "usr" / "bin" / "systemd-nspawn"
    if not program.exists():
        extract_debian("systemd-container", folder, like="systemd")
    return program


def extract_debian(package: str, folder: Path, *, like: str = "") -> None:
    """Fetch a package of Debian and unpack it into ``folder``, in the version in which ``like`` is installed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _debian("apt-get", "update", "-qq", folder=folder)
    wanted = package
    if like:
        version = _debian("dpkg-query", "-W", "-f", "${Version}", like, folder=folder)
        listed = _debian("apt-cache", "madison", package, folder=folder)
        wanted += f"={version}" if version in listed else ""
    _debian("apt-get", "download", "-qq", "-o", "APT::Sandbox::User=", wanted, folder=folder)
    (archive,) = folder.glob("*.deb")
    _debian("dpkg-deb", "--extract", str(archive), str(folder), folder=folder)
    archive.unlink()


def _debian(*command: str, folder: Path) -> str:
    done: subprocess.CompletedProcess[str] = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


def unit_files() -> dict[str, str]:
    """The files of ``deploy/systemd`` where an installation has them."""
    found = {
        f"/etc/systemd/system/{path.name}": path.read_text() for path in UNITS.glob("*.service")
    }
    found["/usr/lib/sysusers.d/millrace.conf"] = (UNITS / "millrace.sysusers").read_text()
    found["/usr/lib/tmpfiles.d/millrace.conf"] = (UNITS / "millrace.tmpfiles").read_text()
    return found
