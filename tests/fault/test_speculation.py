"""Spark executes one lane twice at the same time on a real cluster: each row is applied once.

Millrace disables Spark's speculation (`test_spark_never_repeats_a_task`). Here a setting enables it, as an operator's
may: a copy runs beside a Python worker that is stopped in its lane. Spark places no copy on the host of the first, so
this cluster has two hosts: 127.0.0.1 and 127.0.0.2.
"""

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from consumer.apply.executor import PART_ROWS_MAX
from deploy.servers import DatabaseServer, KafkaServer
from deploy.servers.process import (
    ProcessSpec,
    ServerProcess,
    free_port,
    last_lines,
    session_members,
)
from tests.fixtures.spark import PASSWORD_VARIABLE
from tests.fixtures.stack import stopped_in
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import RecordStream, TopicWriter
from tests.kit.paths import ROOT
from tests.kit.waiting import INNODB_LOOK_S, eventually, is_locked_out

LANES = 4
WAIT_S = 150  # a cluster starts, on two cores
ROWS = LANES * PART_ROWS_MAX + 8_000  # two target transactions a lane
SETTINGS = (
    "spark.speculation=true",
    "spark.speculation.quantile=0.5",
    "spark.speculation.multiplier=1.1",
    "spark.speculation.minTaskRuntime=30s",  # for the first to reach its point: its Python worker must start
    "spark.cores.max=2",
    "spark.locality.wait=0s",  # the lanes need not be where their records are kept
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
    """A master and two workers with one core each; Python workers of the first stop at the fault point."""

    master: str
    first: ServerProcess

    def has(self, pid: int) -> bool:
        """Whether this process belongs to the first worker."""
        return pid in session_members(self.first.identity)


@contextmanager
def _cluster(folder: Path, point: str) -> Iterator[Cluster]:
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    names = ("master", "first", "second")
    commands = (
        ("master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"),
        *(_worker(host, folder, master) for host in ("127.0.0.1", "127.0.0.2")),
    )
    environments: tuple[dict[str, str], ...] = ({}, {"MILLRACE_FAULT": f"{point}:stop"}, {})
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
        yield Cluster(master, processes[1])
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
        """Whether the mark is after all rows, and the task was started once."""
        ask = "SELECT seq, run FROM millrace.progress JOIN millrace.fence USING (task) WHERE task = %s"
        return self.target.execute(ask, (self.name,)) == [(self.stream.seq, 1)]

    def check(self) -> None:
        """Each row once."""
        found = self.target.execute(f"SELECT COUNT(*), COUNT(DISTINCT n) FROM {self.name}.bag")
        assert found == [(ROWS, ROWS)]

    def waits(self) -> bool:
        """Whether the second execution waits for the claim of the first."""
        return is_locked_out(self.target)

    def end_first(self) -> None:
        """End the connection whose lock the second execution waits for."""
        ask = "SELECT trx_mysql_thread_id FROM information_schema.INNODB_TRX WHERE trx_state = 'RUNNING'"
        ((connection,),) = self.target.execute(ask)
        self.target.execute(f"KILL {connection}")


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("point", "is_ended"),
    [
        ("apply.before_lane_commit", False),
        ("apply.before_lane_commit", True),
        ("apply.after_lane_commit", False),
    ],
    ids=["the copy waits", "the copy goes first", "the copy continues"],
)
def test_lane_executed_twice_by_spark_is_applied_once(
    kafka: KafkaServer,
    target_server: DatabaseServer,
    name: str,
    tmp_path: Path,
    *,
    point: str,
    is_ended: bool,
) -> None:
    """A Python worker stops before or after its lane's first commit, and Spark starts the lane again on another host.
    The copy waits for the first or applies the rest; the first resumes later: one run, each row once."""
    bag = Bag(kafka, target_server, name)
    with _cluster(tmp_path, point) as cluster, _driver(tmp_path, cluster, bag) as driver:
        _wait(lambda: bool(stopped_in(cluster.first)), driver, "a lane is stopped")
        (first,) = stopped_in(cluster.first)
        if point == "apply.before_lane_commit":
            _wait(bag.waits, driver, "a copy of the lane waits for it")
            if is_ended:
                bag.end_first()
        is_overtaken = is_ended or point == "apply.after_lane_commit"
        if is_overtaken:
            _wait(bag.is_applied, driver, "the copy applied the lane")
            assert stopped_in(cluster.first) == (first,)
        os.kill(first, signal.SIGCONT)
        _wait(bag.is_applied, driver, "the lanes are done")
        if is_overtaken:
            _wait(
                lambda: not cluster.has(first), driver, "the first found that it is late and ended"
            )
    bag.check()


def _wait(claim: Callable[[], bool], driver: ServerProcess, what: str) -> None:
    try:
        eventually(claim, timeout_s=WAIT_S, every_s=INNODB_LOOK_S, what=what)
    except AssertionError as failure:
        failure.add_note(last_lines(driver.spec.log, count=30))
        raise
