"""The settings that a driver gives to Spark when it starts its session."""

import os
import shlex
import shutil
import subprocess
import tempfile
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Self

import pytest

from millrace.consumer.spark import scratch
from millrace.consumer.spark import session as driver
from millrace.consumer.spark.session import SparkDriver

_Usage = namedtuple("_Usage", "total used free")


class _Builder:
    """A builder that records the settings of `SparkSession.builder`; the session is a stub."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}

    def master(self, _: str) -> Self:
        return self

    def appName(self, _: str) -> Self:  # noqa: N802 - Spark's own name
        return self

    def config(self, name: str, value: str) -> Self:
        self.settings[name] = value
        return self

    def getOrCreate(self) -> SimpleNamespace:  # noqa: N802 - Spark's own name
        return SimpleNamespace(sparkContext=SimpleNamespace(_gateway=None), stop=lambda: None)


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> _Builder:
    """Replace Spark's builder."""
    made = _Builder()
    monkeypatch.setattr(driver, "SparkSession", SimpleNamespace(builder=made))
    for name in ("SPARK_LOCAL_IP", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, "")  # a driver sets them for its process
    return made


@pytest.mark.parametrize("master", ["local[2]", "spark://127.0.0.1:7077", "yarn"])
def test_spark_never_repeats_a_task(builder: _Builder, master: str) -> None:
    """A failed Spark task ends the query, and no task is copied: Spark must not choose an outcome."""
    SparkDriver(master=master).stop()
    assert builder.settings["spark.task.maxFailures"] == "1"
    assert builder.settings["spark.speculation"] == "false"


def test_operator_setting_overrides_the_default(builder: _Builder) -> None:
    """`millrace apply --conf` sets only what it names."""
    SparkDriver(master="local[2]", settings={"spark.speculation": "true"}).stop()
    assert builder.settings["spark.speculation"] == "true"
    assert builder.settings["spark.task.maxFailures"] == "1"


def test_next_driver_removes_folders_of_a_dead_one(
    builder: _Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark empties its temporary folders on an orderly exit. A killed driver's are recognized by its process."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with subprocess.Popen(["/bin/true"]) as ended:
        ended.wait()
    left = tmp_path / f"{scratch.PREFIX}{ended.pid}-x"
    (left / "artifacts-y").mkdir(parents=True)
    driver = SparkDriver(master="local[2]")
    assert not left.exists()
    folder = _disk(builder)
    assert folder.is_dir()
    assert folder.parent == tmp_path
    assert folder.name.startswith(f"{scratch.PREFIX}{os.getpid()}-")
    driver.stop()
    assert not folder.exists()


def _disk(builder: _Builder) -> Path:
    """Return the driver's folder on disk."""
    (option,) = shlex.split(builder.settings["spark.driver.extraJavaOptions"])[-1:]
    return Path(option.removeprefix("-Djava.io.tmpdir="))


@pytest.mark.parametrize("room", [True, False])
def test_spark_spills_to_memory_only_if_it_fits(
    room: bool, builder: _Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container's /dev/shm has 64 MB: enough for checkpoints, not for a shuffle."""
    free = scratch.LOCAL_FREE_MIN_BYTES if room else 64 << 20
    monkeypatch.setattr(shutil, "disk_usage", lambda _: _Usage(free, 0, free))
    SparkDriver(master="local[1]").stop()
    memory = Path(builder.settings["spark.sql.warehouse.dir"]).parent
    assert Path(builder.settings["spark.local.dir"]).parent == (memory if room else _disk(builder))


def test_removed_folders_are_recreated_for_the_next_query(
    builder: _Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cleaner of temporary files may delete them; Spark makes its folders only once, and every job would fail."""
    names = ("spark-1/pyspark-2", "spark-1/userFiles-3", "blockmgr-4")
    start = builder.getOrCreate

    def start_with_folders() -> SimpleNamespace:
        for name in names:
            Path(builder.settings["spark.local.dir"], name).mkdir(parents=True)
        return start()

    monkeypatch.setattr(builder, "getOrCreate", start_with_folders)
    driver = SparkDriver(master="local[2]")
    local = Path(builder.settings["spark.local.dir"])
    roots = (Path(builder.settings["spark.sql.warehouse.dir"]).parent, _disk(builder))
    for root in roots:
        shutil.rmtree(root)
    assert driver.scratch("t").is_dir()
    assert builder.settings["spark.diskStore.subDirectories"] == "1", "or there are more for blocks"
    assert [name for name in (*names, "blockmgr-4/00") if not (local / name).is_dir()] == []
    assert [root.stat().st_mode & 0o777 for root in roots] == [0o700, 0o700]
    driver.stop()
    assert not any(root.exists() for root in roots)
