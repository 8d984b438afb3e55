"""A local stack starts from any current folder and with any folder names."""

import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from consumer import scratch, spark
from deploy.local import background
from deploy.local.services import PROGRAM
from deploy.servers.process import ProcessSpec
from deploy.servers.properties import property_value

_Usage = namedtuple("_Usage", "total used free")


def test_services_start_beside_folders_named_like_product_packages(
    tmp_path: Path,
) -> None:
    """Without ``-P``, ``python -m`` would import modules from there."""
    (tmp_path / "millrace").mkdir()
    (tmp_path / "millrace" / "__init__.py").write_text("raise SystemExit('a stranger')\n")
    done = subprocess.run((*PROGRAM, "--help"), cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_keeper_ignores_packages_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ``deploy`` in the current folder is not Millrace's."""
    started: list[ProcessSpec] = []

    class Recorder:
        """A recorder that starts nothing."""

        def __init__(self, spec: ProcessSpec, **_: object) -> None:
            started.append(spec)

        def launch(self) -> None:
            """Do nothing."""

    monkeypatch.setattr(background, "ServerProcess", Recorder)
    background._start_keeper(tmp_path)
    assert started[0].command[:4] == (sys.executable, "-P", "-m", "deploy.local.keeper")


@pytest.mark.parametrize(
    ("path", "written"),
    [
        ("/home/a b/run", "/home/a b/run"),
        ("/home/zo\u00eb/\u0159", "/home/zo\\u00eb/\\u0159"),
        ("/\U0001f600", "/\\ud83d\\ude00"),
        ("/a\\b", "/a\\\\b"),
    ],
)
def test_java_reads_any_path_from_a_properties_file(path: str, written: str) -> None:
    """Java reads the file as Latin-1, and a backslash as an escape."""
    assert property_value(Path(path)) == written


@pytest.mark.parametrize("room", [True, False])
def test_spark_spills_to_memory_only_if_it_fits(
    room: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container's /dev/shm has 64 MB: enough for checkpoints, not for a shuffle."""
    free = scratch.LOCAL_FREE_MIN_BYTES if room else 64 << 20
    memory, usual = tmp_path / "memory", tmp_path / "usual"
    memory.mkdir()
    usual.mkdir()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: _Usage(free, 0, free))
    local = memory if room else usual
    assert spark._settings(memory, usual, "local[1]")["spark.local.dir"] == str(local / "local")
