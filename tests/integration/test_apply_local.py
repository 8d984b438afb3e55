"""``consumer.task.local``: turns in this process, on a real topic and a real target."""

import threading

import pytest

from millrace.consumer.task.local import run_here
from millrace.consumer.write import target_transaction
from millrace.deploy.servers import DatabaseServer, KafkaServer
from millrace.faults import watched
from millrace.schemas.documents import ApplyTask, Brokers, TopicAddress
from tests.fixtures.spark import PASSWORD_VARIABLE
from tests.kit.apply.documents import local_set
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import RecordStream, TopicWriter

NAME = "local"

pytestmark = pytest.mark.usefixtures("target_password")


def test_turn_runs_in_this_process(kafka: KafkaServer, mariadb_server: DatabaseServer) -> None:
    """Its target transactions run where a debugger can stop them, and the next call continues after them."""
    stream = RecordStream()
    writer = TopicWriter(kafka.bootstrap, stream)
    rows = table(NAME, "t", integer("id"))
    stream.ddl(f"CREATE DATABASE {NAME}")
    stream.ddl("CREATE TABLE t (id INT PRIMARY KEY)", database=NAME)
    source = TopicAddress(topic=writer.topic, brokers=Brokers(writer.bootstrap))
    task = ApplyTask(name=NAME, source=source, target="target")
    port, user = mariadb_server.port, mariadb_server.user
    target = local_set("target", (port,), user=user, variable=PASSWORD_VARIABLE)
    commits: list[str] = []

    def note(point: str) -> None:
        if point == target_transaction.BEFORE_LANE_COMMIT:
            commits.append(threading.current_thread().name)

    for epoch in (1, 2):
        stream.insert(rows, {"id": epoch})
        stream.commit()
        writer.publish()
        with watched(note):
            mark = run_here(task, target, epoch=epoch)
        assert mark.seq == stream.seq
    assert set(commits) == {threading.main_thread().name}
    assert mariadb_server.execute(f"SELECT id FROM {NAME}.t ORDER BY id") == [(1,), (2,)]
    mariadb_server.execute(f"DROP DATABASE {NAME}")
