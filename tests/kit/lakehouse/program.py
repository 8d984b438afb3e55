"""The programs of ``examples/lakehouse`` as processes: Spark writes tables, other readers read them.

    $MILLRACE_HOME/clients/lakehouse-requirements-0f3a…/   an environment with PySpark
    $MILLRACE_HOME/clients/lakehouse-readers-5c1b…/        one with pyiceberg, deltalake and DuckDB

PySpark's archive has 434 MB, so an environment depends on its requirements alone.
"""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path

from millrace.deploy.servers.fetch import fetch_jars
from tests.kit.clients.program import EXAMPLES, clients_home
from tests.kit.forked import ending_with_us

FOLDER = EXAMPLES / "lakehouse"
PROGRAM, PROPERTIES = FOLDER / "lakehouse.py", FOLDER / "lakehouse.properties"
IVY_FILE = Path(__file__).with_name("ivy.xml")
SIZE_MB = 72
BUILD_S, READ_S = 1800.0, 600.0
JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # starts with less CPU time
MEMORY = "1g"
SETTINGS = {
    "spark.jars.packages": "",  # the test has fetched them
    "spark.log.level": "WARN",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.ui.enabled": "false",
}
# a table: its name, the columns of its key, its columns
Tables = Mapping[str, tuple[str, Sequence[str], str]]


class Lake(StrEnum):
    """The formats of tables."""

    DELTA = "delta"
    ICEBERG = "iceberg"

    @property
    def readers(self) -> tuple[str, ...]:
        """The names that ``read.py`` takes."""
        return (
            ("deltalake", "duckdb-delta") if self is Lake.DELTA else ("pyiceberg", "duckdb-iceberg")
        )


@dataclass(frozen=True)
class Lakehouse:
    """The tables in ``folder``. ``program``: the file that Spark runs."""

    lake: Lake
    bootstrap: str
    folder: Path
    tables: Tables
    program: Path = PROGRAM

    def start(self, *options: str, rows_max: int, java: str = JAVA) -> "subprocess.Popen[bytes]":
        """Run the program in another session; ``rows_max`` in a micro-batch. Its output is in ``spark.log``."""
        self.folder.mkdir(exist_ok=True)
        described = self.folder / "tables.json"
        described.write_text(json.dumps(self.tables))
        environment = _environment("requirements")
        jars = fetch_jars("lakehouse", size_mb=SIZE_MB, ivy_file=IVY_FILE)
        settings = {
            **SETTINGS,
            "spark.lakehouse.rows": str(rows_max),
            "spark.sql.catalog.lake.warehouse": str(self.folder),
        }
        command = [
            *(str(environment / "bin/spark-submit"), "--properties-file", str(PROPERTIES)),
            *("--driver-class-path", f"{jars}/*", "--driver-java-options", java),
            *("--driver-memory", MEMORY),
            *(word for item in settings.items() for word in ("--conf", "=".join(item))),
            *(str(self.program), self.lake, self.bootstrap, str(described)),
        ]
        scratch = self.folder / "scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        with (self.folder / "spark.log").open("ab") as log:
            return subprocess.Popen(
                ending_with_us(*command, *options),
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={
                    **{key: text for key, text in os.environ.items() if key != "PYTHONPATH"},
                    "PYSPARK_PYTHON": str(environment / "bin/python"),
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "SPARK_LOCAL_DIRS": str(scratch),
                },
            )

    def log_end(self) -> str:
        """The last lines that the program has written."""
        return (self.folder / "spark.log").read_text(errors="replace")[-3000:]

    @property
    def checkpoint(self) -> Path:
        """Spark's."""
        return self.folder / "_checkpoint"

    def planned(self) -> int:
        """Micro-batches that Spark has begun since the checkpoint is new."""
        return len(list(self.checkpoint.glob("offsets/[0-9]*")))

    def ended(self) -> int:
        """Those of them that have ended."""
        return len(list(self.checkpoint.glob("commits/[0-9]*")))

    def commits(self, topic: str) -> int:
        """Commits of a topic's table."""
        pattern = "_delta_log/*.json" if self.lake is Lake.DELTA else "metadata/v*.metadata.json"
        return len(list(self._table(topic).glob(pattern)))

    def files(self, topic: str) -> int:
        """Files with rows, committed or not."""
        return len(list(self._table(topic).rglob("*.parquet")))

    def rows(self, topic: str, reader: str) -> list[dict[str, object]]:
        """The rows of a topic's table as this reader reads them."""
        environment = _environment("readers")
        command = (environment / "bin/python", FOLDER / "read.py", reader, self._table(topic))
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=READ_S, check=False, cwd=self.folder
        )
        assert done.returncode == 0, f"{reader}: {done.stderr[-3000:]}"
        return [json.loads(line) for line in done.stdout.split("\n") if line]

    def _table(self, topic: str) -> Path:
        name = self.tables[topic][0]
        return self.folder / (name if self.lake is Lake.DELTA else name.replace(".", "/"))


def kill(process: "subprocess.Popen[bytes]") -> None:
    """SIGKILL to the program, its JVM and its workers."""
    with suppress(ProcessLookupError):  # it has ended
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _environment(name: str) -> Path:
    """An environment with what ``FOLDER/<name>.txt`` lists, made if it is missing."""
    requirements = FOLDER / f"{name}.txt"
    digest = sha256(requirements.read_bytes()).hexdigest()[:12]
    folder = clients_home() / f"lakehouse-{name}-{digest}"
    clients_home().mkdir(exist_ok=True)
    with (clients_home() / f"lakehouse-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            _run(sys.executable, "-m", "venv", str(folder))
            # without caches: uv and pip would keep copies of PySpark
            options = ("--quiet", "--no-cache-dir", "-r", str(requirements))
            _run(str(folder / "bin/pip"), "install", *options)
            (folder / ".complete").touch()
    return folder


def _run(*command: str) -> None:
    done = subprocess.run(
        ending_with_us(*command), capture_output=True, text=True, timeout=BUILD_S, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}: {(done.stdout + done.stderr)[-3000:]}"
