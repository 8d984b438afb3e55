"""The whole way of apply on Spark: a real topic, a real session, a real target."""

import pytest

from consumer.batch import SOLE_OFFSETS_MAX
from consumer.spark import SparkDriver
from deploy.servers import DatabaseServer, KafkaServer
from tests.apply_tables import integer, table, text
from tests.apply_topic import RecordStream, TopicWriter
from tests.fix_spark import running

pytestmark = pytest.mark.usefixtures("target_password")


def test_a_topic_is_applied_from_its_beginning_and_then_as_it_grows(
    spark: SparkDriver, kafka: KafkaServer, target_server: DatabaseServer
) -> None:
    """Catch-up in lanes, then small batches on one; a stop and a start in between; an aborted record never shows."""
    name = f"spark_{target_server.flavour}"
    made = table(name, "t", integer("id"), text("body"), integer("n"))
    stream = RecordStream()
    writer = TopicWriter(kafka.bootstrap, stream)
    stream.ddl(f"CREATE DATABASE {name}")
    stream.ddl("CREATE TABLE t (id INT PRIMARY KEY, body VARCHAR(20), n INT)", database=name)
    rows = 2 * SOLE_OFFSETS_MAX
    for number in range(rows):
        stream.insert(made, {"id": number, "body": f"b{number}", "n": 0})
    stream.commit()
    writer.publish()
    with running(spark, target_server, writer, name=name) as task:
        task.wait_until_at(stream.seq)
        assert task.reported is not None
        assert task.reported.gtid_set == stream.gtid_set
        for number in range(0, rows, 100):
            old = {"id": number, "body": f"b{number}", "n": 0}
            stream.update(made, old, old | {"n": 1})
            stream.commit()
        writer.publish()
        task.wait_until_at(stream.seq)
        assert task.retries == 0
    stream.delete(made, {"id": 1, "body": "b1", "n": 0})
    stream.commit()
    writer.publish()
    with running(spark, target_server, writer, name=name) as task:
        task.wait_until_at(stream.seq)
    found = target_server.execute(f"SELECT COUNT(*), SUM(n), SUM(id) FROM {name}.t")
    assert found == [(rows - 1, -(-rows // 100), sum(range(rows)) - 1)]
    target_server.execute(f"DROP DATABASE {name}")
