"""Debezium's JDBC sink as a peer: it applies the same load to a separate database on the stack's target.

    before     the load is written once more; its rows get one topic a table, and each topic a connector with one task
    a round    the tables are made again, empty; the connectors are set back to their first records and started; the
               clock of all figures runs until every record is written and its offset committed
    after      the checksums of the tables are compared with the source's

The worker's JVM stays up from round to round, so all rounds but the first are warm.
"""

import json
import time
from collections.abc import Mapping
from contextlib import closing

from millrace.deploy.bench.apply.clock import Pace, binlog_clock
from millrace.deploy.bench.apply.sink.connect import (
    IVY_FILE,
    ConnectWorker,
    SinkJars,
    fetch_connector,
)
from millrace.deploy.bench.apply.sink.records import VERSION
from millrace.deploy.bench.apply.sink.topics import SinkTopic, write_topics
from millrace.deploy.bench.apply.workloads import Workload
from millrace.deploy.bench.figure import Size, announced_rounds, say
from millrace.deploy.bench.scene import POLL_S, WAIT_S, Scene
from millrace.deploy.local.services import APPLY_TASK, TOPIC
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.kafka.reader import TopicReader
from millrace.errors import Fatal
from millrace.schemas.documents import Brokers
from millrace.schemas.gtid import Flavour

SINK = f"debezium-jdbc {VERSION}, 1 task a table"
DATABASE = "bench_sink"
BATCH = 10_000
FETCH_BYTES_MAX = 16 * 2**20  # Kafka's default of 1 MiB holds fewer records than a batch
_JSON = "org.apache.kafka.connect.json.JsonConverter"
_URLS = {
    Flavour.MARIADB: "jdbc:mariadb://{address}?useBulkStmts=true",
    Flavour.MYSQL: "jdbc:mysql://{address}?rewriteBatchedStatements=true&sslMode=DISABLED"
    "&allowPublicKeyRetrieval=true",
}


def fetch_sink() -> SinkJars:
    return fetch_connector("debezium-jdbc", size_mb=53, ivy_file=IVY_FILE)


def sink_rates(scene: Scene, jars: SinkJars, workload: Workload, size: Size) -> list[float]:
    """Changes per second of each counted round. Fatal MR-8004 if the sink fails or its rows differ."""
    bootstrap = scene.bootstrap
    say("  the load for the sink")
    scene.create(workload)
    with closing(TopicReader(Brokers(bootstrap), TOPIC)) as reader:
        first = reader.ends().stable
    changes = scene.write(workload, workload.sized(size.scale))
    topics = write_topics(bootstrap, TOPIC, first, workload.database)
    scene.resume_apply()
    scene.pause(APPLY_TASK)  # its progress rows would move the clock
    worker = ConnectWorker(scene.stack.folder / "connect", jars, bootstrap)
    sink = _Sink(worker, scene.stack.target, workload, topics)
    rates = []
    try:
        worker.start()
        for _ in announced_rounds(size):
            sink.reset()
            rates.append(sink.catch_up().rate(changes))
            say(f"  {rates[-1]:,.0f}/s")
            sink.check(scene.source)
    finally:
        worker.discard()
    return rates[1:]


class _Sink:
    """The connectors of one load."""

    def __init__(
        self,
        worker: ConnectWorker,
        target: DatabaseServer,
        workload: Workload,
        topics: Mapping[str, SinkTopic],
    ) -> None:
        self._worker = worker
        self._target = target
        self._workload = workload
        self._topics = topics
        self._is_created = False

    def reset(self) -> None:
        """Stop the connectors at their first records, and make the tables again."""
        for table, topic in self._topics.items():
            if self._is_created:
                self._worker.rewind(table)
            else:
                self._worker.create(table, sink_settings(self._target, table, topic))
        self._is_created = True
        self._target.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
        self._target.execute(f"CREATE DATABASE {DATABASE}")
        for table in self._topics:
            like = f"{self._workload.database}.{table}"
            self._target.execute(f"CREATE TABLE {DATABASE}.{table} LIKE {like}")

    def catch_up(self) -> Pace:
        """Let the connectors write all their records. Fatal MR-8004 if one fails."""
        with binlog_clock(self._target) as clock:
            for table in self._topics:
                self._worker.resume_tasks(table)
            deadline = time.monotonic() + WAIT_S
            for table, topic in self._topics.items():
                while (done := self._worker.committed(table)) < topic.record_count:
                    if time.monotonic() > deadline:
                        what = f"connector {table} wrote {done} of {topic.record_count} records"
                        raise self._worker.process.failure(what)
                    time.sleep(POLL_S)
        return clock.pace()

    def check(self, source: DatabaseServer) -> None:
        """Compare the rows. Fatal MR-8004 names the table that differs."""
        for table in self._workload.tables:
            wanted = source.execute(f"CHECKSUM TABLE {self._workload.database}.{table}")[0][1]
            if self._target.execute(f"CHECKSUM TABLE {DATABASE}.{table}")[0][1] != wanted:
                raise Fatal("MR-8004", f"Debezium's sink has other rows in {table}")


def sink_settings(target: DatabaseServer, table: str, topic: SinkTopic) -> Mapping[str, str]:
    """The connector of one table. ``docs/bench.md`` says why each setting that is not a default was chosen."""
    address = f"{target.host}:{target.port}/{DATABASE}"
    return {
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        "tasks.max": "1",
        "topics": topic.name,
        "collection.name.format": table,
        "connection.url": _URLS[target.flavour].format(address=address),
        "connection.username": target.user,
        "connection.password": target.password,
        "insert.mode": "upsert",
        "delete.enabled": "true",
        "primary.key.mode": "record_key",
        "batch.size": str(BATCH),
        "use.reduction.buffer": "true",
        "consumer.override.max.poll.records": str(BATCH),
        "consumer.override.max.partition.fetch.bytes": str(FETCH_BYTES_MAX),
        "key.converter": _JSON,
        "key.converter.schema.content": json.dumps(topic.table.key_schema),
        "value.converter": _JSON,
        "value.converter.schema.content": json.dumps(topic.table.value_schema),
    }
