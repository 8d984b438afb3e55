"""Spark's own state is lost: a checkpoint or all folders. The target alone holds the task's progress."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from millrace.consumer.spark.session import SparkDriver
from millrace.deploy.servers import DatabaseServer, KafkaServer
from tests.fixtures.spark import running
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import RecordStream, TopicWriter

pytestmark = pytest.mark.usefixtures("target_password")

LANES_ROWS = 20_000


class _Bag:
    """A topic of rows of a table without a key: a lost or repeated row shows."""

    def __init__(self, kafka: KafkaServer, server: DatabaseServer, name: str) -> None:
        self._server, self._name = server, name
        self._table = table(name, "bag", integer("n"), key=())
        self.stream = RecordStream()
        self.writer = TopicWriter(kafka.bootstrap, self.stream)
        self._rows = 0
        server.execute(f"CREATE DATABASE {name}")
        server.execute("CREATE TABLE bag (n INT)", db=name)

    def publish(self, count: int) -> None:
        """Publish ``count`` more rows."""
        for _ in range(count):
            self.stream.insert(self._table, {"n": self._rows})
            self._rows += 1
        self.stream.commit()
        self.writer.publish()

    def check(self) -> None:
        """Each row is there once."""
        found = self._server.execute(f"SELECT COUNT(*), COUNT(DISTINCT n) FROM {self._name}.bag")
        assert found == [(self._rows, self._rows)]
        self._server.execute(f"DROP DATABASE {self._name}")


@pytest.mark.chaos  # ten seconds; that each start makes a new checkpoint is shown by all tests on Spark
def test_deleted_or_damaged_spark_state_loses_no_row(
    spark: SparkDriver, kafka: KafkaServer, target_server: DatabaseServer
) -> None:
    """A running query restarts at most once; the next one begins with a new checkpoint at the target's progress."""
    name = f"scratch_{target_server.flavour}"
    checkpoints = spark.scratch("probe").parent  # of all queries of a driver
    bag = _Bag(kafka, target_server, name)
    bag.publish(10)
    with running(spark, target_server, bag.writer, name=name) as task:
        task.wait_until_at(bag.stream.seq)
        for spoil in (_delete, _empty):
            spoil(next(checkpoints.glob(f"{name}-*")))
            bag.publish(10)
            task.wait_until_at(bag.stream.seq)
        for root in _folders_of_this_process():
            _delete(root)
        bag.publish(LANES_ROWS)
        task.wait_until_at(bag.stream.seq)
        assert task.codes <= {"MR-5050"}
    assert not list(checkpoints.glob(f"{name}-*")), "a stopped query leaves nothing"
    for is_kept in (True, False):
        if not is_kept:
            _delete(checkpoints)
        bag.publish(10)
        with running(spark, target_server, bag.writer, name=name) as task:
            task.wait_until_at(bag.stream.seq)
    bag.check()


def _folders_of_this_process() -> list[Path]:
    """In memory and among the temporary files."""
    roots = {Path("/dev/shm"), Path(tempfile.gettempdir())}
    found = [path for root in roots for path in root.glob(f"millrace-apply-{os.getpid()}-*")]
    assert found
    return found


def _delete(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint)


def _empty(checkpoint: Path) -> None:
    for path in (checkpoint / "offsets").iterdir():
        path.write_text("")
