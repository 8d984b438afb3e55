"""`make setup` says in one sentence what the system lacks, before it downloads anything."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

SETUP = Path(__file__).parents[2] / "deploy" / "setup"
TOOLS = ("bash", "uname", "sed", "head", "rm", "touch", "env")


def _setup_with(
    tmp_path: Path, programs: Sequence[tuple[str, str]]
) -> subprocess.CompletedProcess[str]:
    """Run deploy/setup where only TOOLS and these (name, script) programs exist."""
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
        [bash, str(SETUP), "stamp"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_a_missing_python_is_named_with_the_command_that_mends_it(tmp_path: Path) -> None:
    """One sentence on standard error, nothing made."""
    done = _setup_with(tmp_path, [])
    assert done.returncode == 1
    assert "Python 3.11 or later is missing" in done.stderr
    assert "apt-get install python3" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]


def test_a_python_without_venv_is_told_apart(tmp_path: Path) -> None:
    """Debian splits venv off its Python."""
    done = _setup_with(tmp_path, [("python3", 'case "$2" in *ensurepip*) exit 1;; esac; exit 0')])
    assert "apt-get install python3-venv" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("java", "said"),
    [
        ([], "Java 17 or later is missing"),
        ([("java", "echo 'openjdk version \"11.0.2\"' >&2")], "Java 11 is too old"),
    ],
)
def test_java_is_checked_before_anything_is_downloaded(
    tmp_path: Path, java: list[tuple[str, str]], said: str
) -> None:
    """Missing or too old, with the command."""
    done = _setup_with(tmp_path, [("python3", "exit 0"), *java])
    assert done.returncode == 1
    assert said in done.stderr
    assert "apt-get install openjdk-17-jre-headless" in done.stderr
