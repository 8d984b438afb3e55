"""The processes that a driver starts: its JVM, and the Python workers that Spark forks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.paths import ROOT

_DRIVER = """
import os
from millrace.consumer.spark.session import SparkDriver

driver = SparkDriver(master="local[1]")
driver.session.range(1).mapInArrow(lambda batches: batches, "id long").collect()
folder = driver.session._jvm.java.lang.System.getProperty("java.io.tmpdir")
print(folder, *(name.partition("-")[0] for name in os.listdir(folder)), sep="\\n")
driver.stop()
"""


@pytest.mark.chaos
def test_driver_imports_and_leaves_nothing_in_its_working_directory(tmp_path: Path) -> None:
    """The working directory has modules with known names; Spark's temporary files are in the driver's folder."""
    place, temporary = tmp_path / "place", tmp_path / "temporary files"
    place.mkdir()
    temporary.mkdir()
    for name in ("random", "socket", "kazoo", "pyspark", "consumer"):
        (place / f"{name}.py").write_text("raise SystemExit(f'{__name__} of the user')\n")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)}
    done = subprocess.run(
        (sys.executable, "-P", "-c", _DRIVER),
        check=False,
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    folder, *found = done.stdout.splitlines()
    assert Path(folder).parent == temporary
    assert "artifacts" in found
    assert list(temporary.iterdir()) == []
