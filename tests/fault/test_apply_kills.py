"""Apply under kill -9: Python workers in a turn, the driver with a turn before the mark, the target.

`make test` has these kills on a whole stack (``tests/stack/test_kills.py``), without Spark in
``test_apply_target_deaths.py`` and ``tests/integration/test_apply_whole.py``, and on the model
(``tests/property/test_apply_model.py``).
"""

import os
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from millrace.consumer.spark.session import SparkDriver
from millrace.deploy.servers import DatabaseServer, KafkaServer
from millrace.deploy.servers.process import ProcessSpec, ServerProcess
from millrace.drivers.mysql.connection import connect
from millrace.schemas.documents import Consistency
from tests.fixtures.servers import NewServer
from tests.fixtures.spark import armed, running
from tests.fixtures.stack import stopped_in
from tests.kit.apply.local import endpoint_of
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import RecordStream, TopicWriter
from tests.kit.paths import ROOT
from tests.kit.waiting import eventually, until_locked_out

pytestmark = [pytest.mark.chaos, pytest.mark.usefixtures("target_password")]

ROWS = 12_000
DEATHS = 3
LARGE_ROWS = 70_000  # more than two windows


def _filled(kafka: KafkaServer, name: str) -> TopicWriter:
    writer = _with_tables(kafka, name)
    _fill(writer, name)
    return writer


def _with_tables(kafka: KafkaServer, name: str) -> TopicWriter:
    """A topic that creates two tables."""
    stream = RecordStream()
    writer = TopicWriter(kafka.bootstrap, stream)
    stream.ddl(f"CREATE DATABASE {name}")
    stream.ddl("CREATE TABLE bag (n INT)", database=name)
    stream.ddl("CREATE TABLE sums (id INT PRIMARY KEY, n INT)", database=name)
    writer.publish()
    return writer


def _fill(writer: TopicWriter, name: str, *, begun: int = 0) -> None:
    """``ROWS`` more rows of a table without a key, and of one with a key; a repeated change would show in both."""
    bag = table(name, "bag", integer("n"), key=())
    sums = table(name, "sums", integer("id"), integer("n"))
    stream = writer.stream
    for number in range(begun, begun + ROWS):
        stream.insert(bag, {"n": number})
        if number < 100:
            stream.insert(sums, {"id": number, "n": 0})
        elif number % 10 == 0:
            key, times = number % 100, number // 100
            stream.update(sums, {"id": key, "n": times - 1}, {"id": key, "n": times})
    stream.commit()
    writer.publish()


