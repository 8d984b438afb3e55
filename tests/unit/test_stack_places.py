"""A local stack's processes start wherever a user stands, and whatever the folders are called."""

import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from consumer import spark
from deploy import background
from deploy.servers.process import ProcessSpec
from deploy.servers.properties import property_value
from deploy.services import PROGRAM

_Usage = namedtuple("_Usage", "total used free")


def test_services_start_in_the_directory_of_a_project_with_our_packages_names(
    tmp_path: Path,
) -> None:
    """``python -m`` alone would import what lies there."""
    (tmp_path / "millrace").mkdir()
    (tmp_path / "millrace" / "__init__.py").write_text("raise SystemExit('a stranger')\n")
    done = subprocess.run((*PROGRAM, "--help"), cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_keeper_starts_without_the_directory_of_who_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ``deploy`` that lies there is not ours."""
    started: list[ProcessSpec] = []

    class Recorder:
        """Starts nothing."""

        def __init__(self, spec: ProcessSpec, **_: object) -> None:
            started.append(spec)

        def launch(self) -> None:
            """Does nothing."""

    monkeypatch.setattr(background, "ServerProcess", Recorder)
    background._start_keeper(tmp_path)
    assert started[0].command[:4] == (sys.executable, "-P", "-m", "deploy.keeper")


@pytest.mark.parametrize(
    ("path", "written"),
    [
        ("/home/a b/run", "/home/a b/run"),
        ("/home/zo\u00eb/\u0159", "/home/zo\\u00eb/\\u0159"),
        ("/\U0001f600", "/\\ud83d\\ude00"),
        ("/a\\b", "/a\\\\b"),
    ],
)
def test_a_path_in_a_properties_file_is_read_by_java_as_it_is(path: str, written: str) -> None:
    """Java takes the file for Latin-1, and a backslash for an escape."""
    assert property_value(Path(path)) == written


@pytest.mark.parametrize("room", [True, False])
def test_spark_spills_into_memory_only_where_there_is_room(
    room: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container's /dev/shm has 64 MB: checkpoints fit, a shuffle does not."""
    free = spark.LOCAL_FREE_MIN_BYTES if room else 64 << 20
    memory, usual = tmp_path / "memory", tmp_path / "usual"
    memory.mkdir()
    usual.mkdir()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: _Usage(free, 0, free))
    local = memory if room else usual
    assert spark._settings(memory, usual, "local[1]")["spark.local.dir"] == str(local / "local")
