"""A service keeps its files and its memory to itself."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from millrace.cli import load_command
from tests.kit.relay.writer import Writer, three_files

SERVICES = (
    ("worker", "--relay-dir", "relay"),
    ("apply",),
    ("scheduler",),
    ("registry", "--kafka", "127.0.0.1:1", "--port", "0"),
    ("relay", "serve", "shop", "--relay-dir", "relay", "--listen", "127.0.0.1:0"),
)
_LOOK = """
import json, os, pathlib, resource, subprocess, sys
from millrace import log
from millrace.process.privacy import keep_private
log.configure(json=True, level="info")
keep_private()
pathlib.Path("file").touch()
pathlib.Path("folder").mkdir()
child = [sys.executable, "-c", "import resource; print(resource.getrlimit(resource.RLIMIT_CORE)[0])"]
core = int(subprocess.check_output(child))
print(json.dumps([os.stat("file").st_mode & 0o777, os.stat("folder").st_mode & 0o777, core, os.geteuid()]))
"""


def test_service_files_and_core_dumps_are_private(tmp_path: Path) -> None:
    """A child process inherits both; a service of root warns."""
    done = subprocess.run(
        [sys.executable, "-c", _LOOK], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    file, folder, core, user = json.loads(done.stdout)
    assert (file, folder, core) == (0o600, 0o700, 0)
    assert ("runs as root" in done.stderr) == (user == 0)


def test_fresh_relay_directory_is_private(tmp_path: Path) -> None:
    """Under any umask: relay files hold the rows of the set."""
    before = os.umask(0o022)
    try:
        Writer(tmp_path / "shop", three_files()).run(with_purge=True)
    finally:
        os.umask(before)
    paths = [tmp_path / "shop", *(tmp_path / "shop").rglob("*")]
    assert len(paths) > 5
    modes = {path.name: path.stat().st_mode & 0o777 for path in paths}
    wanted = {path.name: 0o700 if path.is_dir() else 0o600 for path in paths}
    assert modes == wanted


@pytest.mark.parametrize("words", SERVICES, ids=lambda words: "-".join(words[:2]))
def test_every_service_is_private_before_anything_else(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file is created and no connection opened before; only the arguments are checked."""

    class Reached(BaseException):
        """The first thing that the command does."""

    def reach() -> None:
        raise Reached

    command = load_command(words[0])
    modules = ["worker", "apply", "scheduler", "registry", "relay.serve"]
    for module in modules:
        monkeypatch.setattr(f"millrace.cli.{module}.keep_private", reach)
    with pytest.raises(Reached):
        command.main(list(words[1:]), standalone_mode=False)
