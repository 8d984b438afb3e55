"""Debezium moves from the database to a served relay log and misses no row."""

from pathlib import Path

import pytest

from millrace.deploy.bench.apply.sink.connect import ConnectWorker
from millrace.deploy.bench.capture.backlog import end_clock
from millrace.deploy.bench.capture.debezium.peer import NAME, fetch_debezium, settings
from millrace.deploy.bench.capture.topics import create_topic
from millrace.deploy.servers import Account, KafkaServer, ServerOptions
from millrace.schemas.gtid import Flavour
from tests.fixtures.servers import NewServer
from tests.kit.relay.relay import receiving
from tests.kit.relay.serving import PASSWORD, SET_NAME, USER, options_in, served
from tests.kit.waiting import eventually

TOPIC, PROBE = "dbz.d.t", "dbz.d.probe"
PRIVILEGES = "SELECT, RELOAD, LOCK TABLES, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT"


@pytest.mark.guarantee("served relay log")
def test_debezium_continues_from_the_relay_log(
    kafka: KafkaServer, new_server: NewServer, tmp_path: Path
) -> None:
    """It has read the table's structure from the database; from then on it needs the relay log only."""
    source = new_server(Flavour.MYSQL, options=ServerOptions(server_id=1))
    with receiving(source, tmp_path / SET_NAME, from_first=True) as reception:
        source.execute("CREATE DATABASE d")
        source.execute("CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(50))")
        source.execute("CREATE TABLE d.probe (id INT PRIMARY KEY AUTO_INCREMENT)")
        for topic in (TOPIC, PROBE):
            create_topic(kafka.bootstrap, topic)
        account = Account("debezium", "debezium-secret")
        source.create_account(account, PRIVILEGES)
        history = tmp_path / "connect" / "history"
        configuration = dict(settings(source, account, tables="d[.]t,d[.]probe", history=history))
        worker = ConnectWorker(tmp_path / "connect", fetch_debezium(), kafka.bootstrap)
        worker.start()
        try:
            worker.create(NAME, configuration)
            worker.resume_tasks(NAME)
            with (
                end_clock(kafka.bootstrap, TOPIC) as clock,
                end_clock(kafka.bootstrap, PROBE) as probe,
            ):

                def follows() -> bool:
                    source.execute("INSERT INTO d.probe VALUES ()")
                    worker.check(NAME)
                    probe.look()
                    return probe.end > 0

                def has(rows: int) -> bool:
                    worker.check(NAME)
                    clock.look()
                    return clock.end >= rows

                eventually(follows, every_s=0.5, what="a row of the probe")
                source.execute("INSERT INTO d.t (v) VALUES ('a'), ('b'), ('c')")
                eventually(lambda: has(3), what="rows from the database")
                worker.stop_tasks(NAME)
                worker.stop()
                source.execute("INSERT INTO d.t (v) SELECT v FROM d.t")
                with served(tmp_path / SET_NAME, options_in(tmp_path)) as address:
                    worker.start()
                    moved = {
                        "database.port": str(address.port),
                        "database.user": USER,
                        "database.password": PASSWORD,
                        "database.ssl.mode": "disabled",
                    }
                    worker.create(NAME, configuration | moved)
                    worker.resume_tasks(NAME)
                    source.execute("INSERT INTO d.t (v) SELECT v FROM d.t")
                    reception.wait_for(source)
                    eventually(lambda: has(12), what="rows from the relay log")
                    worker.stop_tasks(NAME)
                    assert has(12)
                    assert clock.end == 12, "no row twice"
        finally:
            worker.discard()
