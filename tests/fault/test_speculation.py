"""Spark executes one turn twice at the same time on a real cluster: each row is applied once.

Millrace disables Spark's speculation (`test_spark_never_repeats_a_task`). Here a setting enables it, as an operator's
may: a copy runs beside a Python worker that is stopped in its turn. Spark places no copy on the host of the first, so
this cluster has two hosts: 127.0.0.1 and 127.0.0.2.
"""

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from consumer.apply.applier import DEFAULT_LIMITS
from deploy.servers import DatabaseServer, KafkaServer
from deploy.servers.process import (
    ProcessSpec,
    ServerProcess,
    free_port,
    last_lines,
)
from tests.fixtures.spark import PASSWORD_VARIABLE
from tests.fixtures.stack import stopped_in
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import RecordStream, TopicWriter
from tests.kit.paths import ROOT
from tests.kit.waiting import INNODB_LOOK_S, eventually

WAIT_S = 150  # a cluster starts, on two cores
ROWS = 2 * DEFAULT_LIMITS.window.rows  # two windows
SETTINGS = (
    "spark.speculation=true",
    "spark.speculation.task.duration.threshold=30s",  # for the first to reach its point
    "spark.cores.max=2",
    "spark.locality.wait=0s",
    "spark.scheduler.minRegisteredResourcesRatio=1.0",
    "spark.driver.host=127.0.0.1",
    "spark.driver.bindAddress=127.0.0.1",
)
_SPARK = Path(pyspark.__file__).parent
_ENVIRONMENT = {
    "SPARK_HOME": str(_SPARK),
    "SPARK_LOCAL_IP": "127.0.0.1",
    "PYTHONPATH": str(ROOT),
    "PYSPARK_PYTHON": sys.executable,
    PASSWORD_VARIABLE: "millrace-secret",
}


@dataclass(frozen=True, slots=True)
class Cluster:
    """A master and two workers with one core each, whose Python workers stop at the fault point."""

    master: str
    workers: tuple[ServerProcess, ...]

    def stopped(self) -> tuple[int, ...]:
        """The Python workers that have stopped."""
        return tuple(pid for worker in self.workers for pid in stopped_in(worker))

    def wake(self) -> None:
        """Resume them."""
        for pid in self.stopped():
            with suppress(ProcessLookupError):  # Spark has killed it
                os.kill(pid, signal.SIGCONT)


@contextmanager
def _cluster(folder: Path, point: str) -> Iterator[Cluster]:
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    names = ("master", "first", "second")
    commands = (
        ("master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"),
        *(_worker(host, folder, master) for host in ("127.0.0.1", "127.0.0.2")),
    )
    armed = {"MILLRACE_FAULT": f"{point}:stop"}
    environments: tuple[dict[str, str], ...] = ({}, armed, armed)
    processes = [
        ServerProcess(
            ProcessSpec(
                f"spark {name}",
                (
                    str(_SPARK / "bin/spark-class"),
                    f"org.apache.spark.deploy.{command[0]}",
                    *command[1:],
                ),
                folder / name / "log",
                _ENVIRONMENT | environment,
            )
        )
        for name, command, environment in zip(names, commands, environments, strict=True)
    ]
    try:
        for process in processes:
            process.launch()
        processes[0].wait_ready(lambda: _listens(port), timeout_s=60)
        yield Cluster(master, tuple(processes[1:]))
    finally:
        for process in processes:
            process.kill()


def _worker(host: str, folder: Path, master: str) -> tuple[str, ...]:
    place = ("--host", host, "--work-dir", str(folder / "work"), "--webui-port", "0")
    return ("worker.Worker", *place, "--cores", "1", "--memory", "1g", master)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def _driver(folder: Path, cluster: Cluster, bag: "Bag") -> Iterator[ServerProcess]:
    """The task's driver; it must stay alive until the block ends."""
    given = (
        bag.name,
        bag.writer.topic,
        bag.writer.bootstrap,
        str(bag.target.port),
        bag.target.user,
    )
    process = ServerProcess(
        ProcessSpec(
            "the driver",
            (sys.executable, "-m", "tests.kit.apply.process", *given, cluster.master, *SETTINGS),
            folder / "driver" / "log",
            _ENVIRONMENT,
        )
    )
    process.launch()
    try:
        yield process
        assert process.is_alive(), last_lines(process.spec.log, count=30)
    finally:
        process.kill()


class Bag:
    """A topic of rows of a table without a key, in one micro-batch: a row that is written twice shows."""

    def __init__(self, kafka: KafkaServer, target: DatabaseServer, name: str) -> None:
        self.target, self.name = target, name
        target.execute("CREATE TABLE bag (n INT)", db=name)
        self.stream = RecordStream()
        for number in range(ROWS):
            self.stream.insert(table(name, "bag", integer("n"), key=()), {"n": number})
        self.stream.commit()
        self.writer = TopicWriter(kafka.bootstrap, self.stream)
        self.writer.publish()

    def is_applied(self) -> bool:
        """Whether the mark is after all rows."""
        ask = "SELECT seq FROM millrace.progress WHERE task = %s"
        return self.target.execute(ask, (self.name,)) == [(self.stream.seq,)]

    def check(self) -> None:
        """Each row once."""
        found = self.target.execute(f"SELECT COUNT(*), COUNT(DISTINCT n) FROM {self.name}.bag")
        assert found == [(ROWS, ROWS)]

    def run(self) -> int:
        """The run in the fence; each start and each turn adds one."""
        ((run,),) = self.target.execute(
            "SELECT run FROM millrace.fence WHERE task = %s", (self.name,)
        )
        return int(str(run))


@pytest.mark.chaos
@pytest.mark.parametrize(
    "point", ["apply.after_turn", "apply.before_lane_commit", "apply.after_lane_commit"]
)
def test_turn_executed_twice_by_spark_is_applied_once(
    kafka: KafkaServer, target_server: DatabaseServer, name: str, tmp_path: Path, *, point: str
) -> None:
    """A Python worker stops in its turn, and Spark executes the turn again on another host. The copy is refused, the
    driver starts again, and a later turn applies the rows. The first resumes and writes nothing: each row once."""
    bag = Bag(kafka, target_server, name)
    with _cluster(tmp_path, point) as cluster, _driver(tmp_path, cluster, bag) as driver:
        _wait(lambda: bool(cluster.stopped()), driver, "a turn is stopped")
        run = bag.run()
        _wait(lambda: bag.run() > run, driver, "the copy was refused, and the driver started again")

        def is_applied() -> bool:
            cluster.wake()  # a Python worker that begins on a host stops there, too
            return bag.is_applied()

        _wait(is_applied, driver, "the rows are applied")
    bag.check()


def _wait(claim: Callable[[], bool], driver: ServerProcess, what: str) -> None:
    try:
        eventually(claim, timeout_s=WAIT_S, every_s=INNODB_LOOK_S, what=what)
    except AssertionError as failure:
        failure.add_note(last_lines(driver.spec.log, count=30))
        raise
