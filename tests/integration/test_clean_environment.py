"""The wheel in a clean virtual environment, installed by pip from a package index."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from millrace.deploy.package.bundle import INSTALL, build_wheel, make_bundle
from tests.kit.paths import ROOT

pytestmark = pytest.mark.chaos  # needs a package index and takes a minute

# runs a command in a network namespace that has only loopback
_LOOPBACK_UP = """
import fcntl, os, socket, struct, sys
flags = struct.pack("16sH14s", b"lo", 0x41, b"")  # IFF_UP, IFF_RUNNING
fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0x8914, flags)  # SIOCSIFFLAGS
os.execvp(sys.argv[1], sys.argv[1:])
"""
_ALONE = ("unshare", "--net", "--map-root-user", "--", sys.executable, "-c", _LOOPBACK_UP)
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
    return build_wheel(tmp_path_factory.mktemp("dist"))


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
    assert '"$(ls millrace-*.whl)[apply]"' in done.stderr
    shipped = (
        "import millrace.deploy.servers.fetch; assert millrace.deploy.servers.fetch.IVY_FILE.is_file();"
        " import millrace.producer.task.warm_up"
    )
    assert _run(programs / "python", "-c", shipped, cwd=elsewhere).returncode == 0


def test_wheel_is_fit_for_an_index_and_for_uvx(wheel: Path, tmp_path: Path) -> None:
    """The checker of package indexes accepts its metadata, and `uvx` runs it as it is."""
    programs = _environment(tmp_path / "venv", "twine")
    _checked(programs / "twine", "check", "--strict", wheel)
    uvx = Path(sys.executable).with_name("uvx")
    command = (uvx, "--from", wheel, "millrace", "--version")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    said = subprocess.check_output(
        command, env=environment, cwd=tmp_path, text=True, timeout=INSTALL_S
    )
    assert said.startswith("millrace ")


def test_bundle_installs_without_network(tmp_path: Path) -> None:
    """In a network namespace with nothing but loopback: pip checks every hash, and Spark finds its connector."""
    folder = tmp_path / "bundle"
    folder.mkdir()
    make_bundle(folder)
    home = tmp_path / "home"
    for goal in ("core", "apply"):
        _run_alone(*_ALONE, folder / "install", tmp_path / goal, goal, home=home)
        said = _run_alone(*_ALONE, tmp_path / goal / "bin/pip", "check", home=home)
        assert said == "No broken requirements found.\n"
    jars = tmp_path / "apply" / "share" / "millrace" / "jars" / "spark"
    assert list(jars.glob("spark-sql-kafka-*.jar"))
    assert not (home / "jars").exists()
    # Spark starts before the driver asks for an ensemble
    program = (tmp_path / "apply/bin/millrace", "apply")
    done = subprocess.run(
        (*_ALONE, *program), env=_bare(home), capture_output=True, text=True, check=False
    )
    assert "MR-4205 " in done.stderr, done.stderr


def test_bundle_that_is_damaged_installs_nothing(tmp_path: Path) -> None:
    """A byte of a wheel differs; and Python has another version than the wheels are for."""
    folder, venv = tmp_path / "bundle", tmp_path / "venv"
    folder.mkdir()
    (folder / "core.txt").write_text("")
    (folder / "python-version").write_text(f"3.{sys.version_info.minor}\n")
    (folder / "SHA256SUMS").write_text(f"{'0' * 64}  core.txt\n")
    shutil.copy(INSTALL, folder)
    environment = _bare(tmp_path)
    install = (folder / "install", venv)
    done = subprocess.run(install, env=environment, capture_output=True, text=True, check=False)
    assert "the bundle is damaged" in done.stderr
    (folder / "python-version").write_text("3.6\n")
    done = subprocess.run(install, env=environment, capture_output=True, text=True, check=False)
    assert "the wheels are for 3.6" in done.stderr
    assert not venv.exists()


def _run_alone(*command: str | Path, home: Path) -> str:
    done = subprocess.run(
        command, env=_bare(home), capture_output=True, text=True, check=False, timeout=INSTALL_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _bare(home: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHON": sys.executable, "MILLRACE_HOME": str(home)}
