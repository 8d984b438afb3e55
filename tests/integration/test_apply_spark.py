"""Apply on Spark end to end: a real topic, a real session, a real target."""

import threading
import time
from functools import partial
from itertools import count

import pytest

from millrace.consumer.records.stream import TopicStream
from millrace.consumer.spark.session import FIRST_OFFSET, SparkDriver
from millrace.consumer.target.fence import raise_fence
from millrace.consumer.target.progress import Mark
from millrace.consumer.task import runner
from millrace.consumer.turn.context import TURN_S, WINDOW
from millrace.deploy.servers import DatabaseServer, KafkaServer
from millrace.drivers.kafka.reader import TopicIdentity, TopicReader, first_offset
from millrace.drivers.mysql.connection import connect
from millrace.errors import Fatal, Retryable
from millrace.schemas.documents import Brokers, TopicAddress
from tests.fixtures.spark import running
from tests.kit.apply.local import endpoint_of
from tests.kit.apply.tables import integer, table, text
from tests.kit.apply.topic import RecordStream, TopicWriter
from tests.kit.waiting import PATIENCE_S, eventually, until_locked_out

pytestmark = pytest.mark.usefixtures("target_password")


def test_topic_is_applied_from_its_beginning_then_as_it_grows(
    spark: SparkDriver, kafka: KafkaServer, target_server: DatabaseServer
) -> None:
    """Catch-up in lanes, then small batches in one lane, with a restart between; aborted records never appear."""
    name = f"spark_{target_server.flavour}"
    made = table(name, "t", integer("id"), text("body"), integer("n"))
    stream = RecordStream()
    writer = TopicWriter(kafka.bootstrap, stream)
    stream.ddl(f"CREATE DATABASE {name}")
    stream.ddl("CREATE TABLE t (id INT PRIMARY KEY, body VARCHAR(20), n INT)", database=name)
    rows = 20_000
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


def test_reader_reaches_the_end_that_spark_plans_with(kafka: KafkaServer) -> None:
    """After the last record are markers of Kafka transactions; without them a turn would wait for more records."""
    stream = RecordStream()
    writer = TopicWriter(kafka.bootstrap, stream)
    reader = TopicReader(Brokers(writer.bootstrap), writer.topic)
    applied = TopicStream(Brokers(writer.bootstrap), writer.topic)
    applied.seek(FIRST_OFFSET)
    for _ in range(2):
        stream.commit()
        writer.publish()

        def is_read() -> bool:
            applied.take(WINDOW, wait_s=0.1)
            return applied.taken == len(stream.values)

        eventually(is_read, what="all records are read")
        end = reader.ends().stable
        assert end > len(stream.values)
        eventually(partial(_is_at, applied, end), what="the reader is after the markers")
    reader.close()
    applied.close()


def _is_at(applied: TopicStream, end: int) -> bool:
    """One call may end before the broker has reported the end."""
    return applied.take(WINDOW, wait_s=0.1) is None and applied.reached == end


def test_stop_ends_a_turn_under_way(
    spark: SparkDriver, kafka: KafkaServer, mariadb_server: DatabaseServer
) -> None:
    """While records arrive, a turn lasts long; a stop does not wait for its end, and no row is lost or repeated."""
    name = "fed"
    bag = table(name, "bag", integer("n"), key=())
    stream = RecordStream()
    writer = TopicWriter(kafka.bootstrap, stream)
    stream.ddl(f"CREATE DATABASE {name}")
    stream.ddl("CREATE TABLE bag (n INT)", database=name)
    writer.publish()
    rows, enough = count(), threading.Event()

    def feed() -> None:
        while not enough.wait(0.05):
            stream.insert(bag, {"n": next(rows)})
            stream.commit()
            writer.publish()

    feeding = threading.Thread(target=feed)
    try:
        with running(spark, mariadb_server, writer, name=name) as task:
            feeding.start()
            task.wait_until_at(30)
            began_s = time.monotonic()
        took_s = time.monotonic() - began_s
    finally:
        enough.set()
        feeding.join()
    assert took_s < TURN_S / 2, "the stop waits for the turn"
    with running(spark, mariadb_server, writer, name=name) as task:
        task.wait_until_at(stream.seq)
    fed = next(rows)
    assert fed > 28
    found = mariadb_server.execute(f"SELECT COUNT(*), COUNT(DISTINCT n) FROM {name}.bag")
    assert found == [(fed, fed)]
    mariadb_server.execute(f"DROP DATABASE {name}")


