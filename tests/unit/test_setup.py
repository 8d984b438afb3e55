"""`make setup` reports a missing program before any download, and a failed download, in one sentence."""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.kit.paths import ROOT

SETUP = ROOT / "deploy" / "local" / "setup"
TOOLS = ("bash", "uname", "sed", "head", "rm", "touch", "env", "mkdir", "cp")
JAVA = ("java", "echo 'openjdk version \"17.0.2\"' >&2")
# `python3 -m venv .venv` installs the program `pip-of-venv` as its Python
PYTHON = (
    "python3",
    'case "$*" in "-m venv .venv") mkdir -p .venv/bin; cp "${0%/*}/pip-of-venv" .venv/bin/python;; esac',
)


def _setup_with(
    tmp_path: Path, programs: Sequence[tuple[str, str]]
) -> subprocess.CompletedProcess[str]:
    """Run deploy/local/setup on a path that has only TOOLS and these (name, script) programs."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found
        (bin_folder / tool).symlink_to(found)
    for name, script in programs:
        (bin_folder / name).write_text(f"#!/bin/bash\n{script}\n")
        (bin_folder / name).chmod(0o755)
    environment = {"PATH": str(bin_folder), "HOME": str(tmp_path)}
    bash = shutil.which("bash")
    assert bash
    return subprocess.run(
        [bash, str(SETUP), "stamp", "local"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def test_missing_python_is_reported_with_the_install_command(tmp_path: Path) -> None:
    """The report is one sentence on standard error; no file is made."""
    done = _setup_with(tmp_path, [])
    assert done.returncode == 1
    assert "Python 3.11 or later is missing" in done.stderr
    assert "apt-get install python3" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]


def test_python_without_venv_is_reported_separately(tmp_path: Path) -> None:
    """Debian packages venv separately."""
    done = _setup_with(tmp_path, [("python3", 'case "$2" in *ensurepip*) exit 1;; esac; exit 0')])
    assert "apt-get install python3-venv" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("java", "wanted"),
    [
        ([], "Java 17 or later is missing"),
        ([("java", "echo 'openjdk version \"11.0.2\"' >&2")], "Java 11 is too old"),
    ],
)
def test_java_is_checked_before_any_download(
    tmp_path: Path, java: list[tuple[str, str]], wanted: str
) -> None:
    """A missing or old Java is reported with the command that installs one."""
    done = _setup_with(tmp_path, [("python3", "exit 0"), *java])
    assert done.returncode == 1
    assert wanted in done.stderr
    assert "apt-get install openjdk-17-jre-headless" in done.stderr


def test_failed_installer_download_is_reported_after_pip_output(tmp_path: Path) -> None:
    """The last line is one sentence with a command. The stamp is not written."""
    pip = 'case "$*" in *" uv") echo "ERROR: no route" >&2; exit 1;; esac'
    done = _setup_with(tmp_path, [PYTHON, JAVA, ("pip-of-venv", pip)])
    assert done.returncode == 1
    *before, last = done.stderr.splitlines()
    assert before == ["ERROR: no route"]
    assert last.startswith("millrace: the Python packages could not be installed")
    assert last.endswith("PIP_INDEX_URL=URL make setup")
    assert not (tmp_path / ".venv" / "stamp-stamp").exists()


def test_environment_is_made_once_for_a_stamp(tmp_path: Path) -> None:
    """A second run, and one for another goal, keep .venv and run the steps."""
    pip = 'echo "$*" >> calls'
    for _ in range(2):
        done = _setup_with(tmp_path, [PYTHON, JAVA, ("pip-of-venv", pip)])
        assert done.returncode == 0, done.stderr
        shutil.rmtree(tmp_path / "bin")
    install, *steps = (tmp_path / "calls").read_text().splitlines()
    assert install.endswith("--constraint constraints.txt uv")
    assert steps == ["-m millrace.deploy.local.prepare local --packages stamp"] * 2


def test_failed_virtual_environment_is_reported(tmp_path: Path) -> None:
    """The disk may be full, or the Python broken."""
    done = _setup_with(tmp_path, [("python3", 'case "$2" in venv) exit 1;; esac'), JAVA])
    assert done.returncode == 1
    assert done.stderr.endswith("run: apt-get install python3-venv\n")
    assert not (tmp_path / ".venv" / "stamp-stamp").exists()


def test_make_bench_prints_only_its_figures_to_stdout(tmp_path: Path) -> None:
    """Setup writes to standard error only, also when it makes everything again."""
    figure = {"name": "capture.bulk", "value": 1.0}
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "deploy" / "local").mkdir(parents=True)
    (tmp_path / "deploy" / "local" / "setup").write_text('echo "making .venv for $2"\n')
    programs = {"millrace": f"echo '{json.dumps(figure)}'"}
    for name, script in programs.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    done = subprocess.run(
        ["make", "bench", "BIN=bin"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
    )
    assert json.loads(done.stdout) == figure
    assert done.stderr == "making .venv for dev\n"
