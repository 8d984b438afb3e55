"""An apply task whose broker does not answer: Spark retries for minutes, but the status shows it within seconds.

`make test` has the rule without servers (``tests/unit/test_apply_looks.py``).
"""

import pytest

from millrace.consumer.spark.session import SparkDriver
from millrace.consumer.task import runner
from millrace.deploy.servers import DatabaseServer, KafkaServer
from millrace.schemas.status import TaskState
from tests.fixtures.spark import RunningTask, running
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import RecordStream, TopicWriter
from tests.kit.waiting import eventually

pytestmark = [pytest.mark.chaos, pytest.mark.usefixtures("target_password")]


def test_silent_broker_degrades_the_task_until_it_answers(
    spark: SparkDriver,
    new_kafka: KafkaServer,
    mariadb_server: DatabaseServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker is paused while the task is idle. The same run continues and applies later records."""
    monkeypatch.setattr(runner, "SILENCE_S", 2.0)
    mariadb_server.execute("CREATE DATABASE silent")
    mariadb_server.execute("CREATE TABLE silent.t (id INT PRIMARY KEY)")
    stream = RecordStream()
    writer = TopicWriter(new_kafka.bootstrap, stream)
    with running(spark, mariadb_server, writer, name="silent") as task:
        for number in (1, 2):
            stream.insert(table("silent", "t", integer("id")), {"id": number})
            stream.commit()
            writer.publish()
            task.wait_until_at(stream.seq)
            eventually(lambda: _state(task) is TaskState.RUNNING)  # a slow batch is silent too
            if number == 1:
                new_kafka.pause()
                eventually(lambda: _state(task) is TaskState.DEGRADED)
                assert task.reported is not None
                assert (task.reported.code, task.reported.seq) == ("MR-5052", stream.seq)
                assert task.reported.fix
                new_kafka.resume()
                eventually(lambda: _state(task) is TaskState.RUNNING)
        assert task.retries == 0
    assert mariadb_server.execute("SELECT id FROM silent.t ORDER BY id") == [(1,), (2,)]
    mariadb_server.execute("DROP DATABASE silent")


def _state(task: RunningTask) -> TaskState | None:
    return task.reported.state if task.reported else None