def test_task_resumes_past_retention_if_no_row_is_missing(
    spark: SparkDriver, kafka: KafkaServer, mariadb_server: DatabaseServer
) -> None:
    """Retention may remove resolved records but no unread row; `seq` shows which it was."""
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
    _end_last_turn(mariadb_server, "retained")  # or it applies the row before it is removed
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


def _end_last_turn(server: DatabaseServer, task: str) -> None:
    """Take the fence: an executor may apply what still comes after the driver has ended the run."""
    session = connect(endpoint_of(server))
    raise_fence(session, task=task, epoch=1)
    session.commit()
    session.close()


def test_topic_that_ends_before_the_mark_is_refused(kafka: KafkaServer) -> None:
    """The topic was created again under the same name, so its offsets mean other records."""
    stream = RecordStream()
    writer = TopicWriter(kafka.bootstrap, stream)
    stream.commit()
    writer.publish()
    reader = TopicReader(Brokers(writer.bootstrap), writer.topic)
    eventually(lambda: reader.ends().stable > 0, what="the marker is written")
    reader.close()
    assert first_offset(Brokers(writer.bootstrap), writer.topic, 1) == 1
    with pytest.raises(Fatal, match="has read to 9") as caught:
        first_offset(Brokers(writer.bootstrap), writer.topic, 9)
    assert caught.value.code == "MR-5035"


def test_missing_topic_and_wrong_broker_are_reported_within_seconds(kafka: KafkaServer) -> None:
    """The check runs before the query starts and before the task reports running, and it has a deadline."""
    closed = "127.0.0.1:1"
    for bootstrap, code, words in (
        (kafka.bootstrap, "MR-5054", f"there is no topic not-there at {kafka.bootstrap}"),
        (closed, "MR-5052", f"topic not-there at {closed}: "),
    ):
        source = TopicAddress(topic="not-there", brokers=Brokers(bootstrap))
        identity = TopicIdentity(Brokers(bootstrap), source.topic)
        began_s = time.monotonic()
        with pytest.raises(Retryable, match=words) as caught:
            runner.same_topic(identity, Mark(0, FIRST_OFFSET), source=source)
        assert caught.value.code == code
        assert time.monotonic() - began_s < PATIENCE_S


def _rows(database: str, *, first: int, count: int, resolved: int = 1) -> RecordStream:
    """CREATE DATABASE and TABLE, then one row per id, each followed by ``resolved`` resolved records."""
    stream = RecordStream()
    stream.ddl(f"CREATE DATABASE IF NOT EXISTS {database}")
    stream.ddl("CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY)", database=database)
    for number in range(first, first + count):
        stream.insert(table(database, "t", integer("id")), {"id": number})
        for _ in range(resolved):
            stream.commit()
    return stream


def _progress(server: DatabaseServer, task: str) -> tuple[object, ...]:
    columns = "seq, next_offset, gtid_set, topic_id"
    (row,) = server.execute(f"SELECT {columns} FROM millrace.progress WHERE task = %s", (task,))
    return row