def _check(server: DatabaseServer, name: str, rows: int = ROWS) -> None:
    bag = server.execute(f"SELECT COUNT(*), COUNT(DISTINCT n), SUM(n) FROM {name}.bag")
    assert bag == [(rows, rows, sum(range(rows)))]
    wanted = {key: max(n // 100 for n in range(key, rows, 100)) for key in range(0, 100, 10)}
    sums = server.execute(f"SELECT id, n FROM {name}.sums WHERE n > 0 ORDER BY id")
    assert sums == sorted(wanted.items())
    server.execute(f"DROP DATABASE {name}")


@pytest.mark.parametrize(
    "point", ["apply.before_lane_commit", "apply.after_lane_commit", "apply.after_turn"]
)
def test_killed_python_worker_loses_and_repeats_no_row(
    spark: SparkDriver, kafka: KafkaServer, target_server: DatabaseServer, point: str
) -> None:
    """Under load, workers die at their second pass of the point; rows follow until ``DEATHS`` have died.

    A fast worker applies all rows in its first turn, a slow one comes to a few of them before it dies.
    """
    name = f"kill_{target_server.flavour}_{point.rpartition('.')[2]}"
    writer, rows = _filled(kafka, name), ROWS
    with ExitStack() as faults:
        faults.enter_context(armed(spark, f"{point}:kill@2"))
        with running(spark, target_server, writer, name=name) as task:

            def have_died() -> bool:
                nonlocal rows
                if task.is_at(writer.stream.seq):
                    _fill(writer, name, begun=rows)
                    rows += ROWS
                return task.retries >= DEATHS

            eventually(have_died, what=f"{DEATHS} workers have died")
            assert "MR-5050" in task.codes
            faults.close()
            task.wait_until_at(writer.stream.seq)
    _check(target_server, name, rows)


def test_killed_worker_leaves_no_part_of_a_large_source_transaction(
    spark: SparkDriver, kafka: KafkaServer, target_server: DatabaseServer
) -> None:
    """The worker is killed inside its open target transaction. It is larger than two windows.

    Before, the capture task stops in the middle of it, after a window: the target shows none of its rows.
    """
    name = f"large_{target_server.flavour}"
    writer, bag = _with_tables(kafka, name), table(name, "bag", integer("n"), key=())
    stream = writer.stream
    for number in range(LARGE_ROWS):
        stream.insert(bag, {"n": number})
        if number == 0:
            stream.commit()
        if number == LARGE_ROWS // 2:
            stream.pause()
            writer.publish()
    count = f"SELECT COUNT(*), SUM(n) FROM {name}.bag"
    with ExitStack() as faults:
        faults.enter_context(armed(spark, "apply.inside_large_transaction:kill@2"))
        rule = Consistency.TRANSACTIONAL
        with running(spark, target_server, writer, name=name, consistency=rule) as task:
            task.wait_until_at(stream.ends[-1])
            assert target_server.execute(count) == [(1, 0)]
            stream.commit()
            writer.publish()
            eventually(lambda: "MR-5050" in task.codes, what="a worker is killed")
            assert target_server.execute(count) == [(1, 0)]
            faults.close()
            task.wait_until_at(stream.seq)
    assert target_server.execute(count) == [(LARGE_ROWS, sum(range(LARGE_ROWS)))]
    target_server.execute(f"DROP DATABASE {name}")


def test_next_driver_completes_the_work_of_a_killed_one(
    spark: SparkDriver, kafka: KafkaServer, target_server: DatabaseServer, tmp_path: Path
) -> None:
    """The lanes have committed, the mark has not moved: the next driver skips their rows by the bitmaps."""
    name = f"driver_{target_server.flavour}"
    writer = _filled(kafka, name)
    arguments = [name, writer.topic, writer.bootstrap, str(target_server.port), target_server.user]
    process = ServerProcess(
        ProcessSpec(
            "the driver",
            (sys.executable, "-m", "tests.kit.apply.process", *arguments),
            tmp_path / "log",
            _environment("apply.before_mark:stop"),
        )
    )
    process.launch()
    try:
        eventually(lambda: stopped_in(process), what="a turn is before the mark")
    finally:
        process.kill()
    lanes = target_server.execute("SELECT COUNT(*) FROM millrace.applied WHERE task = %s", (name,))
    assert lanes > [(1,)]
    with running(spark, target_server, writer, name=name) as task:
        task.wait_until_at(writer.stream.seq)
    _check(target_server, name)


def _environment(fault: str) -> dict[str, str]:
    return os.environ | {"MILLRACE_FAULT": fault, "PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize("flavour", ["mariadb"])
def test_killed_target_loses_and_repeats_no_row(
    spark: SparkDriver, kafka: KafkaServer, new_server: NewServer, flavour: str
) -> None:
    """The server dies in the middle of a target transaction and comes back."""
    server = new_server(flavour)
    writer = _with_tables(kafka, "away")
    with running(spark, server, writer, name="away") as task:
        task.wait_until_at(writer.stream.seq)
        other = connect(endpoint_of(server), database="away")
        other.query("BEGIN")
        other.query("INSERT INTO sums VALUES (0, 0)")  # apply has to wait for this row
        _fill(writer, "away")
        until_locked_out(server, what="apply waits for a row")
        server.kill()
        other.close()
        server.start()
        task.wait_until_at(writer.stream.seq)
        assert task.retries > 0
    _check(server, "away")
