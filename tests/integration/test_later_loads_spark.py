"""Tables are loaded beside main on Spark: a real topic, a real session, a real target."""

import threading

import pytest

from millrace.consumer.spark.session import SparkDriver
from millrace.consumer.target.load_range import side_of
from millrace.deploy.servers import DatabaseServer, KafkaServer
from tests.fixtures.spark import running
from tests.kit.apply.live import LiveLoader, LiveTask, Source, rows_on, rows_wanted
from tests.kit.apply.loads import states
from tests.kit.apply.topic import RecordStream, TopicWriter
from tests.kit.waiting import eventually

pytestmark = [pytest.mark.usefixtures("target_password"), pytest.mark.chaos]


@pytest.fixture
def target_server(mariadb_server: DatabaseServer) -> DatabaseServer:
    """One flavour is enough: the rules are tested on both without Spark."""
    return mariadb_server


def test_tables_join_while_the_topic_grows(
    spark: SparkDriver, kafka: KafkaServer, target_server: DatabaseServer, name: str
) -> None:
    """Main passes each change within seconds, also those that come while tables are copied and catch up."""
    source = Source(name, RecordStream(target_server.flavour))
    source.create(target_server, "t", "kept", "bag")
    writer = TopicWriter(kafka.bootstrap, source.stream)
    source.transactions(20)
    writer.publish()
    live, enough = LiveTask.of(target_server, source), threading.Event()
    copying = threading.Event()

    def feed() -> None:
        while not enough.wait(0.05):
            with source.lock:
                source.transactions(2)
                writer.publish()

    def between() -> None:
        copying.set()
        enough.wait(1.0)

    loader = LiveLoader(target_server, source, between=between)
    feeding = threading.Thread(target=feed)
    with running(spark, target_server, writer, name=name, make_loader=lambda *_: loader) as task:
        task.wait_until_at(source.stream.seq)
        feeding.start()
        try:
            live.wait_for("t", "bag")
            assert copying.wait(60)
            task.wait_until_at(source.stream.seq)
            eventually(lambda: not states(target_server, name), what="the tables have joined")
        finally:
            enough.set()
            feeding.join()
        task.wait_until_at(source.stream.seq)
        assert task.retries == 0
    assert loader.loads == 1
    assert rows_on(target_server, source) == rows_wanted(source)
    ((run,),) = target_server.execute(
        "SELECT run FROM millrace.fence WHERE task = %s", (side_of(name),)
    )
    assert int(str(run)) > 1, "the side stream had no turn"
