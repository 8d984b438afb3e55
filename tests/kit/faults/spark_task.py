"""One apply task on a real Spark cluster: its driver in a process, its topic, Python workers that stop at a point."""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from millrace.deploy.servers import DatabaseServer, KafkaServer
from millrace.deploy.servers.process import ProcessSpec, ServerProcess, last_lines
from millrace.deploy.servers.spark import SparkCluster, cluster_environment
from tests.fixtures.spark import PASSWORD_VARIABLE
from tests.fixtures.stack import stopped_in
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import RecordStream, TopicWriter
from tests.kit.waiting import INNODB_LOOK_S, eventually

_PASSWORD = {PASSWORD_VARIABLE: "millrace-secret"}


@dataclass(frozen=True, slots=True)
class Cluster:
    """A master and two workers whose Python workers stop at a fault point."""

    spark: SparkCluster

    def stopped(self) -> tuple[int, ...]:
        """The Python workers that have stopped."""
        return tuple(pid for worker in self.spark.workers for pid in stopped_in(worker))

    def wake(self) -> None:
        """Resume them."""
        for pid in self.stopped():
            with suppress(ProcessLookupError):  # Spark has killed it
                os.kill(pid, signal.SIGCONT)


@contextmanager
def cluster_with(folder: Path, fault: str = "") -> Iterator[Cluster]:
    """A cluster; ``fault`` is armed in its Python workers."""
    environment = _PASSWORD | ({"MILLRACE_FAULT": fault} if fault else {})
    with SparkCluster(folder, environment=environment) as spark:
        yield Cluster(spark)


class Bag:
    """A topic of rows of a table without a key: a row that is written twice shows."""

    def __init__(self, kafka: KafkaServer, target: DatabaseServer, name: str, *, rows: int) -> None:
        self.target, self.name, self.rows = target, name, rows
        target.execute("CREATE TABLE bag (n INT)", db=name)
        self.stream = RecordStream()
        made = table(name, "bag", integer("n"), key=())
        for number in range(rows):
            self.stream.insert(made, {"n": number})
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
        assert found == [(self.rows, self.rows)]

    def run(self) -> int:
        """The run in the fence; each start and each turn adds one."""
        ((run,),) = self.target.execute(
            "SELECT run FROM millrace.fence WHERE task = %s", (self.name,)
        )
        return int(str(run))

    def claims(self) -> int:
        """How many shares of the last spread turn were claimed."""
        ((count,),) = self.target.execute(
            "SELECT COUNT(*) FROM millrace.spread WHERE task = %s", (self.name,)
        )
        return int(str(count))


def driver_of(
    folder: Path, cluster: Cluster, bag: Bag, settings: Mapping[str, str], *, fault: str = ""
) -> ServerProcess:
    """The task's driver, launched. ``fault`` is armed in it alone."""
    given: Sequence[str] = (
        bag.name,
        bag.writer.topic,
        bag.writer.bootstrap,
        str(bag.target.port),
        bag.target.user,
        cluster.spark.master,
        *(f"{name}={value}" for name, value in settings.items()),
    )
    armed = {"MILLRACE_FAULT": fault} if fault else {}
    process = ServerProcess(
        ProcessSpec(
            "the driver",
            (sys.executable, "-m", "tests.kit.apply.process", *given),
            folder / "driver" / "log",
            {**cluster_environment(), **_PASSWORD, **armed},
        )
    )
    process.launch()
    return process


@contextmanager
def driving(
    folder: Path, cluster: Cluster, bag: Bag, settings: Mapping[str, str]
) -> Iterator[ServerProcess]:
    """The task's driver; it must stay alive until the block ends."""
    process = driver_of(folder, cluster, bag, settings)
    try:
        yield process
        assert process.is_alive(), last_lines(process.spec.log, count=30)
    finally:
        process.kill()


def wait_for(claim: Callable[[], bool], driver: ServerProcess, what: str) -> None:
    """Wait for a claim; a failure shows the driver's last lines."""
    try:
        eventually(claim, every_s=INNODB_LOOK_S, what=what)
    except AssertionError as failure:
        failure.add_note(last_lines(driver.spec.log, count=30))
        raise
