"""The wheel in a clean virtual environment, installed by pip from a package index."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.paths import ROOT
from tests.kit.wheel import built_wheel

pytestmark = pytest.mark.chaos  # needs a package index and takes a minute

INSTALL_S = 1200.0
RUN_S = 180.0


def _checked(*command: str | Path, timeout_s: float = RUN_S, cwd: Path = ROOT) -> None:
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, timeout=timeout_s
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built once."""
    return built_wheel(tmp_path_factory.mktemp("dist"))


def _environment(folder: Path, *packages: str | Path) -> Path:
    """Create a virtual environment with these packages; return its folder of programs."""
    _checked(sys.executable, "-m", "venv", folder)
    install = (folder / "bin" / "python", "-m", "pip", "install", "-c", ROOT / "constraints.txt")
    _checked(*install, *packages, timeout_s=INSTALL_S)
    return folder / "bin"


def _run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run in a folder without the checkout and without its path in the environment."""
    return subprocess.run(
        command,
        cwd=cwd,
        env={"PATH": os.environ["PATH"], "MILLRACE_HOME": str(cwd / "home")},
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_S,
    )


def test_wheel_installs_a_subscriber(wheel: Path, tmp_path: Path) -> None:
    """`millrace.client` with confluent-kafka and fastavro and no other dependency of Millrace."""
    programs = _environment(tmp_path / "venv", "--no-deps", wheel, "confluent-kafka", "fastavro")
    code = "import millrace.client as c; c.Subscriber('127.0.0.1:1', 'shop')"
    done = _run(programs / "python", "-c", code, cwd=tmp_path)
    assert "MR-3501" in done.stderr, done.stderr


def test_wheel_installs_a_capture_host(wheel: Path, tmp_path: Path) -> None:
    """`pip install millrace` installs no Spark; the commands start, and one that needs Spark names the extra."""
    programs = _environment(tmp_path / "venv", wheel)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    millrace = programs / "millrace"
    listed = _run(programs / "python", "-m", "pip", "list", cwd=elsewhere).stdout.lower()
    assert "millrace" in listed
    assert "pyspark" not in listed
    assert "pandas" not in listed
    assert _run(millrace, "--help", cwd=elsewhere).returncode == 0
    for words in (("worker", "--relay-dir", "relay"), ("scheduler",), ("status",)):
        done = _run(millrace, *words, cwd=elsewhere)
        assert done.returncode == 4
        assert "MR-4205 " in done.stderr, done.stderr  # root is warned of itself first
    done = _run(millrace, "apply", cwd=elsewhere)
    assert "MR-8011 " in done.stderr
    assert "pip install 'millrace[apply]'" in done.stderr
    shipped = (
        "import millrace.deploy.servers.fetch; assert millrace.deploy.servers.fetch.IVY_FILE.is_file();"
        " import millrace.producer.task.warm_up"
    )
    assert _run(programs / "python", "-c", shipped, cwd=elsewhere).returncode == 0
