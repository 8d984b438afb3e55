"""The whole way of apply on Spark: a real topic, a real session, a real target."""

import pytest

from consumer import apply
from consumer.batch import SOLE_OFFSETS_MAX
from consumer.spark import SparkDriver
from deploy.servers import DatabaseServer, KafkaServer
from millrace.errors import Fatal, Retryable
from schemas.documents import TopicAddress
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


def test_a_task_behind_what_retention_left_goes_on_when_no_row_is_missing(
    spark: SparkDriver, kafka: KafkaServer, mariadb_server: DatabaseServer
) -> None:
    """What is gone since it stopped said nothing but how far the source is, or held a row: `seq` tells which."""
    made = table("retained", "t", integer("id"))
    stream = RecordStream()
    writer = TopicWriter(kafka.bootstrap, stream)
    stream.ddl("CREATE DATABASE retained")
    stream.ddl("CREATE TABLE t (id INT PRIMARY KEY)", database="retained")
    writer.publish()
    with running(spark, mariadb_server, writer, name="retained") as task:
        task.wait_until_at(stream.seq)
    stream.commit()
    writer.publish()
    writer.remove_everything()
    stream.insert(made, {"id": 1})
    stream.commit()
    writer.publish()
    with running(spark, mariadb_server, writer, name="retained") as task:
        task.wait_until_at(stream.seq)
        assert task.retries == 0
    stream.insert(made, {"id": 2})
    stream.commit()
    writer.publish()
    writer.remove_everything()
    stream.commit()
    writer.publish()
    with running(spark, mariadb_server, writer, name="retained") as task:
        failure = task.wait_until_it_fails()
    assert failure.code == "MR-5030"
    assert mariadb_server.execute("SELECT id FROM retained.t") == [(1,)]
    mariadb_server.execute("DROP DATABASE retained")


def test_a_topic_that_ends_in_front_of_the_mark_is_another_one(kafka: KafkaServer) -> None:
    """Made anew under the name: reading it from some offset on would be anything."""
    stream = RecordStream()
    writer = TopicWriter(kafka.bootstrap, stream)
    stream.commit()
    writer.publish()
    address = TopicAddress(topic=writer.topic, bootstrap=writer.bootstrap)
    assert apply._begin(address, 1) == 1
    with pytest.raises(Fatal, match="has read to 9") as caught:
        apply._begin(address, 9)
    assert caught.value.code == "MR-5030"
    with pytest.raises(Retryable) as waited:
        apply._begin(TopicAddress(topic="not-there-yet", bootstrap=writer.bootstrap), 9)
    assert waited.value.code == "MR-5052"
