"""A standalone Spark cluster on loopback: a master, and workers with one core each.

Its executors import the packages of this installation. They run on the addresses 127.0.0.1, 127.0.0.2, … so that Spark
takes each worker for a separate host. Not done here: drivers.
"""

import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import millrace
from millrace.deploy.servers.process import ProcessSpec, ServerProcess, free_port
from millrace.deploy.servers.programs import pyspark_jars

START_S = 60.0
MEMORY = "1g"  # of a worker, for its one executor
_CLASS = "org.apache.spark.deploy"


class SparkCluster:
    """``environment`` extends that of the workers, and so of executors and their Python workers."""

    def __init__(
        self,
        folder: Path,
        *,
        workers: int = 2,
        environment: Mapping[str, str] | None = None,
        dies_with_parent: bool = True,
    ) -> None:
        self._port = free_port()
        self.master = f"spark://127.0.0.1:{self._port}"
        usual = cluster_environment()
        place = ("--host", "127.0.0.1", "--port", str(self._port), "--webui-port", "0")
        specs = [_spec("master", (f"{_CLASS}.master.Master", *place), folder, usual)]
        for number in range(1, workers + 1):
            command = (
                f"{_CLASS}.worker.Worker",
                *("--host", f"127.0.0.{number}", "--webui-port", "0"),
                *("--work-dir", str(folder / f"worker{number}")),
                *("--cores", "1", "--memory", MEMORY, self.master),
            )
            made = _spec(f"worker{number}", command, folder, {**usual, **(environment or {})})
            specs.append(made)
        self._master, *self.workers = (
            ServerProcess(spec, dies_with_parent=dies_with_parent) for spec in specs
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def processes(self) -> tuple[ServerProcess, ...]:
        """The master and the workers; executors are in the workers' sessions."""
        return (self._master, *self.workers)

    def start(self) -> None:
        """Start all; the master listens, and workers register by themselves."""
        try:
            for process in self.processes:
                process.launch()
            self._master.wait_ready(self._listens, timeout_s=START_S)
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        for process in self.processes:
            process.kill()

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0


def _spec(
    name: str, command: tuple[str, ...], folder: Path, environment: Mapping[str, str]
) -> ProcessSpec:
    program = (str(pyspark_jars().parent / "bin/spark-class"), *command)
    return ProcessSpec(f"spark {name}", program, folder / name / "log", environment)


def cluster_environment() -> Mapping[str, str]:
    """The environment of all processes of a cluster, and of its drivers."""
    return {
        "SPARK_HOME": str(pyspark_jars().parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(Path(millrace.__file__).parents[1]),
    }


def driver_settings(executors: int) -> Mapping[str, str]:
    """Settings of a driver that uses this many executors of a cluster, and waits for them."""
    return {
        "spark.cores.max": str(executors),
        "spark.locality.wait": "0s",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