@pytest.mark.parametrize("is_earlier_version", [False, True])
def test_recreated_topic_longer_than_the_mark_blocks_the_task(
    spark: SparkDriver,
    kafka: KafkaServer,
    target_server: DatabaseServer,
    *,
    is_earlier_version: bool,
) -> None:
    """The records past the mark's offset have applied seqs but new rows; the task blocks and keeps its progress.

    Progress of an earlier version has no topic id. A run whose seq and GTID set checks pass saves one.
    """
    name = f"again_{target_server.flavour}"
    stream = _rows(name, first=0, count=30)
    writer = TopicWriter(kafka.bootstrap, stream)
    writer.publish()
    with running(spark, target_server, writer, name=name) as task:
        task.wait_until_at(stream.seq)
    if is_earlier_version:
        target_server.execute("ALTER TABLE millrace.progress DROP COLUMN topic_id")
        stream.insert(table(name, "t", integer("id")), {"id": 30})
        stream.commit()
        writer.publish()
        with running(spark, target_server, writer, name=name) as task:
            task.wait_until_at(stream.seq)
    before, rows = _progress(target_server, name), target_server.execute(f"SELECT * FROM {name}.t")
    assert before[3]
    writer.create_again(_rows(name, first=100, count=30, resolved=9))
    writer.publish()
    if is_earlier_version:
        target_server.execute("UPDATE millrace.progress SET topic_id = '' WHERE task = %s", (name,))
        before = (*before[:3], "")
    with running(spark, target_server, writer, name=name) as task:
        failure = task.wait_until_it_fails()
    assert failure.code == "MR-5035"
    assert ("has the id" in failure.message) is not is_earlier_version
    assert _progress(target_server, name) == before
    assert target_server.execute(f"SELECT * FROM {name}.t") == rows
    target_server.execute(f"DROP DATABASE {name}")
    target_server.execute("DELETE FROM millrace.progress WHERE task = %s", (name,))


def test_topic_recreated_under_a_running_query_blocks_the_task(
    spark: SparkDriver, kafka: KafkaServer, mariadb_server: DatabaseServer
) -> None:
    """The next run, or the next micro-batch of this query, compares the topic's id, whatever Spark does."""
    stream = _rows("under_query", first=0, count=30)
    writer = TopicWriter(kafka.bootstrap, stream)
    writer.publish()
    with running(spark, mariadb_server, writer, name="under_query") as task:
        task.wait_until_at(stream.seq)
        writer.create_again(_rows("under_query", first=100, count=30, resolved=9))
        writer.publish()
        failure = task.wait_until_it_fails()
    assert failure.code == "MR-5035"
    assert mariadb_server.execute("SELECT COUNT(*), MAX(id) FROM under_query.t") == [(30, 29)]
    mariadb_server.execute("DROP DATABASE under_query")


def test_status_counts_retries_and_conflicts_of_executors(
    spark: SparkDriver, kafka: KafkaServer, mariadb_server: DatabaseServer
) -> None:
    """The server ends the session of a lane, then a row is in the way: the status has both, across the runs."""
    stream = _rows("counted", first=0, count=3)
    writer = TopicWriter(kafka.bootstrap, stream)
    writer.publish()
    with running(spark, mariadb_server, writer, name="counted") as task:
        task.wait_until_at(stream.seq)
        other = connect(endpoint_of(mariadb_server))
        other.query("INSERT INTO counted.t (id) VALUES (100)")
        stream.insert(table("counted", "t", integer("id")), {"id": 100})
        stream.commit()
        writer.publish()
        until_locked_out(mariadb_server, what="apply waits for the row")
        ((waiting,),) = mariadb_server.execute(
            "SELECT trx_mysql_thread_id FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT'"
        )
        mariadb_server.execute(f"KILL {waiting}")
        eventually(lambda: task.retries == 1, what="the run ends")
        other.commit()
        other.close()
        assert task.wait_until_it_fails().code == "MR-5010"
    assert task.reported is not None
    assert task.reported.applied is not None
    found = task.reported.applied.counts.incidents
    (errno,) = found.retries
    assert errno in ("1927", "2006", "2013")
    assert found.retries[errno] == 1
    assert found.conflicts == {"insert-exists": 1}
    mariadb_server.execute("DROP DATABASE counted")
